"""Profiling: what is run once more with a profile, and what is read of it."""

from collections.abc import Mapping

import pytest

from harness.core.error_codes import PROFILES, ProfileAsked
from harness.experiments.profiling import ROUNDS, profiling_of, read_profile
from harness.models.session_plan import Libraries, within_session
from harness.probe.ort_plan import Provider, ort_end, ort_env, ort_load, ort_run, ort_session
from harness.probe.plan import Plan, Settings, Step, context_free, context_load, execute
from harness.probe.transcript import StepResult, Transcript
from tests.unit.results.test_op_events import CSV

HTP = Libraries("libQnnHtp.so", "libQnnSystem.so")


def contexts(*files: str, graphs: int = 1) -> Plan:
    """Loads all of these and executes each graph of each twice."""
    moves = [context_load(number, file) for number, file in enumerate(files)]
    moves += [
        execute(number, graph=graph, inputs=["x"], expected=["y"], saved=["z"])
        for number in range(len(files))
        for graph in range(graphs)
        for _ in range(2)
    ]
    return within_session(
        HTP, moves, [context_free(number) for number in range(len(files))], Settings()
    )


def session(**provider: str) -> Plan:
    steps = (ort_load("o"), ort_env(), ort_session(0, "m.onnx", Provider(options=provider)))
    runs = (ort_run(0, inputs=["x"]), ort_run(0, inputs=["x"]))
    return Plan((*steps, *runs, Step("cleanup"), *ort_end()))


def fields_of(plan: Plan, verb: str) -> list[Mapping[str, str]]:
    return [step.fields for step in plan.steps if step.verb == verb]


@pytest.mark.parametrize(("requested", "level"), [("basic", "basic"), ("ops", "detailed")])
def test_each_graph_is_executed_without_a_profile_and_then_with_one(
    requested: ProfileAsked, level: str
) -> None:
    profiling = profiling_of(contexts("a", "b", graphs=2), requested, "/t")
    assert profiling is not None
    plan = profiling.plan
    loads, runs = fields_of(plan, "context-load"), fields_of(plan, "execute")
    assert [(load["file"], load["profile"]) for load in loads] == [("a", level), ("b", level)]
    assert [fields.get("profile") for fields in runs] == [None, *[None, level] * ROUNDS] * 4
    assert {fields["expect.0"] for fields in runs} == {"y"}
    assert not any("save.0" in fields for fields in runs)
    # a context is gone before the next one comes, and whatever failed is freed
    verbs = [step.verb for step in plan.steps]
    assert verbs.index("context-free") < len(verbs) - 1 - verbs[::-1].index("context-load")
    behind = verbs[verbs.index("cleanup") :]
    assert behind == ["cleanup", "context-free", "context-free", "device-free", "backend-free"]


def test_a_file_is_profiled_once_and_of_many_the_first_ones() -> None:
    same = profiling_of(contexts("a", "a", "b"), "ops", "/t")
    assert same is not None
    assert [load["file"] for load in fields_of(same.plan, "context-load")] == ["a", "b"]
    many = profiling_of(contexts(*map(str, range(40))), "ops", "/t")
    assert many is not None
    assert (len(fields_of(many.plan, "context-load")), many.left_out) == (16, 24)


@pytest.mark.parametrize(("requested", "level"), [("basic", "basic"), ("ops", "detailed")])
def test_a_session_is_made_twice_and_the_second_one_writes_its_profile(
    requested: ProfileAsked, level: str
) -> None:
    profiling = profiling_of(session(backend_path="b"), requested, "/t")
    assert profiling is not None
    plain, profiled = fields_of(profiling.plan, "ort-session")
    assert profiled == plain | {
        "context": "1",
        "provider.1": f"profiling_level={level}",
        "provider.2": "profiling_file_path=/t/profile.csv",
    }
    runs = fields_of(profiling.plan, "ort-run")
    assert [fields["context"] for fields in runs] == ["0", "1"] * (ROUNDS + 1)
    assert {fields["repeat"] for fields in runs} == {"1"}
    assert [step.verb for step in profiling.plan.steps][-5:] == [
        *("cleanup", "ort-session-free", "ort-session-free"),
        *("ort-unregister-ep", "ort-env-free"),
    ]


@pytest.mark.parametrize("requested", PROFILES)
def test_a_plan_that_executes_nothing_cannot_be_profiled(requested: ProfileAsked) -> None:
    loads = within_session(HTP, [context_load(0, "a")], [context_free(0)], Settings())
    assert profiling_of(loads, requested, "/t") is None


def ended(verb: str, **data: object) -> StepResult:
    return StepResult(0, verb, begun=True, ended=True, code=0, context=0, data=data)


def test_what_profiling_added_is_the_difference_of_the_medians() -> None:
    transcript = Transcript()
    load = {"type": 100, "unit": 1, "value": 9, "name": "QNN (load binary) time", "depth": 0}
    transcript.steps += [
        ended("context-load", profile_events=[load]),
        ended("execute", graph="g", run_us=[900]),
        *(ended("execute", graph="g", run_us=[time_us]) for time_us in (10, 12, 11, 10, 99)),
        *(
            ended("execute", graph="g", run_us=[time_us], profile_events=[])
            for time_us in (15, 16, 17)
        ),
        ended("execute", graph="g", run_us=[1], profile_events=[], profile_cut=4),
    ]
    profile = read_profile(transcript, b"")
    assert (profile.added_us, profile.cut) == (4, 4)
    assert {name: len(runs) for name, runs in profile.graphs.items()} == {"0.g": 4}
    assert profile.phases == [{"phase": "QNN (load binary) time", "us": 9, "part": False}]
    assert read_profile(Transcript(), b"").added_us is None


def test_the_first_run_of_a_session_is_not_among_those_that_count() -> None:
    transcript = Transcript()
    times = [99, 700, *[10, 13] * ROUNDS]
    transcript.steps += [ended("ort-run", run_us=[time_us]) for time_us in times]
    head, *blocks = CSV.decode().partition("0,BACKEND,1200")
    runs = "".join(blocks) * ROUNDS
    profile = read_profile(transcript, (head + runs).encode())
    assert profile.added_us == 3
    assert [len(placement) for placement in profile.graphs.values()] == [ROUNDS]
    assert {run[0].value for run in profile.graphs["partition 0"]} == {1200}
    # a session of two partitions tells of both each time
    profile = read_profile(transcript, (head * 2 + runs * 2).encode())
    assert [len(placement) for placement in profile.graphs.values()] == [ROUNDS, ROUNDS]
