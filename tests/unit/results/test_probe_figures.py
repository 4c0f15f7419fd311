"""Figures of a process: its sessions, and what they leave. A leak of any size is found, and what
happens once or comes back is none."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.probe.transcript import LogLine, StepResult, Transcript
from harness.results.probe_figures import (
    MOST_GRAPHS,
    ROUNDS_TOGETHER,
    Growth,
    context_estimate,
    graph_figures,
    growth_of,
    loaded_contexts,
    measure,
    ort_figures,
    power_figures,
    power_votes,
    session_growth,
    typical_us,
)
from harness.results.record import whole_numbers

LEVELS = st.integers(min_value=12, max_value=80)
BYTES = st.integers(min_value=0, max_value=1 << 34)

# kB that 40 sessions left, one after the other, on a busy computer; malloc kept what it freed
KEPT_BY_MALLOC = (
    *(54644, 6628, 2924, 2920, 0, 0, 0, 4, 3908, 0, 980, 0, 2924, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    *(-17440, 6700, 2924, 0, 3912, 2924, 0, 0, 156, 4, 1288, 0, 5196, 4, 1144, 4, 0),
)


@given(LEVELS, BYTES, BYTES, st.data())
def test_a_leak_is_found_behind_a_jump(
    rounds: int, leak: int, jump: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(min_value=0, max_value=rounds))
    growth = growth_of([leak * index + (jump if index >= at else 0) for index in range(rounds)])
    # the jump is in one rise at most, and a median of three does not count it
    assert leak <= growth.per_round
    assert growth.per_round == leak or rounds // ROUNDS_TOGETHER % 2
    assert growth.came_back == 0


def voted(verb: str, **answers: object) -> StepResult:
    return StepResult(0, verb, ended=True, code=0, data={"power_votes": answers})


def test_answers_to_votes_for_power() -> None:
    votes = voted("device-create", infrastructure=0, client=0, dcvs=0, rpc_polling_time=1000)
    freed = voted("device-free", dcvs=0, rpc_polling_time=1007, client=0)
    answers = {"infrastructure": 0, "client": 0, "dcvs": 0, "rpc_polling_time": 1000}
    assert power_votes(Transcript(steps=[votes])) == answers
    assert power_votes(Transcript(steps=[votes, freed])) == answers | {"released": 1007}
    odd = StepResult(0, "device-create", data={"power_votes": [1]})
    assert power_votes(Transcript(steps=[odd, voted("device-create", dcvs="x")])) == {}


def logged(*texts: str) -> StepResult:
    lines = [LogLine("error", text, 0) for text in texts]
    return StepResult(0, "ort-session", ended=True, code=0, logs=lines)


NOTHING = logged("<W> Initializing HtpProvider")
ACCEPTED = logged("<I> htpPerfInfrastructureSetPowerConfig done. status 0x0 [a.cc:519 QnnLogging]")
REFUSED = logged("<E> Failed to set powerConfig with error 0x3ef")


@pytest.mark.parametrize(
    ("steps", "voter", "votes", "answer"),
    [
        (
            [voted("device-create", dcvs=0), voted("device-free", dcvs=0)],
            "probe",
            {"dcvs": 0, "released": 0},
            "the library accepted all votes",
        ),
        (
            [voted("device-create", dcvs=0)],
            "probe",
            {"dcvs": 0},
            "the library accepted all votes; its votes ended with the process",
        ),
        (
            [voted("device-create", infrastructure=1000)],
            "probe",
            {"infrastructure": 1000},
            "the library refused infrastructure (1000)",
        ),
        ([StepResult(0, "device-create")], "probe", {}, "the device has no power interface"),
        (
            [NOTHING],
            "ort",
            {},
            "the library logged no refusal, and ort does not say what it answered",
        ),
        ([ACCEPTED], "ort", {"setPowerConfig": 0}, "the library accepted all votes"),
        (
            [ACCEPTED, REFUSED],
            "ort",
            {"setPowerConfig": 1007},
            "the library refused setPowerConfig (1007)",
        ),
    ],
)
def test_what_a_library_answered_to_a_power_profile(
    steps: list[StepResult], voter: str, votes: dict[str, int], answer: str
) -> None:
    figures = {"profile": "burst", "votes_by": voter, "votes": votes, "answer": answer}
    assert power_figures("burst", "ort", Transcript(steps=steps)) == figures


def test_what_malloc_keeps_is_no_leak() -> None:
    growth = growth_of(list(accumulate(KEPT_BY_MALLOC))[8:])
    assert growth.per_round > 64  # it rises in most rounds, and once it falls
    assert growth.per_round - growth.noise < 0


def step(verb: str, **more: Any) -> StepResult:
    return StepResult(0, verb, **({"begun": True, "ended": True, "code": 0} | more))


def rounds(levels: list[int]) -> list[StepResult]:
    steps = [step("ort-load", data={"version": "1.26.0"})]
    for level in levels:
        steps += [
            step("ort-session", duration_us=7),
            step("ort-run", duration_us=5, data={"outputs": [{"max_abs": 0.5, "beyond": 0}]}),
            step("ort-session-free", data={"anonymous_bytes": level}, duration_us=3),
        ]
    return steps


@pytest.mark.parametrize("value", [None, "many", True, -5, 1.5])
def test_memory_that_the_device_does_not_tell(value: object) -> None:
    steps = [step("ort-session"), step("ort-session-free", data={"anonymous_bytes": value})]
    assert session_growth(steps * 30) is None


@pytest.mark.parametrize(
    ("floors", "growth"),
    [
        # rises 900 1200 3000 1200: in the middle 1200, from which they differ by 150
        ([0, 900, 2100, 5100, 6300], Growth(400, 50, 6300, 0)),
        # rises 1000 -600 1200 1200: in the middle 1100, from which they differ by 100
        ([0, 1000, 400, 1600, 2800], Growth(367, 83, 2800, 600)),
        ([3000, 2000, 1000, 0], Growth(-333, 333, -3000, 3000)),
        ([7, 7, 7, 7], Growth(0, 0, 0, 0)),
        ([0, 3, 6], None),
    ],
)
def test_growth_is_that_of_the_lowest_of_each_three(
    floors: list[int], growth: Growth | None
) -> None:
    levels = [level for floor in floors for level in (floor + 5, floor, floor + 9)]
    assert growth_of(levels) == growth
    # rounds that make no three are the first ones
    assert growth_of([-(10**6), 10**6, *levels]) == growth


def loads(*sizes: int | None) -> list[StepResult]:
    return [
        step("context-load", duration_us=300 + index, rss_after_bytes=level)
        for index, level in enumerate(sizes)
    ]


def test_figures_of_contexts_count_what_was_really_done() -> None:
    outputs = [{"max_abs": 0.5, "beyond": 2, "nan": 3}, {"index": 1}, "max_abs", 7]
    steps = [
        step("context-load", duration_us=300, rss_after_bytes=50),
        step("executorch-context", duration_us=310, rss_after_bytes=60),
        step("context-load", code=1002),
        step("context-load-list", data={"contexts": 3}, duration_us=900),
        step("context-load-list", data={"contexts": "many"}),
        step("context-load-list", data={"contexts": 9}, code=1),
        step("execute", duration_us=7, data={"outputs": outputs}),
        step("executorch-run", duration_us=8),
        step("execute", code=6001, duration_us=99, data={"outputs": outputs}),
        step("io-run", data={"run_us": [10, True, "x", 11], "outputs": [{"max_abs": 2}]}),
        step("io-run", data={"run_us": 7, "outputs": [{"max_abs": "x", "nan": "x"}]}),
        step("context-free"),
        step("context-free", error="plan", code=None),
    ]
    figures = measure(Transcript(steps=steps))
    assert figures == {
        "loaded": 5,
        "executed": 4,
        "freed": 1,
        "load_us": [300, 310],
        "execute_us": [7, 8, 10, 11],
        "load_rss_bytes": [50, 60],
        "outputs": {"compared": 3, "max_abs": 2.0, "beyond_tolerance": 2, "nan": 3},
    }
    assert isinstance(figures["outputs"], dict)
    assert type(figures["outputs"]["beyond_tolerance"]) is int
    assert loaded_contexts(steps) == 5


@pytest.mark.parametrize("verb", ["context-free", "execute", "executorch-run"])
def test_any_step_with_a_context_has_figures_even_if_it_failed(verb: str) -> None:
    figures = measure(Transcript(steps=[step(verb, code=1)]))
    assert (figures["loaded"], figures["executed"], figures["freed"]) == (0, 0, 0)
    assert measure(Transcript(steps=[step("noop")])) == measure(Transcript()) == {}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((5,), None), ((5, 6), [5, 6]), ((5, None), None), ((5, 6, 6), [5, 6, 6])],
)
def test_memory_is_told_after_each_of_several_loads(
    sizes: tuple[int | None, ...], expected: list[int] | None
) -> None:
    assert measure(Transcript(steps=loads(*sizes))).get("load_rss_bytes") == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([10, 95], [90, 30], {"start": 10, "peak": 95, "end": 30}),
        ([10, None], [90, None], {"start": 10, "peak": 90, "end": 90}),
        ([10, None], [None, None], {"start": 10, "peak": 10, "end": 10}),
        ([None, 20], [90, 30], None),
        ([None, None], [None, None], None),
    ],
)
def test_memory_of_a_process_is_told_where_its_start_is_known(
    before: list[int | None], after: list[int | None], expected: dict[str, int] | None
) -> None:
    for name in ("rss", "pss"):
        steps = [
            step("noop", **{f"{name}_before_bytes": first, f"{name}_after_bytes": other})
            for first, other in zip(before, after, strict=True)
        ]
        assert measure(Transcript(steps=steps)) == (
            {} if expected is None else {f"{name}_bytes": expected}
        )


def test_the_largest_estimate_of_what_was_refused_is_told() -> None:
    message = "Failed to find available PD for contextId 5 with context size estimate {}"
    logs = [LogLine("error", message.format(size), 1) for size in (70, 90, 80)]
    refused, loaded = step("context-load", code=1002, logs=logs), step("context-load", logs=logs)
    assert context_estimate(Transcript(steps=[loaded, refused])) == [70, 90, 80]
    assert measure(Transcript(steps=[refused]))["refused_estimate_bytes"] == 90
    assert "refused_estimate_bytes" not in measure(Transcript(steps=[loaded]))


def test_figures_of_sessions_are_of_those_that_went_well() -> None:
    strange = [{"ep": 4, "nodes": 3}, {"ep": "QNN", "nodes": True}, 7]
    placement = [{"ep": "CPU", "nodes": 1}, *strange]
    steps = [
        step("ort-load", data={"version": 7}),
        step("ort-load", data={"version": "1.26.0"}),
        step("ort-session", duration_us=7),
        step("ort-session", duration_us=8, code=1),
        step("ort-run", duration_us=5),
        step("ort-run", duration_us=6, code=1),
        step("ort-placement", data={"placement": [{"ep": "QNN", "nodes": 2}]}),
        step("ort-placement", code=None, error="placement", data={"placement": placement}),
        step("ort-placement", ended=False, data={"placement": [{"ep": "QNN", "nodes": 2}]}),
        step("ort-session-free", duration_us=4, code=1, data={"anonymous_bytes": 999}),
        step("ort-session-free", duration_us=3, data={"anonymous_bytes": 130}),
    ]
    assert ort_figures(steps) == {
        "ort_version": "1.26.0",
        "sessions": 1,
        "runs": 1,
        "released": 1,
        "create_us": [7],
        "run_us": [5],
        "release_us": [3],
        "placement": {"CPU": 1},
    }
    assert measure(Transcript(steps=steps)).items() >= ort_figures(steps).items()
    outputs = {"compared": 2, "max_abs": 0.5, "beyond_tolerance": 0}
    assert measure(Transcript(steps=rounds([1, 2])))["outputs"] == outputs


def test_eight_sessions_are_warm_up_and_levels_count_where_none_is_left() -> None:
    assert session_growth(rounds([0] * 8 + [5] * 11)) is None
    assert session_growth(rounds([0] * 8 + [5] * 12)) == Growth(0, 0, 0, 0)
    assert session_growth(rounds([0] * 7 + [900] * 12)) is None
    overlapping = [step("ort-session"), *rounds([7] * 20)]
    assert session_growth(overlapping) is None
    together = [step("ort-session")] * 30 + [
        step("ort-session-free", data={"anonymous_bytes": 9})
    ] * 30
    assert session_growth(together) is None
    failed = [step("ort-session", code=1), *rounds([7] * 20)]
    assert session_growth(failed) == Growth(0, 0, 0, 0)


def test_whole_numbers_are_those_of_a_list() -> None:
    assert whole_numbers([1, True, 2.0, None, 3]) == [1, 3]
    assert whole_numbers("12") == whole_numbers(None) == []


def executed(*times: int, context: int = 0, verb: str = "execute", **data: Any) -> StepResult:
    data_of_rounds = {"run_us": list(times), "runs": len(times), "warmup": 0} | data
    completed = {"begun": True, "ended": True, "code": 0, "duration_us": sum(times)}
    return StepResult(0, verb, context=context, data=data_of_rounds, **completed)


def test_steps_of_one_graph_are_one_line() -> None:
    steps = [
        executed(10, 30, 20, graph="a", warmup=2, first_us=900),
        executed(40, graph="a", first_us=40),
        executed(7, graph="b", first_us=7),
        executed(5, graph="a", context=1, first_us=5),
        StepResult(0, "execute", context=2, begun=True),
    ]
    first, second, third = graph_figures(steps, ["m.bin"], "HTP v73")
    assert first == {
        "graph": "a",
        "context": "m.bin",
        "warmup_count": 2,
        "rounds": 4,
        "first_us": 900,
        "p50_us": 20,
        "p90_us": 40,
        "p99_us": 40,
        "p50_interval_us": [None, None],
        "p90_interval_us": [20, None],
        "p99_interval_us": [30, None],
        "steady": None,
        "throttled_share": None,
        "on": "HTP v73",
    }
    assert (second["graph"], third["graph"], third["context"]) == ("b", "a", "m.bin")


def test_figures_are_those_of_the_steady_state() -> None:
    warming = executed(
        *[900] * 6, *[100, 101] * 100, runs=412, run_every=2, warmup=1, throttled=103
    )
    cut = executed(*[100, 7] * 100, run_every=1, warmup=0, throttled=0)  # every other one counts
    (row,) = graph_figures([warming, cut], ["m.bin"], "HTP v73")
    figures = ("warmup_count", "rounds", "first_us", "p50_us", "p99_us", "throttled_share")
    assert [row[name] for name in figures] == [13, 600, 900, 100, 101, 103 / 612]
    assert typical_us(warming) == 100


def test_a_typical_execution_is_the_median_of_its_rounds() -> None:
    assert typical_us(executed(9000, 10, 12)) == 12
    assert typical_us(executed(9000)) == 9000
    assert typical_us(StepResult(0, "ort-run", duration_us=5)) == 5
    assert typical_us(StepResult(0, "ort-run")) is None


def test_what_a_probe_does_not_say_is_not_made_up() -> None:
    odd = executed(3, verb="ort-run", run_us="x", runs="y", warmup=None, first_us=[])
    (row,) = graph_figures([odd], [], "CPU")
    assert (row["graph"], row["context"], row["rounds"], row["first_us"]) == (None, None, 1, 3)


def test_many_graphs_do_not_fill_a_record() -> None:
    steps = [executed(1, context=index) for index in range(MOST_GRAPHS + 9)]
    assert len(graph_figures(steps, ["m"], "HTP")) == MOST_GRAPHS
