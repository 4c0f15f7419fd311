"""Mock devices and servers, for what no real daemon can be told to do."""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from typing import Self


class MockMuteDaemon:
    """Takes connections and never says a word."""

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()


class MockHangingUpDaemon:
    """Takes connections and closes them at once."""

    def __enter__(self) -> Self:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MockAdbServer:
    """An adb server with devices on USB in states as given.

    `leads` gives, for some, the address of a device on the real adb server at `behind` that is at
    the other end of their cable.
    """

    def __init__(self, states: dict[str, str], leads: dict[str, str], behind: int) -> None:
        self._states = states
        self._leads = leads
        self._behind = behind

    def __enter__(self) -> Self:
        states, leads, behind = self._states, self._leads, self._behind

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                length = self.rfile.read(4)
                request = self.rfile.read(int(length, 16)).decode() if length else ""
                if request == "host:version":
                    self._say(b"OKAY", b"0029")
                elif request.startswith("host:devices"):
                    rows = "".join(f"{name}\t{state}\n" for name, state in states.items())
                    self._say(b"OKAY", rows.encode())
                elif name := next((name for name in leads if f":{name}" in request), ""):
                    self._lead(request.replace(f":{name}", f":{leads[name]}"))
                else:
                    self._say(b"FAIL", b"device offline")

            def _lead(self, request: str) -> None:
                with socket.create_connection(("127.0.0.1", behind)) as server:
                    server.sendall(f"{len(request):04x}{request}".encode())
                    ends = {self.connection: server, server: self.connection}
                    while ready := select.select(ends, [], [])[0]:
                        for end in ready:
                            data = end.recv(1 << 16)
                            if not data:
                                return
                            ends[end].sendall(data)

            def _say(self, status: bytes, text: bytes) -> None:
                self.wfile.write(status + b"%04x" % len(text) + text)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
