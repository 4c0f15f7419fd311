"""Sends what a device lacks while a script there already checks and takes in what has come."""

from __future__ import annotations

import threading
from collections.abc import Callable

from harness.adb.deadline import Deadline
from harness.adb.device import AdbDevice, PushItem
from harness.errors import DeviceRefused, InternalError
from harness.runtimes.device_store import Placed
from harness.runtimes.parcel import ALL_PUSHED, Parcel, stored_mode
from harness.runtimes.store_client import StoreClient

_END_S = 3.0


class Sender:
    """Sends to the store of one device."""

    def __init__(self, device: AdbDevice, store: StoreClient) -> None:
        self._device = device
        self._store = store

    def send(
        self,
        own: str,
        touch: str,
        parcel: Parcel,
        packed: bytes | None,
        deadline: Deadline,
        what: str,
    ) -> Placed:
        """Pushes a parcel into our folder `own` of .incoming, and makes its sets.

        With `packed` (the parcel's archive) the script runs from the beginning and hashes each
        file as soon as the next one comes, so that hashing costs next to no time of its own.
        Without it the device has no tar: everything is pushed first. Raises DeviceError.
        """
        folder = self._store.incoming(own)
        items = [
            PushItem(file.source, f"{folder}/{name}", stored_mode(name))
            for name, file in parcel.alone.items()
        ]
        if packed is None:
            items += [PushItem(note, f"{folder}/{name}") for name, note in parcel.notes.items()]
            self._device.push(items, timeout_s=deadline.remaining())
        if packed is None or not items:
            return self._store.place(own, touch, packed, deadline, what)
        items.append(PushItem(b"", f"{folder}/{ALL_PUSHED}", checked=False))
        taking = _Taking(
            lambda on_output: self._store.place(own, touch, packed, deadline, what, on_output)
        )
        try:
            self._device.push(items, timeout_s=deadline.remaining(), progress=taking.check)
        except _TakingEnded:
            pass
        except DeviceRefused:
            # its folder gone, the script gives up by itself
            self._store.discard(own)
            taking.end()
            raise
        except BaseException:
            taking.end()
            raise
        return taking.result()


class _TakingEnded(Exception):
    """The script has ended while files were still being pushed."""


class _GivenUp(Exception):
    """Nobody waits for the script any more."""


class _Taking:
    """The script at work in a thread of its own, so that errors and Ctrl-C meet the push."""

    def __init__(self, run: Callable[[Callable[[bytes], None]], Placed]) -> None:
        self._run = run
        self._given_up = threading.Event()
        self._placed: Placed | None = None
        self._error: BaseException | None = None
        # a daemon: when the link hangs and we are to end, nobody waits for its deadline
        self._thread = threading.Thread(target=self._work, name="store-place", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._placed = self._run(self._on_output)
        except BaseException as error:
            self._error = error

    def _on_output(self, _: bytes) -> None:
        # the script says something every second, so this comes to pass soon
        if self._given_up.is_set():
            raise _GivenUp

    def check(self, _: int) -> None:
        """Raises _TakingEnded once the script has ended."""
        if not self._thread.is_alive():
            raise _TakingEnded

    def end(self) -> None:
        """Ends the script; waits for that no longer than seconds."""
        self._given_up.set()
        self._thread.join(_END_S)

    def result(self) -> Placed:
        """What the script answered, once it has ended. Raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._placed is None:
            raise InternalError("a script ended without an answer and without an error")
        return self._placed
