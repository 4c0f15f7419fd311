"""Messages of a run that a bisection passes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bisect.loop import _wait_for_end, with_earlier_options
from harness.core.deadline import Deadline
from tests.logged import Logged
from tests.unit.history.runs import attempt, run_folder

WAITS = b"warning: waiting up to 600 s for device phone: held by ann\n"


class MockProcess:
    """One that writes each of these pieces while it is waited for, and then ends with 0."""

    def __init__(self, output: Path, pieces: list[bytes]) -> None:
        self._output, self._pieces = output, pieces
        output.touch()

    def wait(self, deadline: Deadline) -> int | None:
        if not self._pieces:
            return 0
        with self._output.open("ab") as stream:
            stream.write(self._pieces.pop(0))
        return None


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([WAITS], 1),
        ([WAITS[:20], WAITS[20:]], 1),
        ([b"10 %\r20 %\r30 %\n" + WAITS], 1),
        ([WAITS + b"half a line", b"\n" + WAITS], 2),
        ([b"no " + WAITS], 0),
    ],
)
def test_each_whole_line_that_tells_of_waiting_is_passed_on_once(
    tmp_path: Path, logged: Logged, pieces: list[bytes], expected: int
) -> None:
    process = MockProcess(tmp_path / "output.txt", pieces)
    assert _wait_for_end(process, tmp_path / "output.txt", 60.0) == 0  # type: ignore[arg-type]
    text = "waiting up to 600 s for device phone: held by ann"
    assert logged.warnings == [text] * expected


@pytest.mark.parametrize(("left_s", "code"), [(3.0, None), (4.0, 0)])
def test_what_is_spent_with_waiting_for_a_device_does_not_count(
    tmp_path: Path, left_s: float, code: int | None
) -> None:
    acquired = b"warning: no longer waiting for device phone, after 4 s\n"
    process = MockProcess(tmp_path / "output.txt", [WAITS, b"", b"", b"", acquired, b"", b""])
    assert _wait_for_end(process, tmp_path / "output.txt", left_s) == code  # type: ignore[arg-type]


def test_a_case_of_a_file_is_asked_what_it_was_when_it_failed(tmp_path: Path) -> None:
    case = "m.onnx::test_contexts[a]"
    failed = attempt("a failed id=x").model_copy(update={"case": case, "test": case})
    command = ("qnn-harness", "run", "m.onnx", "--inputs", "in", "--max-error=1")
    run_folder(tmp_path, failed, command=command)
    passed = failed.model_copy(update={"outcome": "passed", "error": None, "cause": None})
    run_folder(tmp_path, passed, command=command[:3])
    words = with_earlier_options(case, tmp_path, ("-x",))
    assert words == ("-x", "--qnn-contexts-inputs=in", "--qnn-max-error=1")
    named = ("--contexts-inputs=other",)
    assert with_earlier_options(case, tmp_path, named) == named, "what is named stands alone"
    assert with_earlier_options("suites/test_a.py::test_a[x]", tmp_path, ()) == ()
