"""QNN's own answers for a DSP: the real arm64 libraries, stub and skel on a simulated board.

What these libraries answer is theirs; of kernel, driver and the DSP's system nothing is measured.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnosis.verdict import judge
from harness.dsp.simulated_dsp import DspLimits, DspPrograms
from harness.experiments.latency import memory_samples
from harness.probe.ort_plan import io_bind, io_release, io_run, memory_sample
from harness.probe.plan import context_load
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard, executes, frees, loads

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]
QNN = "2.51.0"
MakeBoard = Callable[..., DspBoard]


@pytest.fixture
def board(runtime_for: RuntimeFor, tmp_path: Path, programs: DspPrograms) -> MakeBoard:
    """board(limits...): a board with the libraries of one runtime."""

    def make(**limits: int) -> DspBoard:
        runtime = runtime_for(QNN, "linux-arm64")
        libraries = [file.path for file in runtime.files if file.path.name.startswith("libQnn")]
        return DspBoard(libraries, tmp_path / "board", programs, DspLimits(**limits))

    return make


def test_a_context_loads_and_another_archs_does_not(
    board: MakeBoard, context_for: ContextFor
) -> None:
    dsp_board = board()
    fine = dsp_board.run(loads([context_for("tiny", QNN)]), frees(1))
    assert fine.codes("context-load") == fine.codes("device-free") == [0]
    foreign = dsp_board.run(loads([context_for("tiny", QNN, 75)]), frees(1))
    assert foreign.codes("context-load") == [5005]
    assert "Request feature arch with value 75 unsupported" in foreign.logs()
    assert foreign.said == ()


def test_a_graph_of_8_bits_executes_in_registered_memory(
    board: MakeBoard, context_for: ContextFor
) -> None:
    context = context_for("io-heavy-4mb-by-memhandle", QNN)
    outcome = board().run(loads([context]) + executes(0, context, "memhandle"), frees(1))
    assert outcome.codes("io-bind") == outcome.codes("io-run") == [0]
    (output,) = next(
        step.data["outputs"] for step in outcome.run.transcript.steps if step.verb == "io-run"
    )
    assert (output["elements"], output["beyond"]) == (2_000_000, 0)


@pytest.mark.parametrize(
    ("megabytes", "codes"), [((3, 2, 2), [0, 0, 0]), ((2, 3), [0, 5010])], ids=["less", "more"]
)
def test_contexts_share_the_spill_fill_memory_of_the_first_if_it_is_enough(
    board: MakeBoard, context_for: ContextFor, megabytes: tuple[int, ...], codes: list[int]
) -> None:
    contexts = [context_for(f"spill-heavy-{mb}mb-by-spill-fill", QNN) for mb in megabytes]
    most = contexts[0].max_size
    assert most is not None
    shared = [
        context_load(index, str(context.path), options={"spill_fill_group": most})
        for index, context in enumerate(contexts)
    ]
    assert board().run(shared, frees(len(shared))).codes("context-load") == codes


@pytest.mark.nightly
def test_four_domains_hold_54_contexts_each_and_the_217th_finds_none(
    board: MakeBoard, context_for: ContextFor
) -> None:
    outcome = board().run(loads([context_for("io-heavy-56mb", QNN)] * 217), frees(217))
    assert outcome.codes("context-load") == [0] * 216 + [1002]
    assert "Failed to find available PD" in outcome.logs()


@pytest.mark.slow
def test_a_device_with_fewer_sessions_holds_fewer_contexts(
    board: MakeBoard, context_for: ContextFor
) -> None:
    outcome = board(sessions=1).run(loads([context_for("io-heavy-56mb", QNN)] * 55), frees(55))
    assert outcome.codes("context-load")[:54] == [0] * 54
    assert outcome.codes("context-load")[54] not in (0, None)
    assert "no session is left: the device has 1" in {reply.words for reply in outcome.said}


@pytest.mark.slow
def test_contexts_in_a_limit_of_reused_io_execute_with_shared_buffers(
    board: MakeBoard, context_for: ContextFor
) -> None:
    """As 230 in four domains, of which each execution takes a second: 56 in one, which holds 54."""
    context = context_for("io-heavy-56mb-by-memhandle", QNN)
    files = {"inputs": [*map(str, context.inputs)], "expected": [*map(str, context.expected)]}
    steps = [
        step
        for number in range(56)
        for step in (
            context_load(number, str(context.path), options={"reused_io_limit_mb": 4}),
            io_bind(number, "memhandle", share=True, inputs=files["inputs"]),
        )
    ]
    steps += [io_release(55), io_bind(55, "memhandle", share=True, **files)]
    steps += [io_run(0), io_run(55, tolerance=context.tolerance), memory_sample("executed")]
    outcome = board(sessions=1).run(steps, frees(56))
    assert outcome.codes("context-load") == [0] * 56
    first, last = (step for step in outcome.run.transcript.steps if step.verb == "io-run")
    assert first.data["digests"] == last.data["digests"]
    assert last.data["outputs"][0]["beyond"] == 0
    shared = memory_samples(outcome.run.transcript).shared_bytes["executed"]
    assert shared < 56 * 3e6  # with I/O of each 56 * 58e6


@pytest.mark.slow
def test_options_of_a_context_are_taken_or_refused(
    board: MakeBoard, context_for: ContextFor
) -> None:
    context, dsp_board = context_for("io-heavy-4mb", QNN), board()

    def loaded(**options: object) -> list[int | None]:
        load = context_load(0, str(context.path), options=options)
        steps = [load, *executes(0, context, "raw")]
        outcome = dsp_board.run(steps, frees(1))
        return outcome.codes("context-load") + outcome.codes("io-run")

    assert loaded(init_acceleration=1, io_memory_estimation=1) == [0, 0]
    assert loaded(memory_limit_hint_mb=20, persistent_binary=1) == [0, 0]
    assert loaded(concurrent_group=1 << 20)[0] == 1000


@pytest.mark.slow
def test_an_execution_that_is_answered_late_is_as_good(
    board: MakeBoard, context_for: ContextFor
) -> None:
    context = context_for("io-heavy-4mb", QNN)
    steps = loads([context]) + executes(0, context, "raw")
    outcome = board().run(steps, frees(1), script="invoke@16=delay:2000;")
    (run,) = (step for step in outcome.run.transcript.steps if step.verb == "io-run")
    assert run.ok
    assert run.duration_us is not None
    assert run.duration_us >= 2_000_000


# which call of a process's own it is that the DSP is asked under
ASKED = {
    15: "QnnContext_createFromBinary",
    16: "QnnMem_register",
    18: "QnnGraph_execute",
    19: "QnnMem_deRegister",
    21: "QnnContext_free",
}


@pytest.mark.parametrize(
    ("call", "failure"),
    [
        # a hang lasts until its deadline
        pytest.param(
            call,
            how,
            marks=[] if how == "crash" else pytest.mark.slow if call == 18 else pytest.mark.nightly,
        )
        for call in ASKED
        for how in ("crash", "never")
    ],
)
def test_a_crash_or_hang_is_where_it_was(
    board: MakeBoard, context_for: ContextFor, call: int, failure: str
) -> None:
    context = context_for("io-heavy-4mb-by-memhandle", QNN)
    steps = loads([context]) + executes(0, context, "memhandle")
    # nobody waits for the end of a crash, but who loads a context on a busy computer does
    timeout_s = 15 if failure == "never" else 120
    completed = board().run(
        steps, frees(1), script=f"invoke@{call}={failure};", timeout_s=timeout_s
    )
    verdict = judge(completed.run)
    assert verdict.outcome == {"crash": "crashed", "never": "hung"}[failure]
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.context) == (ASKED[call], 0)
