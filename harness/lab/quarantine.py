"""Devices that take no cases until they are well again, remembered from run to run."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.cache import QUARANTINE_VARIABLE
from harness.errors import InfraError
from harness.lab.holder import device_file

_MAX_BYTES = 64 << 10
_MAX_CHARS = 2000


@dataclass(frozen=True)
class Quarantined:
    """Since when (RFC 3339, UTC) a device takes no cases, and why."""

    since: str
    why: str


class Quarantine:
    """A folder with one small file per device; `device` is what makes a device unique."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, device: str) -> Quarantined | None:
        """The entry of a device, None if it has none. A damaged one still counts as one."""
        try:
            with self._file(device).open("rb") as stream:
                content = stream.read(_MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._problem("read", error) from error
        try:
            said = json.loads(content)
            since, why = str(said["since"])[:40], str(said["why"])[:_MAX_CHARS]
        except (ValueError, TypeError, KeyError, RecursionError):
            return Quarantined("an unknown time", "the entry cannot be read")
        return Quarantined(since, why)

    def put(self, device: str, why: str) -> Quarantined:
        """Writes an entry. Raises InfraError if that is impossible."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry, file = Quarantined(since, why[:_MAX_CHARS]), self._file(device)
        beside = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps({"device": device, **asdict(entry)}) + "\n")
            os.replace(beside, file)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise self._problem("write", error) from error
        return entry

    def lift(self, device: str) -> bool:
        """Removes a device's entry; whether there was one."""
        try:
            self._file(device).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._problem("remove", error) from error
        return True

    def _problem(self, what: str, error: OSError) -> InfraError:
        return InfraError(
            f"cannot {what} which devices are in quarantine in {self._folder}: {error.strerror}; "
            f"remove what is there, or set {QUARANTINE_VARIABLE} to a folder that can be written"
        )

    def _file(self, device: str) -> Path:
        return self._folder / f"{device_file(device)}.json"
