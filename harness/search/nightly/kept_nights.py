"""The nights that a folder of reports keeps, and which one is at work there."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.ground.errors import ConfigError, InfraError
from harness.ground.errors.schemas import other_schema
from harness.ground.files.whole_file import read_bounded
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
    try:
        with making_folders(reports):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(reports / ".nightly.lock", flags, 0o644), "r+b")
    except OSError as error:
        raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = "another qnn-harness nightly is at work here"
            raise ConfigError(problem, file=reports) from error
        except OSError as error:
            raise InfraError(f"cannot keep a night in {reports}: {error.strerror}") from error
        yield


def nights(reports: Path) -> Iterator[Night]:
    """The nights of a folder, the newest first; what cannot be read is logged."""
    found = ordered(one.parent for one in reports.glob(f"[0-9]*{SUFFIX}/{STATE}"))
    for file in (one / STATE for one in reversed(found)):
        try:
            night = Night.model_validate_json(read_bounded(file, _MAX_BYTES))
            if night.night != file.parent.name:
                raise ValueError(f"it is that of {night.night}")  # it would be kept there
            yield night
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            said = other_schema(first["input"], 1) if where == "schema" else first["msg"]
            _log.warning("%s tells of no night: %s: %s", file, where, said)
        except (OSError, ValueError) as error:
            _log.warning("%s tells of no night: %s", file, error)
