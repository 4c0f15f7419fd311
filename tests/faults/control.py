"""Requests of a case in another process to the lab around it to break something."""

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

VARIABLE = "QNN_FAULT_CONTROL"
_ANSWER_S = 40.0


def ask(command: str) -> None:
    """Has the lab do something, and returns when it is done; raises RuntimeError if it failed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(os.environ[VARIABLE])
        connection.sendall(command.encode() + b"\n")
        with connection.makefile() as answers:
            answer = answers.readline().strip()
    if answer != "done":
        raise RuntimeError(f"{command}: {answer}")


@contextlib.contextmanager
def controlled(path: Path, carry_out: Callable[[str], None]) -> Iterator[None]:
    """Listens on a socket at `path` for what `ask` sends."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            command = self.rfile.readline().decode().strip()
            try:
                carry_out(command)
                answer = "done"
            except Exception as error:
                answer = f"{type(error).__name__}: {error}".replace("\n", " ")
            with contextlib.suppress(OSError):
                self.wfile.write(answer.encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(5)
