"""Servers on loopback that messages are sent to: a webhook and a mailbox."""

import asyncio
import json
import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.smtp import SMTP


class Webhook:
    """Takes what is posted until it is closed.

    `answers` is called with each body before it is answered.
    """

    def __init__(self, answers: Callable[[dict[str, Any]], int] = lambda _: 200) -> None:
        self.got: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                content = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                self.got.append(content)
                handler.send_response(answers(content))
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, *_: object) -> None:  # noqa: N805
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Mailbox:
    """A real mail server that keeps what it is sent."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self._loop = asyncio.new_event_loop()
        server = self._loop.create_server(lambda: SMTP(self, loop=self._loop), "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(server)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 OK"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
