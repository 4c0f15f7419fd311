"""Runs the store's scripts on a device: look, install, check, evict; one round trip each."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from harness.device.store.eviction import Eviction, Inventory, parse_inventory
from harness.device.store.layout import (
    CLAIM_LASTS_S,
    CONDEMNED_TOUCH,
    FileSet,
    StoreAnswerError,
    StoreView,
    answer,
    look_input,
    parse_install,
    parse_look,
)
from harness.device.store.scripts import ScriptName, script
from harness.device.transport.device import Transport
from harness.device.transport.shell import Completed
from harness.ground.errors import NO_ROOM, DeviceError, DeviceFull, InfraError
from harness.ground.host.deadline import Deadline

_MAX_OUTPUT_BYTES = 32 << 20
_CLEANUP_S = 10.0
_RELEASE_S = 3.0

Received = TypeVar("Received")


class StoreClient:
    """The store below `workdir` of one device.

    Every method raises DeviceError; DeviceRefused, with the script's own words, where the device
    said no.
    """

    def __init__(self, device: Transport, workdir: str) -> None:
        self._device = device
        self._workdir = workdir

    def look(
        self, sets: Sequence[FileSet], claim: str, using: Iterable[str], deadline: Deadline
    ) -> StoreView:
        """Claims what is used, then tells what is there."""
        stdin = look_input(sets, using)
        return self._ask(parse_look, "look", (claim, str(CLAIM_LASTS_S)), stdin, deadline)

    def install(
        self, own: str, touch: str, packed: bytes, deadline: Deadline, what: str
    ) -> dict[str, str]:
        """Takes in what comes by a tar and lies in our folder of .incoming, then makes the sets.

        Answers as `parse_install`.
        """
        return self._ask(parse_install, "install", (own, touch), packed, deadline, what)

    def incoming(self, own: str) -> str:
        """The path of our folder of .incoming."""
        return f"{self._workdir}/store/.incoming/{own}"

    def check(self, entries: Sequence[str], touch: str, deadline: Deadline) -> None:
        """Hashes entries; those that are not what their name says are removed."""
        stdin = "".join(f"{entry}\n" for entry in entries).encode()
        self._ask(answer, "check", (touch,), stdin, deadline)

    def inventory(self, deadline: Deadline) -> Inventory:
        """All that is there, and what of it is used."""
        return self._ask(parse_inventory, "inventory", (str(CLAIM_LASTS_S),), b"", deadline)

    def evict(self, eviction: Eviction, unclaim: Iterable[str], deadline: Deadline) -> list[str]:
        """Removes what nobody uses by now; returns what it removed, as `removed KIND NAME`."""
        arguments = (secrets.token_hex(4), str(CLAIM_LASTS_S), CONDEMNED_TOUCH)
        said = self._ask(answer, "evict", arguments, eviction.text(unclaim), deadline)
        return [line for line in said if line.startswith("removed ")]

    def remove_all(self, deadline: Deadline) -> None:
        """Removes everything, used or not."""
        self._ask(answer, "remove_all", (), b"", deadline)

    def discard(self, own: str) -> None:
        """Removes our folder of .incoming if the device can be reached."""
        path = shlex.quote(self.incoming(own))
        with contextlib.suppress(InfraError):
            self._device.shell(f"rm -rf {path}", timeout_s=_CLEANUP_S)

    def release(self, claim: str, others: str = "") -> None:
        """Takes our claim away, and those called as in `others`, if the device can be reached."""
        folder = shlex.quote(f"{self._workdir}/inuse/")
        with contextlib.suppress(InfraError):
            names = [folder + shlex.quote(claim), *([folder + others] if others else [])]
            self._device.shell(f"rm -f {' '.join(names)}", timeout_s=_RELEASE_S)

    def _ask(
        self,
        parse: Callable[[str], Received],
        name: ScriptName,
        arguments: Sequence[str],
        stdin: bytes,
        deadline: Deadline,
        what: str = "",
    ) -> Received:
        done = self._device.shell(
            f"set -- {shlex.join((self._workdir, *arguments))}\n{script(name)}",
            stdin=stdin,
            timeout_s=deadline.remaining(),
            max_output_bytes=_MAX_OUTPUT_BYTES,
            doing=f"see to its store: {name}",
        )
        try:
            return parse(done.stdout.decode("utf-8", "replace"))
        except StoreAnswerError as error:
            raise self._refused(f"{what}: {error}" if what else str(error), done) from error

    def _refused(self, problem: str, done: Completed) -> DeviceError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        full = [line for line in said if NO_ROOM in line]
        detail = f" ({(full or said)[-1][:300]})" if said else ""
        return DeviceFull.or_refused(f"{problem}{detail}", serial=self._device.serial)
