"""Commands of the harness in processes of their own, which end when we do."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Final

from harness.ground.files.bounded_json import parse_json
from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import RUN_GRACE_S, spawn_guarded

ENOUGH_S: Final = 10.0
"""With less time than this nothing is begun."""
# What a bisection may take after its time is over: the run under way, and its reports.
_LAST_RUN_S: Final = 2400.0
_MAX_ANSWER_BYTES: Final = 64 << 20


def ended(
    module: str,
    words: Sequence[str],
    left_s: float,
    *,
    cwd: str | None = None,
    stdout: int | IO[bytes] | None = None,
) -> int | None:
    """Runs a module and waits for its end; its exit code, None if it was ended since time is over.

    What it knows by then is on the disk. Raises InfraError if it cannot be started.
    """
    command = [sys.executable, "-m", module, *words]
    grace_s = 2 * RUN_GRACE_S  # a bisection ends a run of its own meanwhile
    with spawn_guarded(command, cwd=cwd, stdout=stdout, stderr=None, grace_s=grace_s) as process:
        if (code := process.wait(Deadline(left_s))) is None:
            # a run leaves the letters of its cases without an end of their line
            begin, what = ("\n", "the run") if module == "pytest" else ("", words[0])
            sys.stderr.write(f"{begin}nightly: the time is over, and {what} is ended\n")
        return code


def bisection(words: Sequence[str], left_s: float, cwd: str | None) -> tuple[int | None, Any]:
    """Runs a bisection; its exit code, and the JSON that it printed."""
    return answered(words, left_s + _LAST_RUN_S, cwd)


def answered(words: Sequence[str], left_s: float, cwd: str | None) -> tuple[int | None, Any]:
    """Runs a command of ours; its exit code, and the JSON that it printed."""
    with tempfile.TemporaryFile() as output:
        code = ended("harness.tools.cli.main", words, left_s, cwd=cwd, stdout=output)
        output.seek(0)
        try:
            return code, parse_json(output.read(_MAX_ANSWER_BYTES))
        except ValueError:
            return code, None


def answer_of(result: Any) -> str | None:
    """What a bisection came to, of the JSON that it printed (pure)."""
    answer = result.get("answer") if isinstance(result, dict) else None
    return answer["text"] if answer else None


def first_bad_of(result: Any) -> str | None:
    """The version since which it fails, of the JSON that a bisection on one axis printed (pure)."""
    said = result.get("answer") if isinstance(result, dict) else None
    return said.get("first_bad") if said else None
