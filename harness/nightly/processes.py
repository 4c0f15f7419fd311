"""Steps of a night as processes with the time that is left."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Final

from harness.core.bounded_json import parse_json
from harness.core.deadline import Deadline
from harness.core.guard import RUN_GRACE_S, spawn_guarded

MIN_STEP_S: Final = 10.0
"""With less time than this nothing is started."""
_MAX_ANSWER_BYTES: Final = 64 << 20


def run_module(
    module: str,
    words: Sequence[str],
    left_s: float,
    *,
    cwd: str | None = None,
    stdout: int | IO[bytes] | None = None,
) -> int | None:
    """Run a module, and return its exit code; None if it was ended because the time was over.

    Its results up to then are on the disk. Raises InfraError if it cannot be started.
    """
    command = [sys.executable, "-m", module, *words]
    grace_s = 2 * RUN_GRACE_S  # a bisection ends its own run first
    with spawn_guarded(command, cwd=cwd, stdout=stdout, stderr=None, grace_s=grace_s) as process:
        if (code := process.wait(Deadline(left_s))) is None:
            # pytest's progress letters have no line end yet
            begin, name = ("\n", "the run") if module == "pytest" else ("", words[0])
            sys.stderr.write(f"{begin}nightly: the time is over; ending {name}\n")
        return code


def run_command(words: Sequence[str], left_s: float, cwd: str | None) -> tuple[int | None, Any]:
    """Run a command of ours; return its exit code, and the JSON that it printed."""
    with tempfile.TemporaryFile() as output:
        code = run_module("harness.cli.main", words, left_s, cwd=cwd, stdout=output)
        output.seek(0)
        try:
            return code, parse_json(output.read(_MAX_ANSWER_BYTES))
        except ValueError:
            return code, None


def read_answer(result: Any) -> str | None:
    """Return the answer of a bisection's JSON."""
    answer = (result.get("answer") if isinstance(result, dict) else None) or {}
    text = answer.get("text")
    return text if isinstance(text, str) else None
