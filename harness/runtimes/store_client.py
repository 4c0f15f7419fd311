"""Runs the store's scripts on a device: look, place, check, evict; one round trip each."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice, Completed
from harness.errors import DeviceError, DeviceRefused, InfraError
from harness.runtimes import store_scripts, store_upkeep
from harness.runtimes.device_store import (
    CONDEMNED_TOUCH,
    MARK_LASTS_S,
    FileSet,
    Placed,
    StoreAnswerError,
    StoreView,
    answer,
    look_input,
    parse_look,
    parse_place,
)
from harness.runtimes.eviction import Eviction, Inventory, parse_inventory

_MAX_OUTPUT_BYTES = 32 << 20
_CLEANUP_S = 10.0
_RELEASE_S = 3.0

Answer = TypeVar("Answer")


class StoreClient:
    """The store below `workdir` of one device.

    Every method raises DeviceError; DeviceRefused, with the script's own words, where the device
    said no.
    """

    def __init__(self, device: AdbDevice, workdir: str) -> None:
        self._device = device
        self._workdir = workdir

    def look(
        self, sets: Sequence[FileSet], mark: str, using: Iterable[str], deadline: Deadline
    ) -> StoreView:
        """Marks what is used, then tells what is there."""
        stdin = look_input(sets, using)
        arguments = (mark, str(MARK_LASTS_S))
        return self._ask(parse_look, store_scripts.LOOK_SCRIPT, arguments, stdin, deadline)

    def place(
        self,
        own: str,
        touch: str,
        packed: bytes | None,
        deadline: Deadline,
        what: str,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Placed:
        """Takes in what comes to our folder of .incoming, and in a tar, and makes the sets.

        `on_output` is called every second or so while it waits for files.
        """
        arguments = (own, touch, "files" if packed is None else "tar")
        script = store_scripts.PLACE_SCRIPT
        return self._ask(parse_place, script, arguments, packed or b"", deadline, what, on_output)

    def incoming(self, own: str) -> str:
        """The path of our folder of .incoming."""
        return f"{self._workdir}/store/.incoming/{own}"

    def check(self, entries: Sequence[str], touch: str, deadline: Deadline) -> None:
        """Hashes entries; those that are not what their name says are removed."""
        stdin = "".join(f"{entry}\n" for entry in entries).encode()
        self._ask(answer, store_upkeep.CHECK_SCRIPT, (touch,), stdin, deadline)

    def inventory(self, deadline: Deadline) -> Inventory:
        """All that is there, and what of it is used."""
        script = store_upkeep.INVENTORY_SCRIPT
        return self._ask(parse_inventory, script, (str(MARK_LASTS_S),), b"", deadline)

    def evict(self, eviction: Eviction, unmark: Iterable[str], deadline: Deadline) -> list[str]:
        """Removes what nobody began to use meanwhile; what was, as `removed KIND NAME`."""
        arguments = (secrets.token_hex(4), str(MARK_LASTS_S), CONDEMNED_TOUCH)
        script = store_upkeep.EVICT_SCRIPT
        said = self._ask(answer, script, arguments, eviction.text(unmark), deadline)
        return [line for line in said if line.startswith("removed ")]

    def remove_all(self, deadline: Deadline) -> None:
        """Removes everything, used or not."""
        self._ask(answer, store_upkeep.REMOVE_ALL_SCRIPT, (), b"", deadline)

    def discard(self, own: str) -> None:
        """Removes our folder of .incoming if the device can be reached."""
        path = shlex.quote(self.incoming(own))
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -rf {path}", timeout_s=_CLEANUP_S)

    def release(self, mark: str) -> None:
        """Takes our mark away if the device can be reached at once."""
        path = shlex.quote(f"{self._workdir}/inuse/{mark}")
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -f {path}", timeout_s=_RELEASE_S)

    def _ask(
        self,
        parse: Callable[[str], Answer],
        script: str,
        arguments: Sequence[str],
        stdin: bytes,
        deadline: Deadline,
        what: str = "",
        on_output: Callable[[bytes], None] | None = None,
    ) -> Answer:
        quoted = shlex.join((self._workdir, *arguments))
        done = self._device.shell(
            f"set -- {quoted}\n{script}",
            stdin=stdin,
            timeout_s=deadline.remaining(),
            on_stdout=on_output,
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )
        try:
            return parse(done.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(f"{what}: {error}" if what else str(error), done) from error

    def _refused(self, problem: str, done: Completed) -> DeviceError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        full = [line for line in said if "No space left on device" in line]
        detail = f" ({(full or said)[-1][:300]})" if said else ""
        return DeviceRefused(f"{problem}{detail}", serial=self._device.serial)
