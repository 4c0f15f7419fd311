"""Devices that take no cases until they are well again, remembered from run to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from harness.device.lab.lease_files import device_file
from harness.ground.errors import InfraError
from harness.ground.files.cache import QUARANTINE_VARIABLE
from harness.ground.files.whole_file import read_json, write_json

_MAX_BYTES = 64 << 10
_MAX_CHARS = 2000


Until = Literal["healed", "answers"]


@dataclass(frozen=True)
class Quarantined:
    """Since when (RFC 3339, UTC) a device takes no cases, and why.

    `until` is what ends it: a check that finds the device well, or for one that was only out of
    reach, that it answers again.
    """

    since: str
    why: str
    until: Until = "healed"

    def end(self, name: str) -> str:
        """What ends it, for a person who knows the device as `name`."""
        if self.until == "answers":
            return f"{name} is used again as soon as it answers"
        return f"When it is mended: qnn-harness devices heal {name}"


class Quarantine:
    """A folder with one small file per device; `device` is what makes a device unique."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, device: str) -> Quarantined | None:
        """The entry of a device, None if it has none. A damaged one still counts as one."""
        try:
            said = read_json(self._file(device), _MAX_BYTES)
            since, why = str(said["since"])[:40], str(said["why"])[:_MAX_CHARS]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._problem("read", error) from error
        except (ValueError, TypeError, KeyError):
            return Quarantined("an unknown time", "the entry cannot be read")
        return Quarantined(since, why, "answers" if said.get("until") == "answers" else "healed")

    def put(self, device: str, why: str, *, until: Until = "healed") -> Quarantined:
        """Writes an entry. Raises InfraError if that is impossible."""
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry, file = Quarantined(since, why[:_MAX_CHARS], until), self._file(device)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(file, {"device": device, **asdict(entry)})
        except OSError as error:
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
