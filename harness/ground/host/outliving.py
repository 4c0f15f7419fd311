"""Commands that finish even if we end meanwhile: power is not left half switched."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from harness.ground.errors import InfraError

_TAIL_BYTES = 2000


def run_outliving(
    command: Sequence[str],
    *,
    what: str,
    within_s: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a command in a session of its own, ended only after `within_s`.

    Raises InfraError that calls it `what` if it does not start, not end, or not end with 0, with
    the last line that it printed.
    """
    with tempfile.TemporaryFile() as said:
        try:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=environment,
            )
        except OSError as error:
            raise InfraError(f"{what} does not start: {error}") from error
        try:
            code = started.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
            raise InfraError(f"{what} took more than {within_s:g} s") from None
        said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL_BYTES))
        why = said.read().decode("utf-8", "replace").strip()
    if code:
        raise InfraError(f"{what} ended with {code}: {why.rpartition(chr(10))[2]}")
