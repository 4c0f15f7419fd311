"""Single calls with arguments of one's own: a graph built by hand, and what is no argument."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.probe import plan
from harness.probe.ort_plan import APP_READ, APP_WRITE, call, operation, tensor
from harness.probe.plan import Step
from harness.probe.plan_runner import EXIT_DONE, ProbeRun
from harness.runtimes.runtime import Runtime
from tests.integration.probe.conftest import Runner, opening

BYTES = 8 * 8 * 4 * 4
BUILD = (
    call("QnnContext_create", "backend", "device", 0, "&ctx"),
    call("QnnGraph_create", "ctx", "'g'", 0, "&graph"),
    call("QnnTensor_createGraphTensor", "graph", "tin=" + tensor("in", APP_WRITE)),
    call("QnnTensor_createGraphTensor", "graph", "tout=" + tensor("out", APP_READ)),
    call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout")),
    call("QnnGraph_finalize", "graph", 0, 0),
)

RuntimeFor = Callable[[str], Runtime]


@pytest.fixture
def opened(run: Runner, runtime_for: RuntimeFor) -> Callable[..., ProbeRun]:
    def with_backend(*steps: Step, version: str = "2.51.0") -> ProbeRun:
        opened, env = opening(runtime_for(version))
        return run(*opened, *steps, env=env)

    return with_backend


@pytest.mark.parametrize("version", ["2.47.0", "2.51.0"])
def test_a_graph_by_hand_runs_and_its_binary_is_a_context(
    opened: Callable[..., ProbeRun], tmp_path: Path, version: str
) -> None:
    binary, inputs = tmp_path / "context.bin", tmp_path / "in.raw"
    inputs.write_bytes(bytes(BYTES))
    execute = call(
        "QnnGraph_execute",
        "graph",
        tensor("in", APP_WRITE, number="tin.1", data=f"?{BYTES}", size=BYTES),
        1,
        "result=" + tensor("out", APP_READ, number="tout.1", data=f"?{BYTES}", size=BYTES),
        1,
        0,
        0,
    )
    get = ("ctx", "data=?0x100000", "size", "&done")
    completed = opened(
        *BUILD,
        execute,
        call("QnnContext_getBinarySize", "ctx", "&size"),
        call("QnnContext_getBinary", *get, save=str(binary)),
        plan.context_load(0, str(binary)),
        plan.execute(0, inputs=[str(inputs)], expected=[str(inputs)]),
        # the same file by hand
        call(
            "QnnContext_createFromBinary",
            *("backend", "device", 0, "@file", "#file", "&again", 0),
            file=str(binary),
        ),
        version=version,
    )
    assert completed.exit_code == EXIT_DONE, (completed.transcript.first_failure, completed.stderr)
    called = [step.api for step in completed.transcript.steps if step.verb == "call"]
    assert called[:2] == ["QnnContext_create", "QnnGraph_create"]


def test_the_code_is_the_library_s_and_its_lines_are_kept(opened: Callable[..., ProbeRun]) -> None:
    completed = opened(*BUILD[:5], call("QnnContext_getBinarySize", "ctx", "&size"))
    failure = completed.transcript.first_failure
    assert failure is not None
    assert (failure.api, failure.code) == ("QnnContext_getBinarySize", 5003)
    assert failure.symbol == "QNN_CONTEXT_ERROR_NOT_FINALIZED"
    assert any("was not finalized" in line.text for line in failure.logs)


WRONG = (
    "-1",
    "1 2",
    "'open",
    "[1 2",
    "[1 [2]",
    "?0",
    "?9999999999",
    "@other",
    "&",
    "A",
    "a.",
    "x.3",
)
LONG = (" ", "[" * 2000, f"[{'1 ' * 65}]", "n" * 40)


@pytest.mark.parametrize("argument", [*WRONG, *LONG], ids=range(len(WRONG) + len(LONG)))
def test_what_is_no_argument(opened: Callable[..., ProbeRun], argument: str) -> None:
    completed = opened(call("QnnBackend_free", argument))
    failure = completed.transcript.first_failure
    assert failure is not None, completed.stderr
    assert failure.error == "plan", completed.stderr
    assert "not an argument" in (failure.message or "")


@pytest.mark.slow
def test_what_is_not_there_to_be_called(run: Runner) -> None:
    failure = run(call("QnnBackend_free", 0)).transcript.first_failure
    assert failure is not None
    assert failure.error == "plan"
