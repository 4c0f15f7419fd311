"""Tells one channel, in a process of its own: what it is at stands beside the news at each moment.

`python -m harness.answers.telling.deliver FOLDER LAB CHANNEL`
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Final

from harness.answers.telling.news import News, issue, message
from harness.answers.telling.told import State, Told, news_in, template_of
from harness.answers.telling.trackers import Tracker, Wanted, is_tracker
from harness.device import load_lab
from harness.ground import ConfigError, HarnessError, InfraError, without_secrets

_EXTRA: Final = "telling needs more packages: pip install 'qnn-harness[notify]'"
_ANSWER_S: Final = 20.0
_WHY_CHARS: Final = 300


def deliver(folder: Path, lab_file: Path, name: str) -> None:
    """Tells a channel of the news in a folder.

    A message that was begun is not sent again: nobody knows whether it arrived. Of what it says
    that went wrong nothing is kept that stands in the URL. Raises OSError for a disk that fails.
    """
    lab = load_lab(lab_file, places=None)
    channel = next(one for one in lab.notify if one.name == name)
    told = Told.of(folder, name, news_in(folder).id)
    if told.state in ("begun", "sent", "nothing"):
        return
    url, why = "", None
    state: State = "failed"
    try:
        url = channel.address(os.environ)
        news, template = news_in(folder).for_channel(channel), template_of(channel, lab.folder)
        if is_tracker(url):
            why = _bring_up(url, news, template)
            state = "sent" if why is None else "failed"
        elif not news.counts:
            state = "nothing"
        else:
            title, body = message(news, template)
            told.now(folder, name, "begun")
            _send(url, title, body)
            state = "sent"
    except HarnessError as error:
        why = str(error)
    except ImportError:
        why = _EXTRA
    told.now(folder, name, state, _safe(why or "", url))


def _bring_up(url: str, news: News, template: str | None) -> str | None:
    wanted = (
        Wanted(item.id, *issue(news, item, template), item.is_open)
        for item in news.items
        if item.issue is not None
    )
    return Tracker(url).bring_up([*wanted])


def _send(url: str, title: str, body: str) -> None:
    """Sends one message by apprise. Raises ConfigError, InfraError."""
    import apprise

    server = apprise.Apprise.instantiate(url)
    if server is None:
        raise ConfigError("its URL is none that apprise knows; a webhook is jsons://HOST/PATH")
    if "rto=" not in url:
        server.socket_read_timeout = _ANSWER_S
    if "overflow=" not in url:
        server.overflow_mode = apprise.OverflowMode.TRUNCATE
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        done = server.notify(title=title, body=body, body_format=apprise.NotifyFormat.MARKDOWN)
        said = log.getvalue()
    if not done:
        raise InfraError(" ".join(said.split()) or "it did not take the message")


def _safe(why: str, url: str) -> str:
    for part in sorted(re.split(r"[/:@?&=]+", url)[1:], key=len, reverse=True):
        why = why.replace(part, "***") if len(part) > 3 else why
    return without_secrets(why)[:_WHY_CHARS]


if __name__ == "__main__":
    deliver(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
