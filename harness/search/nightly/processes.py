"""Commands of the harness in processes of their own, which end when we do."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Final

from harness.ground import Deadline, spawn_guarded

ENOUGH_S: Final = 10.0
"""With less time than this nothing is begun."""
# What a bisection may take after its time is over: the run under way, and its reports.
_LAST_RUN_S: Final = 2400.0


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
    with spawn_guarded(command, cwd=cwd, stdout=stdout, stderr=None) as process:
        return process.wait(Deadline(left_s))


def bisection(
    words: Sequence[str], left_s: float, kept: bool, cwd: str | None = None
) -> tuple[int | None, Any]:
    """Runs a bisection; its exit code, and the JSON that it printed if that is `kept`."""
    return answered(words, left_s + _LAST_RUN_S, kept, cwd)


def answered(
    words: Sequence[str], left_s: float, kept: bool = True, cwd: str | None = None
) -> tuple[int | None, Any]:
    """Runs a command of ours; its exit code, and the JSON that it printed if that is `kept`."""
    with tempfile.TemporaryFile() as output:
        stdout = output if kept else None
        code = ended("harness.tools.cli.main", words, left_s, cwd=cwd, stdout=stdout)
        output.seek(0)
        try:
            return code, json.loads(output.read())
        except ValueError:
            return code, None
