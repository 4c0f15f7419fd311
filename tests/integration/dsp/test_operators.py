"""Operators on the real skel in the emulator and on the x86 simulator: the same, value by value.

Each is compiled once; both get the same inputs, of several seeds. Neither is silicon.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from harness.dsp.simulated_dsp import DspPrograms
from harness.models.builtin_models import Model
from harness.models.generated_models import OPERATORS
from harness.models.session_plan import Context
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step, context_free, context_load, execute
from harness.probe.plan_runner import run_plan_locally
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.dsp.board import DspBoard
from tests.integration.probe.conftest import opening
from tests.needed import HEXAGON, need

pytestmark = [pytest.mark.needs("qemu-aarch64"), pytest.mark.needs("aarch64-linux-gnu-gcc")]
QNN: Final = "2.51.0"
SEEDS: Final = 3
BY_DAY: Final = ("add-8bit", "conv-3x3-8bit", "softmax-16bit", "matmul-16bit", "attention-float")
TOLERANCES: Final = {
    # the last places of half precision, for numbers up to 4 and 2; why is not known
    "hard-swish-float": 2.0**-8,
    "layer-norm-float": 2.0**-10,
    "resize-float": 2.0**-7,
    # with integer instructions only: the x86 simulator rounds otherwise
    "softmax-16bit": 1,
}
"""By how much a value may differ, in raw values; all others are equal."""
Arrays = list[np.ndarray[Any, Any]]


@pytest.fixture
def on_dsp(
    runtime_for: RuntimeFor, tmp_path: Path, programs: DspPrograms
) -> Callable[[Context, Arrays], Arrays]:
    """on_dsp(context, inputs): the outputs of a board with a DSP."""
    need(HEXAGON)

    def run(context: Context, inputs: Arrays) -> Arrays:
        files = runtime_for(QNN, "linux-arm64").files
        libraries = [file.path for file in files if file.path.name.startswith("libQnn")]
        steps, saved = _executions(context, inputs, tmp_path, "dsp")
        board = DspBoard(libraries, tmp_path / "board", programs)
        outcome = board.run(steps, [context_free(0)])
        assert outcome.run.transcript.first_failure is None, outcome.logs()
        return _outputs(context, saved)

    return run


@pytest.fixture
def on_x86(
    runtime_for: RuntimeFor, tmp_path: Path, user_cache: Path
) -> Callable[[Context, Arrays], Arrays]:
    """on_x86(context, inputs): the outputs of the simulator."""

    def run(context: Context, inputs: Arrays) -> Arrays:
        steps, saved = _executions(context, inputs, tmp_path, "x86")
        opened, env = opening(runtime_for(QNN))
        probe = ProbeBuilder(user_cache / "probe").build()
        completed = run_plan_locally(probe, Plan((*opened, *steps)), env=env, timeout_s=100)
        assert completed.transcript.first_failure is None, completed.transcript.first_failure
        return _outputs(context, saved)

    return run


def _executions(
    context: Context, inputs: Arrays, folder: Path, side: str
) -> tuple[list[Step], list[Path]]:
    """Steps that load a context and execute it with each input, and the files of the outputs."""
    steps = [context_load(0, str(context.path))]
    outputs = [folder / f"{side}-{seed}.raw" for seed in range(len(inputs))]
    for array, output in zip(inputs, outputs, strict=True):
        file = output.with_suffix(".in")
        array.tofile(file)
        steps.append(execute(0, inputs=[str(file)], saved=[str(output)]))
    return steps, outputs


def _outputs(context: Context, files: list[Path]) -> Arrays:
    assert isinstance(context.source, Model)
    return [np.fromfile(file, context.source.output_type).astype("<f8") for file in files]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in BY_DAY else pytest.mark.nightly) for name in OPERATORS],
)
def test_an_operator_gives_what_the_simulator_gives(
    name: str,
    context_for: ContextFor,
    on_dsp: Callable[[Context, Arrays], Arrays],
    on_x86: Callable[[Context, Arrays], Arrays],
    show_figures: Callable[..., None],
) -> None:
    context = context_for(name, QNN)
    inputs = [Model(name, variant=seed).inputs()["x"] for seed in range(SEEDS)]
    got, expected = on_dsp(context, inputs), on_x86(context, inputs)
    apart = np.concatenate([np.abs(a - b) for a, b in zip(got, expected, strict=True)])
    assert len(np.unique(np.concatenate(got))) > 4, "outputs that could hardly be wrong"
    show_figures(name, differ=int((apart > 0).sum()), of=apart.size, most=apart.max())
    assert apart.max() <= TOLERANCES.get(name, 0)
