"""Servers on loopback that are told something: a webhook, a mailbox, and mocks of two trackers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiosmtpd.smtp import SMTP


class HttpServer:
    """Answers until it is closed."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.at = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Webhook(HttpServer):
    """Takes what is posted. `answers` is called with each body before it is answered."""

    def __init__(self, answers: Callable[[dict[str, Any]], int] = lambda _: 200) -> None:
        self.got: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                said = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                self.got.append(said)
                handler.send_response(answers(said))
                handler.send_header("Content-Length", "0")
                handler.end_headers()

            def log_message(handler, *_: object) -> None:  # noqa: N805
                pass

        super().__init__(Handler)


class Mailbox:
    """A real mail server that keeps what it is sent."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self._loop = asyncio.new_event_loop()
        made = self._loop.create_server(lambda: SMTP(self, loop=self._loop), "127.0.0.1", 0)
        self._server = self._loop.run_until_complete(made)
        self.at = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        mail = message_from_bytes(envelope.content, policy=policy.default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 OK"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)


class MockTracker(HttpServer):
    """As GitHub and GitLab answer about issues, as far as their documentation says it.

    `issues` are those of the project, the oldest first; `writes` what was written, in order.
    `refuses` is a status and headers that each request gets instead.
    """

    def __init__(self, token: str) -> None:
        self.issues: list[dict[str, Any]] = []
        self.writes: list[tuple[str, str, dict[str, Any]]] = []
        self.reads: list[dict[str, list[str]]] = []
        self.refuses: tuple[int, dict[str, str]] | None = None

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                at = urlsplit(handler.path)
                asked = parse_qs(at.query)
                self.reads.append(asked)
                page, size = int(asked["page"][0]), int(asked["per_page"][0])
                shown = [one for one in self.issues[::-1] if self.shows(at.path, asked, one)]
                handler.answer(200, shown[(page - 1) * size : page * size])

            def do_POST(handler) -> None:  # noqa: N805
                number = len(self.issues) + 1
                gitlab = "/api/v4/" in handler.path
                state = {"state": "opened" if gitlab else "open"}
                self.issues.append({"iid" if gitlab else "number": number, **state, **handler.body})
                self.writes.append(("POST", handler.path, handler.body))
                handler.answer(201, self.issues[-1])

            def change(handler) -> None:  # noqa: N805
                said = dict(handler.body)
                self.writes.append((handler.command, handler.path, dict(said)))
                issue = self.issues[int(handler.path.rpartition("/")[2]) - 1]
                if event := said.pop("state_event", None):
                    issue["state"] = {"close": "closed", "reopen": "opened"}[event]
                issue.update(said)
                handler.answer(200, issue)

            do_PATCH = do_PUT = change  # noqa: N815

            @property
            def body(handler) -> dict[str, Any]:  # noqa: N805
                if not hasattr(handler, "said"):
                    length = int(handler.headers["Content-Length"])
                    handler.said = json.loads(handler.rfile.read(length))
                return handler.said

            def parse_request(handler) -> bool:  # noqa: N805
                done = super().parse_request()
                known = re.fullmatch(
                    r"(/api/v3/repos/o/r|/api/v4/projects/g%2Fsub%2Fp)/issues(/\d+)?(\?.*)?",
                    handler.path,
                )
                if done and self.refuses:
                    status, headers = self.refuses
                    handler.answer(status, {}, headers)
                elif done and handler.headers["Authorization"] != f"Bearer {token}":
                    handler.answer(401, {"message": "Bad credentials"})
                elif done and not known:
                    handler.answer(404, {"message": f"Not Found: {unquote(handler.path)}"})
                else:
                    return done
                return False

            def answer(handler, status: int, said: object, more: Any = None) -> None:  # noqa: N805
                content = json.dumps(said).encode()
                handler.send_response(status)
                for name, value in {"Content-Length": len(content), **(more or {})}.items():
                    handler.send_header(name, str(value))
                handler.end_headers()
                handler.wfile.write(content)

            def log_message(handler, *_: object) -> None:  # noqa: N805
                pass

        super().__init__(Handler)

    @staticmethod
    def shows(path: str, asked: dict[str, list[str]], issue: dict[str, Any]) -> bool:
        """GitHub shows those that are open, unless asked for all; GitLab shows all."""
        return "/v4/" in path or asked.get("state") == ["all"] or issue["state"] == "open"
