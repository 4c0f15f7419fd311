"""The nights that a folder of reports keeps, and which one is at work there."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError, InfraError
from harness.ground.files.bounded_json import parse_model, problem_in
from harness.ground.files.whole_file import read_bounded
from harness.ground.host.platform import locking_process
from harness.search.nightly.night import Night
from harness.verdict.results.run_folder import making_folders
from harness.verdict.results.run_numbers import ordered

STATE: Final = "nightly.json"
SUFFIX: Final = "-nightly"
_MAX_BYTES: Final = 64 << 20
_log = logging.getLogger(__name__)


@contextlib.contextmanager
def held(reports: Path) -> Iterator[None]:
    """Keeps other nights away from a folder of reports. Raises ConfigError if one is at it."""
    path = reports / ".nightly.lock"
    try:
        with making_folders(reports):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(path, flags, 0o644), "r+b")
    except OSError as error:
        raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = f"a night is still run here by {locking_process(path)}"
            raise ConfigError(problem, file=reports) from error
        except OSError as error:
            raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
        yield


def nights(reports: Path) -> Iterator[Night]:
    """The nights of a folder, the newest first; what cannot be read is logged."""
    found = ordered(one.parent for one in reports.glob(f"[0-9]*{SUFFIX}/{STATE}"))
    for file in (one / STATE for one in reversed(found)):
        try:
            night = parse_model(Night, read_bounded(file, _MAX_BYTES))
            if night.night != file.parent.name:
                raise ValueError(f"it is that of {night.night}")  # it would be kept there
            yield night
        except (OSError, ValueError) as error:
            why = problem_in(error) if isinstance(error, ValueError) else error
            _log.warning("%s tells of no night: %s", file, why)
