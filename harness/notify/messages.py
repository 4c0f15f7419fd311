"""Messages about nights, runs and comparisons, sent by apprise to the channels of devices.yaml.

Each channel has its own process, `python -m harness.notify.messages`: one that hangs, or whose
server echoes its URL, does not affect the others.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final, Literal, Self

import pytest

from harness.core.bounded_json import parse_json
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.guarded_process import spawn_guarded
from harness.core.outgoing_text import REDACTED, one_line, outgoing, shortened, without_secrets
from harness.notify.channels import NotifyChannel, load_channels

SEND_S: Final = 60.0
"""The time limit of a channel. All are served at once."""
SENT: Final = "notified"
"""The file in the folder of a night with a line for each message and channel."""
_READ_S: Final = 20.0
_TITLE_CHARS: Final = 200
_LINE_CHARS: Final = 500
_HEAD_CHARS: Final = 3000
_ORDER: Final = "QNN_HARNESS_NOTIFY"
_NO_APPRISE: Final = "apprise is not installed: pip install 'qnn-harness[notify]'"
# mentions that notify everybody in a chat
_CALLS: Final = re.compile(r"<(?=[!@#])|@(?=(?:all|channel|everyone|here|room)\b)", re.IGNORECASE)


@dataclass(frozen=True)
class Message:
    """A title and a text that every chat takes."""

    title: str
    body: str
    markup: Literal["markdown", "text"] = "markdown"

    @classmethod
    def head_of(cls, summary: str, name: str, path: Path) -> Self:
        """Return the head of a Markdown summary of `name`, whose file is `path`."""
        title, _, text = summary.strip().partition("\n")
        return cls(f"{title.lstrip('# ')} ({name})", _head(text, path))

    @classmethod
    def of_lines(cls, title: str, lines: Iterable[str], path: Path) -> Self:
        """Return the head of plain lines; `path` is a file with more."""
        return cls(title, _head("\n".join(lines), path), "text")


def _head(text: str, path: Path) -> str:
    shown, chars = [], 0
    for line in outgoing(text).strip("\n").splitlines():
        shown.append(shortened(line, _LINE_CHARS))
        chars += len(shown[-1]) + 1
        if chars > _HEAD_CHARS:
            shown[-1] = f"... the rest is in {path}"
            break
    return "\n".join(shown)


TEST_MESSAGE: Final = Message("qnn-harness: test", "A test of `notify` in devices.yaml.")


def require_channels(lab_file: Path) -> tuple[NotifyChannel, ...]:
    """Return the channels of devices.yaml. Raises ConfigError if it names none."""
    channels = load_channels(lab_file)
    if not channels:
        problem = "is missing; name a channel, as in {name: team, url: slack://${SLACK_TOKENS}}"
        raise ConfigError(problem, file=lab_file, field="notify")
    return channels


def send(
    message: Message, channels: Iterable[NotifyChannel], sent: Path | None = None
) -> dict[str, str | None]:
    """Send a message to all channels at once; return why each failed, None if it did not.

    `sent` is a file of earlier messages, which are not sent again: each by its title and first
    line.
    """
    title = _safe(shortened(one_line(message.title), _TITLE_CHARS))
    first_line = _safe(shortened(one_line(message.body.partition("\n")[0]), _LINE_CHARS))
    before = list[str]()
    with contextlib.suppress(OSError):
        before = sent.read_text(errors="replace").splitlines() if sent else []
    deadline = Deadline(SEND_S)
    failures: dict[str, str | None] = {}
    command = [sys.executable, "-m", __name__]
    with contextlib.ExitStack() as stack:
        processes = {}
        for channel in channels:
            failures[channel.name] = None
            mark = f"{channel.name}\t{title}\t{first_line}"
            if mark in before:
                continue
            content = asdict(message) | {"title": title, "body": _safe(message.body)}
            order = {"message": content, "sent": sent and str(sent), "mark": mark}
            try:
                order["url"] = channel.address(os.environ)
                environment = {**os.environ, _ORDER: json.dumps(order)}
                process = spawn_guarded(command, env=environment, stdout=PIPE)
                processes[channel.name] = stack.enter_context(process)
            except HarnessError as error:
                failures[channel.name] = str(error)
        for name, process in processes.items():
            code = process.wait(deadline)
            answer = process.stdout.read().decode() if code is not None and process.stdout else ""
            if code is None:
                failures[name] = f"no answer within {SEND_S:.0f} s"
            elif code or answer:
                failures[name] = answer or f"its process ended with {code}"
    return failures


def notify(lab_file: Path, message: Message, sent: Path | None = None) -> list[str]:
    """Send a message to the channels of a lab; return a warning for each that failed."""
    try:
        failures = send(message, load_channels(lab_file), sent)
    except HarnessError as error:
        return [f"nobody was notified: {error}"]
    return _failures(failures)


def _failures(failures: Mapping[str, str | None]) -> list[str]:
    return [
        f"channel {name} was not notified: {why.rstrip('.')}; to test it: qnn-harness notify --test"
        for name, why in failures.items()
        if why is not None
    ]


@dataclass(frozen=True, eq=False)
class RunNotifier:
    """The plug-in that sends the summary of a run to channels."""

    channels: Sequence[NotifyChannel]

    @pytest.hookimpl
    def qnn_run_finished(self, folder: Path, run: Any) -> list[str]:
        """Send the summary of a run, and return a warning for each channel that failed."""
        title, *lines = run.summary
        message = Message.of_lines(f"{title} ({run.run})", lines, folder / "report.html")
        return [f"warning: {text}" for text in _failures(send(message, self.channels))]


def channel_problem(channel: NotifyChannel) -> str | None:
    """Return why a channel cannot be used, as far as can be known without sending; else None."""
    try:
        _server(channel.address(os.environ))
    except ConfigError as error:
        return str(error)
    except ImportError:
        return _NO_APPRISE
    return None


def _safe(text: str) -> str:
    return _CALLS.sub(lambda call: {"<": "‹", "@": "＠"}[call[0]], text)


def _server(url: str) -> Any:
    import apprise

    with apprise.LogCapture(level=logging.WARNING):  # its log may have the URL
        server = apprise.Apprise.instantiate(url)
    if server is None:
        raise ConfigError("apprise does not support its URL; for a webhook use jsons://HOST/PATH")
    return server


def _send(url: str, message: Message) -> None:
    server = _server(url)
    import apprise

    body = message.body or message.title  # apprise sends no empty one
    if "rto=" not in url:
        server.socket_read_timeout = _READ_S
    if "overflow=" not in url:
        server.overflow_mode = apprise.OverflowMode.TRUNCATE
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        is_sent = server.notify(title=message.title, body=body, body_format=message.markup)
        why = " ".join(log.getvalue().split())
    if not is_sent:
        raise InfraError(why or "the server did not accept the message")


def _serve(order: Mapping[str, Any]) -> str:
    """Send a message, and record it; return why that failed, or an empty text."""
    try:
        _send(order["url"], Message(**order["message"]))
    except HarnessError as error:
        text = str(error)
        for part in sorted(re.split(r"[/:@?&=]+", order["url"])[1:], key=len, reverse=True):
            text = text.replace(part, REDACTED) if len(part) > 3 else text
        return without_secrets(text)[:300]
    except ImportError:
        return _NO_APPRISE
    if order["sent"]:
        with contextlib.suppress(OSError), open(order["sent"], "a") as stream:
            stream.write(f"{order['mark']}\n")
    return ""


if __name__ == "__main__":
    sys.stdout.write(_serve(parse_json(os.environ.pop(_ORDER))))
