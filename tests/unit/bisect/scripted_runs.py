"""Runs whose outcome a table says: real run folders, with no device behind them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.bisect.bad_condition import Point
from harness.bisect.folder import BisectFolder
from harness.bisect.search import AxisSpec, CornerSpec, Task
from harness.bisect.search_loop import PROBLEM, RunEnd, Watcher, read_run
from harness.bisect.version_search import Bisection
from harness.core.errors import ConfigError, HarnessError, InfraError, VersionError
from harness.core.matrix_axes import AXES, AxisName
from harness.diagnosis.error_record import ErrorRecord
from harness.plugin.problem_file import Problem, write_problem
from harness.report.report_files import finish
from harness.results.record import CaseRecord, DeviceRecord
from harness.results.run_folder import OUTPUTS, RunFolder

CASE = "suites/test_a.py::test_b[sim-htp-2.51.0-tiny]"
NO_RECORD = {
    "refused": 2,
    "wrong": 2,
    "interrupted": 2,
    "usage": 4,
    "nothing": 5,
    "lab": 3,
    "late": None,
}
"""Runs that end without a record, and pytest's exit code then."""
PROBLEMS: dict[str, HarnessError] = {
    "refused": VersionError("it is so", field="--qnn"),
    "wrong": ConfigError("it is so", file="devices.yaml", line=2),
    "lab": InfraError("it is so"),
}


def record(
    outcome: str,
    *,
    device: str = "sim",
    value: float = 1.0,
    ort: str | None = "1",
    by: str | None = "2.47.0",
    cause: str = "infra",
) -> CaseRecord:
    """The record of a case that ended so."""
    bad = outcome in ("failed", "crashed", "hung", "error")
    code = {"failed": 1002}.get(outcome)
    message = f"bad at step <script> | {outcome}"
    return CaseRecord.model_validate(
        {
            "run": "r",
            "case": CASE,
            "test": CASE,
            "placement": None,
            "suite": "a",
            "axes": {"ort": ort},
            "device": DeviceRecord(  # type: ignore[call-arg]
                name=device, serial=None, soc=None, target=None, simulated=True
            ),
            "runtime": {
                "qnn": "2.51.0",
                "build_id": "2.51.0.260929181845",
                "source": "pypi",
                "contexts_by": by,
            },
            "outcome": outcome,
            "cause": (cause if outcome == "error" else "target") if bad else None,
            "error": ErrorRecord.of(api="call", code=code, message=message) if bad else None,
            "measurements": {"took_us": value, "took_s": value / 1e6},
            "started": datetime(2026, 11, 21, tzinfo=UTC),
            "duration_s": 0.1,
            "logs": ["logs/a/probe.plan"],
        }
    )


@dataclass
class ScriptedRuns:
    """A runner: `outcome_at` gives the outcome of a case at a place, or a key of NO_RECORD.

    `dies` is called at each moment at which the process could be killed.
    """

    outcome_at: Callable[[Point, str], str]
    axes: tuple[AxisName, ...] = ("qnn",)
    value: Callable[[Point], float] = lambda point: 1.0
    output: Callable[[Point], bytes] | None = None
    context: str = "00"
    ort: str | None = "1"
    by: str | None = "2.47.0"
    dies: Callable[[str], None] = lambda moment: None
    points: list[Point] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    sleeps: Callable[[float], None] = lambda seconds: None

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.sleeps(seconds)

    def __call__(self, arguments: list[str], reports: Path, cwd: Path, timeout_s: float) -> RunEnd:
        options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
        point = tuple(options[str(AXES[axis].option)] for axis in self.axes)
        device = options["--qnn-device"].split(",")[0]
        self.dies("before")
        self.points.append(point)
        self.devices.append(device)
        reports.mkdir(parents=True)
        outcome = self.outcome_at(point, device)
        if outcome in NO_RECORD:
            (reports / "output.txt").write_text("error: it is so\n")
            if outcome in PROBLEMS:
                write_problem(reports / PROBLEM, Problem.of(PROBLEMS[outcome]))
            return read_run(reports, NO_RECORD[outcome], 1.0)
        folder = RunFolder.create(reports, command=[], lab={}, devices=[])
        self.dies("within")
        told_of = record(outcome, device=device, value=self.value(point), ort=self.ort, by=self.by)
        if self.output is not None and outcome == "passed":
            told_of = told_of.model_copy(update={"measurements": self.kept_outputs(folder, point)})
        folder.journal.append(told_of)
        finish(folder, exit_code=0)
        self.dies("after")
        return read_run(reports, 0, 1.0)

    def kept_outputs(self, folder: RunFolder, point: Point) -> dict[str, object]:
        """Return the measurements of a case that keeps an output of one byte."""
        content = self.output(point)
        digest = f"{content[0]:016x}-1"
        (folder.path / OUTPUTS).mkdir()
        (folder.path / OUTPUTS / f"{digest}.raw").write_bytes(content)
        output = {"name": "y", "data_type": "ufixed8", "scale": None, "digest": digest}
        return {"kept_outputs": {"a.bin": {"sha256": self.context, "outputs": [output]}}}


class Silent(Watcher):
    """Keeps what was remarked."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def on_note(self, text: str) -> None:
        self.remarks.append(text)


def new_bisection(
    folder: Path,
    spec: AxisSpec | CornerSpec,
    runs: ScriptedRuns,
    *,
    stop_at: float | None = None,
    **more: Any,
) -> Bisection:
    """A bisection of its own; `more` are fields of the task."""
    fields = {
        "search": spec,
        "case": CASE,
        "devices": ("sim",),
        "target": "linux-x64",
        "backend": "htp",
        "lab": folder / "devices.yaml",
        "folder": folder,
    }
    task = Task.model_validate(fields | more)
    runs.axes = task.axes
    state = BisectFolder.create(folder, task)
    return Bisection(state, Silent(), run=runs, stop_at=stop_at, sleep=runs.sleep)


@contextmanager
def reopened(bisection: Bisection, runs: ScriptedRuns) -> Iterator[Bisection]:
    """The same bisection as another process finds it on the disk."""
    bisection.folder.close()
    state = BisectFolder.open(bisection.folder.path)
    state.lock()
    try:
        yield Bisection(state, Silent(), run=runs, sleep=runs.sleep)
    finally:
        state.close()
