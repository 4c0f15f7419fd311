"""Commands of the harness in processes of their own, which end when we do."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import spawn_guarded
from harness.search.nightly.issues import Issue
from harness.search.nightly.night import Night

ENOUGH_S: Final = 10.0
"""With less time than this nothing is begun."""
# What a bisection may take after its time is over: the run under way, and its reports.
_LAST_RUN_S: Final = 2400.0
_PACK_S: Final = 60.0
_PACKED_BYTES: Final = 256 << 20


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
        if (code := process.wait(Deadline(left_s))) is None:
            # a run leaves the letters of its cases without an end of their line
            begin, what = ("\n", "the run") if module == "pytest" else ("", words[0])
            sys.stderr.write(f"{begin}nightly: the time is over, and {what} is ended\n")
        return code


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


def with_bundles(night: Night, folder: Path, run: Path) -> tuple[Issue, ...]:
    """The issues of a night, in this folder; those seen in its run have bundles of their examples.

    Not where the example is no case of a file, is too large, or cannot be packed in time.
    """
    return tuple(
        _packed(one, night, folder, run)
        if one.state == "open" and one.last_run == night.run
        else one
        for one in night.issues
    )


def _packed(issue: Issue, night: Night, folder: Path, run: Path) -> Issue:
    example, to = issue.example, folder / f"issues/{issue.id}.zip"
    if example is None or not example.bundle or example.bundle_bytes > _PACKED_BYTES:
        return issue
    if not to.exists() and (left_s := night.left(time.time())) >= ENOUGH_S:
        words = [*example.bundle[1:-1], str(run), "--lab", night.lab, "--out", str(to), "--json"]
        answered(words, min(left_s, _PACK_S), cwd=night.folder)
    where = night.named(to) if to.exists() else None
    return issue.model_copy(update={"example": example.model_copy(update={"packed": where})})


def answer_of(result: Any) -> str | None:
    """What a bisection came to, of the JSON that it printed: of several one answer each (pure)."""
    results = result if isinstance(result, list) else [result]
    answers = [one.get("answer") for one in results if isinstance(one, dict)]
    return "; ".join(one["text"] for one in answers if one) or None


def first_bad_of(result: Any) -> str | None:
    """The version since which it fails, of the JSON that a bisection on one axis printed (pure)."""
    said = result.get("answer") if isinstance(result, dict) else None
    return said.get("first_bad") if said else None
