"""A TCP relay on the loopback whose faults can be switched on: cut, stall, slow."""

import contextlib
import selectors
import socket
import threading
import time
from typing import Self


class FaultyLink:
    """Carries bytes between whoever connects to `address` and a target address.

    `stall()` stops carrying in both directions while connections stay up; `cut()` closes them and
    refuses new ones; `resume()` undoes both. `bytes_per_s` bounds both directions together.
    `stall_after(n)` stalls once n more bytes have passed.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._flowing = threading.Event()
        self._flowing.set()
        self._ended = False
        self._cut = False
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._budget: int | None = None
        self.bytes_per_s: float | None = None
        self.carried = 0

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self.cut()
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5)

    def stall(self) -> None:
        self._flowing.clear()

    def stall_after(self, count: int) -> None:
        with self._lock:
            self._budget = count

    def cut_after(self, count: int) -> None:
        with self._lock:
            self._budget = -count

    def cut(self) -> None:
        self._cut = True
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def resume(self) -> None:
        self._cut = False
        self._budget = None
        self.bytes_per_s = None
        self._flowing.set()

    def changed(self, data: bytes, *, to_device: bool) -> bytes:
        """Return the bytes to pass on in place of `data`; here the same."""
        return data

    def lead_to(self, target: str) -> None:
        """Carries new connections to another address: a device that came back, or another one."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target, timeout=60)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.settimeout(None)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._ends += [near, far]
            self._start(self._carry, near, far)

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, near, far, contextlib.suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    source, sink = key.fileobj, key.data
                    data = source.recv(1 << 16)
                    if not data or self._ended:
                        return
                    self._count(len(data))
                    data = self.changed(data, to_device=source is near)
                    self._flowing.wait()
                    sink.sendall(data)

    def _count(self, count: int) -> None:
        with self._lock:
            self.carried += count
            budget = self._budget
            if budget is not None:
                remaining = abs(budget) - count
                self._budget = None if remaining <= 0 else (remaining if budget > 0 else -remaining)
        if budget is not None and remaining <= 0:
            if budget > 0:
                self.stall()
            else:
                self.cut()
        if self.bytes_per_s is not None:
            time.sleep(count / self.bytes_per_s)
