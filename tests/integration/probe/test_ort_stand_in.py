"""ORT in the probe where it goes wrong: refusals, crashes, hangs, wrong outputs, odd answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.diagnosis.verdict import judge
from harness.probe.ort_plan import (
    Provider,
    ort_end,
    ort_env,
    ort_load,
    ort_placement,
    ort_register_ep,
    ort_run,
    ort_session,
    ort_session_free,
)
from harness.probe.plan import Settings, Step
from harness.probe.plan_runner import EXIT_DONE, ProbeRun
from harness.probe.transcript import StepResult
from tests.android.bionic import ProbeBuild
from tests.integration.probe.conftest import ALL_BUILDS, Runner
from tests.stand_in.build import build_ort

EP = "StandIn"
ON_EP = Provider(EP)


@dataclass(frozen=True)
class Stand:
    """The stand-in library, and files for its sessions."""

    library: Path
    folder: Path

    def model(self, behaviour: str) -> str:
        path = self.folder / f"{behaviour}.onnx"
        path.write_text(f"stand-in {behaviour}\n")
        return str(path)

    def floats(self, name: str, *values: float) -> str:
        path = self.folder / name
        np.array(values, "<f4").tofile(path)
        return str(path)


@pytest.fixture(scope="session")
def ort_library(tmp_path_factory: pytest.TempPathFactory, build: ProbeBuild) -> Path:
    return build_ort(tmp_path_factory.mktemp("stand-in-ort"), build.compiler)


@pytest.fixture
def stand(ort_library: Path, tmp_path: Path) -> Stand:
    return Stand(ort_library, tmp_path)


@pytest.fixture
def data(stand: Stand) -> str:
    """A file with an input that fits."""
    return stand.floats("in", 1, 2, 3, 4)


OnStand = Callable[..., ProbeRun]


@pytest.fixture
def on_stand(run: Runner, stand: Stand) -> OnStand:
    """Runs steps between those that open the stand-in and those that let it go."""

    def run_steps(*steps: Step, registered: str = EP, **options: object) -> ProbeRun:
        opened = (ort_load(str(stand.library)), ort_env(), ort_register_ep("/p.so", registered))
        frees = (Step("cleanup"), ort_session_free(0), *ort_end(registered))
        return run(*opened, *steps, *frees, **options)

    return run_steps


def only(completed: ProbeRun, verb: str) -> StepResult:
    (step,) = (step for step in completed.transcript.steps if step.verb == verb)
    return step


@pytest.mark.slow
@ALL_BUILDS
def test_a_session_runs_and_is_released(on_stand: OnStand, stand: Stand, data: str) -> None:
    data_file = stand.folder / "kept"
    completed = on_stand(
        ort_session(0, stand.model("copy"), ON_EP),
        ort_placement(0, whole=EP),
        ort_run(0, inputs=[data], expected=[data], saved=[str(data_file)], repeat=3),
    )
    assert completed.exit_code == EXIT_DONE, completed.transcript.first_failure
    assert data_file.read_bytes() == Path(data).read_bytes()
    assert only(completed, "ort-load").data == {"version": "9.9.9-stand-in", "api_version": 24}
    assert only(completed, "ort-register-ep").data["devices"] == [
        {"ep": EP, "vendor": None, "hardware": "other"}
    ]
    assert only(completed, "ort-placement").data["placement"] == [
        {
            "ep": EP,
            "nodes": 1,
            "subgraphs": 1,
            "operators": ["Copy"],
            "operator_nodes": [{"operator": "Copy", "nodes": 1}],
        }
    ]
    assert only(completed, "ort-run").data["runs"] == 3
    assert judge(completed).outcome == "passed"


@pytest.mark.parametrize("kind", ["crash", "hang"])
@pytest.mark.parametrize(("call", "api"), [("create", "CreateSession"), ("run", "Run")])
def test_what_never_comes_back_names_its_step_and_call(
    on_stand: OnStand, stand: Stand, data: str, kind: str, call: str, api: str
) -> None:
    steps = (ort_session(0, stand.model(f"{kind}-{call}"), ON_EP), ort_run(0, inputs=[data]))
    completed = on_stand(*steps, settings=Settings(deadline_ms=700 if kind == "hang" else 20_000))
    last = completed.transcript.last_begun
    assert last is not None
    assert (last.api, last.unfinished) == (api, True)
    verdict = judge(completed)
    assert verdict.outcome == {"crash": "crashed", "hang": "hung"}[kind]
    assert verdict.error is not None
    assert verdict.error.api == api


def test_a_long_refusal_is_told_whole(on_stand: OnStand, stand: Stand) -> None:
    completed = on_stand(ort_session(0, stand.model("refuse-long"), ON_EP))
    failed = only(completed, "ort-session")
    assert (failed.code, failed.symbol, failed.api) == (11, "ORT_EP_FAIL", "CreateSession")
    error = judge(completed).error
    assert error is not None
    assert (error.code, error.ort and error.ort.code) == (6999, 11)
    assert only(completed, "ort-session-free").skipped


def test_an_odd_refusal_is_still_one(on_stand: OnStand, stand: Stand) -> None:
    failed = only(on_stand(ort_session(0, stand.model("refuse-odd"), ON_EP)), "ort-session")
    assert (failed.code, failed.symbol) == (0xFFFF, None)


def test_a_refused_run_tells_qnns_code(on_stand: OnStand, stand: Stand, data: str) -> None:
    completed = on_stand(
        ort_session(0, stand.model("refuse-run"), ON_EP), ort_run(0, inputs=[data], repeat=5)
    )
    error = judge(completed).error
    assert error is not None
    assert (error.api, error.code, error.symbol) == ("Run", 6999, "QNN_GRAPH_MAX_ERROR")
    assert only(completed, "ort-run").data["runs"] == 1
    assert only(completed, "ort-session-free").ok


def test_causes_are_kept_and_chatter_is_not(on_stand: OnStand, stand: Stand) -> None:
    logs = only(on_stand(ort_session(0, stand.model("logs"), ON_EP)), "ort-session").logs
    assert [(line.level, line.text) for line in logs] == [
        ("error", "  <E> the cause, err 0x3ea [qnn.cc:1 Log]"),
        ("error", ""),
        ("error", "<X> of no known level"),
    ]


@pytest.mark.parametrize(
    ("behaviour", "error", "message"),
    [
        ("half", "placement", "1 of 2 nodes"),
        ("empty", "placement", "0 of 0 nodes"),
        ("unrecorded", None, "it was not recorded"),
    ],
)
def test_nodes_that_are_not_all_on_the_provider(
    on_stand: OnStand, stand: Stand, behaviour: str, error: str | None, message: str
) -> None:
    session_steps = ort_session(0, stand.model(behaviour), ON_EP)
    anywhere = on_stand(session_steps, ort_placement(0))
    assert (anywhere.exit_code == EXIT_DONE) == (error is not None)
    failed = only(on_stand(session_steps, ort_placement(0, whole=EP)), "ort-placement")
    assert failed.error == error
    assert (failed.message or "").startswith(message)


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ("wrong", "mismatch"),
        ("overrun", "guard"),
        *((unbound, "unsupported") for unbound in ("dynamic", "strings", "deep", "sequence")),
    ],
)
def test_what_a_run_is_checked_for(
    on_stand: OnStand, stand: Stand, data: str, behaviour: str, error: str
) -> None:
    completed = on_stand(
        ort_session(0, stand.model(behaviour), ON_EP),
        ort_run(0, inputs=[data], expected=[data], tolerance=0.5),
    )
    assert only(completed, "ort-session").ok
    assert only(completed, "ort-run").error == error


def test_too_many_tensors(on_stand: OnStand, stand: Stand) -> None:
    completed = on_stand(ort_session(0, stand.model("many"), ON_EP))
    assert only(completed, "ort-session").error == "unsupported"
    assert only(completed, "ort-session-free").ok


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ort_run(0), "no such session"),
        (ort_placement(0), "no such session"),
        (ort_env(), "environment already"),
        (Step("ort-session", {"context": "0", "file": "/x", "session.0": "none"}), "key=value"),
    ],
)
def test_plans_that_make_no_sense(on_stand: OnStand, step: Step, message: str) -> None:
    failure = on_stand(step).transcript.first_failure
    assert failure is not None
    assert failure.error == "plan"
    assert message in (failure.message or "")


def test_files_that_do_not_fit_the_model(on_stand: OnStand, stand: Stand, data: str) -> None:
    session_steps = ort_session(0, stand.model("copy"), ON_EP)
    short = stand.floats("short", 1, 2)
    for files, error in (([], "plan"), ([data, data], "plan"), ([short], "size")):
        assert only(on_stand(session_steps, ort_run(0, inputs=files)), "ort-run").error == error


@pytest.mark.parametrize(
    ("provider", "code", "message"),
    [
        (Provider(EP, builtin=True), None, ""),
        (Provider("QNN", builtin=True), 2, "not built in"),
        (Provider(EP, device=1), None, "StandIn has no device of number 1: it has 1"),
        (Provider("Other"), None, "Other has no device of number 0: it has 0"),
    ],
)
def test_providers(
    on_stand: OnStand, stand: Stand, provider: Provider, code: int | None, message: str
) -> None:
    step = only(on_stand(ort_session(0, stand.model("copy"), provider)), "ort-session")
    assert step.ok == (not message)
    assert step.code == (code if message else 0)
    assert message in (step.message or "")


def test_a_refused_option(on_stand: OnStand, stand: Stand) -> None:
    session_steps = ort_session(0, stand.model("copy"), ON_EP, options={"wrong": "this one"})
    step = only(on_stand(session_steps), "ort-session")
    assert (step.api, step.code, step.message) == ("AddSessionConfigEntry", 2, "this one")
    session_steps = ort_session(0, stand.model("copy"), ON_EP, threads=2)
    step = only(on_stand(session_steps), "ort-session")
    assert (step.api, step.code) == ("SetIntraOpNumThreads", 2)


def test_a_plug_in_that_is_refused_or_offers_nothing(on_stand: OnStand) -> None:
    completed = on_stand(registered="refused")
    refused = only(completed, "ort-register-ep")
    assert (refused.code, refused.message) == (1, "no such library")
    assert only(completed, "ort-unregister-ep").skipped
    nothing = only(on_stand(registered="Other"), "ort-register-ep")
    assert nothing.error == "no-device"


@pytest.mark.parametrize("newest", [17, 20, 22, 23])
def test_an_older_ort_is_used_as_far_as_it_goes(run: Runner, stand: Stand, newest: int) -> None:
    completed = run(
        ort_load(str(stand.library)),
        ort_env(),
        ort_session(0, stand.model("copy"), Provider(EP, builtin=True)),
        ort_placement(0, whole=EP),
        Step("cleanup"),
        ort_session_free(0),
        *ort_end(None),
        env={"STAND_IN_API": str(newest)},
    )
    assert completed.exit_code == EXIT_DONE
    assert only(completed, "ort-load").data["api_version"] == newest
    assert "does not tell" in (only(completed, "ort-placement").skipped or "")


def test_an_ort_too_old_for_plug_ins(on_stand: OnStand) -> None:
    step = only(on_stand(env={"STAND_IN_API": "21"}), "ort-register-ep")
    assert step.error == "unsupported"
    assert "takes no plug-in libraries" in (step.message or "")
    step = only(on_stand(env={"STAND_IN_API": "16"}), "ort-load")
    assert (step.error, step.message) == ("symbol", "it has none of the API versions 17 to 24")
