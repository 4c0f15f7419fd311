"""Tells every channel of the lab at once, and keeps beside the news what became of that.

Each is told in a process of its own, `python -m harness.answers.telling.told FOLDER LAB CHANNEL`,
which nobody hears: what servers and libraries print may have what gives access.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from harness.answers.telling.news import News, NewsItem, issue, message
from harness.answers.telling.trackers import WantedIssue, bring_up, is_tracker
from harness.device.lab.inventory import load_lab
from harness.device.lab.notify import NEWS_KINDS, NewsChannel
from harness.ground.errors import ConfigError, HarnessError, InfraError
from harness.ground.errors.outgoing_text import without_secrets
from harness.ground.files.whole_file import keep_whole, read_bounded, write_whole
from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import spawn_guarded
from harness.ground.yaml_lines.models import SchemaOne
from harness.verdict.failure.error import Part

NEWS: Final = "news.json"
TELL_S: Final = 120.0
"""How long all channels together may take."""
_ANSWER_S: Final = 20.0
_MOST_BYTES: Final = 64 << 20
_MOST_TEMPLATE: Final = 1 << 20
_EXTRA: Final = "telling needs more packages: pip install 'qnn-harness[notify]'"
_BEGUN: Final = "whether it arrived is not known: --again sends it once more"


class ToldState(Part):
    """What became of news for a channel: nothing yet, a message is under way, or the end of it.
    `why` says more.
    """

    schema_number: SchemaOne = 1
    kind: Literal["told"] = "told"
    news: str
    state: Literal["begun", "sent", "failed", "nothing"] | None = None
    why: str = ""

    @classmethod
    def of(cls, folder: Path, channel: str, news: str) -> ToldState:
        """What is kept of it; what cannot be read is none."""
        with contextlib.suppress(OSError, ValueError):
            told = cls.model_validate_json(read_bounded(_file(folder, channel), _MOST_BYTES))
            if told.news == news:
                return told
        return cls(news=news)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be told."""
        return self.state in ("sent", "nothing")


def _file(folder: Path, channel: str) -> Path:
    return folder / "told" / f"{channel}.json"


def keep_news(folder: Path, news: News) -> None:
    """Keeps news to be told. Raises InfraError for a disk that fails."""
    keep_whole(folder / NEWS, news.model_dump_json(indent=1).encode())


def news_in(folder: Path) -> News:
    """The news that are kept in a folder. Raises ConfigError if there are none."""
    try:
        return News.model_validate_json(read_bounded(folder / NEWS, _MOST_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError("there are no news that can be read", file=folder / NEWS) from error


def tell(
    folder: Path, names: Iterable[str], lab: Path, seconds: float, *, again: bool = False
) -> dict[str, ToldState]:
    """Tells channels of the lab at once of the news that a folder keeps; what became of each.

    A channel that was told is not told again, unless it shall be. What does not answer in these
    seconds is given up. Raises OSError for a disk that fails, ConfigError if there are no news.
    """
    news = news_in(folder)
    (folder / "told").mkdir(exist_ok=True)
    deadline, running, told = Deadline(seconds), [], [*names]
    with contextlib.ExitStack() as stack:
        for name in told:
            if again:
                _file(folder, name).unlink(missing_ok=True)
            before = ToldState.of(folder, name, news.id)
            # of one that was begun nobody knows whether it arrived
            if not before.is_over and before.state != "begun":
                words = [sys.executable, "-m", __name__, *map(str, (folder, lab, name))]
                running.append(stack.enter_context(spawn_guarded(words)))
        for process in running:
            process.wait(deadline)
    return {name: ToldState.of(folder, name, news.id) for name in told}


def told_lines(told: dict[str, ToldState]) -> Iterator[str]:
    """Whoever was not told, and why."""
    for name, one in told.items():
        if one.state == "begun":
            yield f"{name} was told, or not: {_BEGUN}"
        elif not one.is_over:
            yield f"{name} was not told: {one.why or 'no answer in time'}"
        elif one.why:
            yield f"{name}: {one.why}"


def not_ready(channel: NewsChannel, below: Path) -> str | None:
    """Why a channel could not be told, as far as that is known without asking it; else None."""
    try:
        url = channel.address(os.environ)
        _template(channel, below)
        if not is_tracker(url):
            _server(url)
        elif find_spec("requests") is None:
            return _EXTRA
    except ConfigError as error:
        return str(error)
    except ImportError:
        return _EXTRA
    return None


def trial() -> News:
    """News that say nothing, for whoever wants to see them arrive: one of each kind."""
    said = "a test of `notify`: nothing has happened"
    items = [NewsItem(id=kind, kind=kind, title=said, cases=0) for kind in NEWS_KINDS]
    return News(id="test", verdict=said, items=tuple(items))


def dry_lines(news: News, channels: Iterable[NewsChannel], below: Path) -> Iterator[str]:
    """What each channel would be told, without asking any. Raises ConfigError."""
    for channel in channels:
        mine, template, url = news.for_channel(channel), _template(channel, below), channel.url
        with contextlib.suppress(ConfigError):
            url = channel.address(os.environ)
        if is_tracker(url):
            issues = _issues(mine, template)
            said = [
                (f"issue, {'open' if i.is_open else 'closed'}: {i.title}", i.text) for i in issues
            ]
        else:
            said = [message(mine, template) if mine.counts else ("nothing", "")]
        for title, body in said:
            yield from (f"{channel.name}: {title}", body, "")
        if why := not_ready(channel, below):
            yield from (f"{channel.name} would not be told: {why}", "")


def _template(channel: NewsChannel, below: Path) -> str | None:
    if channel.template is None:
        return None
    file = below / Path(channel.template).expanduser()
    try:
        return read_bounded(file, _MOST_TEMPLATE).decode()
    except (OSError, ValueError) as error:
        raise ConfigError("is no template that can be read", file=file) from error


def _issues(news: News, template: str | None) -> list[WantedIssue]:
    told = (one for one in news.items if one.issue)
    return [WantedIssue(one.id, *issue(news, one, template), one.is_open) for one in told]


def _deliver(folder: Path, lab_file: Path, name: str) -> None:
    """Tells one channel of the news in a folder.

    What went wrong is kept without anything that stands in the URL.
    """
    lab, news, url = load_lab(lab_file, places=None), news_in(folder), ""
    channel = next(one for one in lab.notify if one.name == name)

    def now(state: str, why: str = "") -> None:
        for part in sorted(re.split(r"[/:@?&=]+", url)[1:], key=len, reverse=True):
            why = why.replace(part, "***") if len(part) > 3 else why
        said = {"news": news.id, "state": state, "why": without_secrets(why)[:300]}
        is_now = ToldState.model_validate(said)
        write_whole(_file(folder, name), is_now.model_dump_json().encode())

    try:
        url, news = channel.address(os.environ), news.for_channel(channel)
        template = _template(channel, lab.folder)
        if is_tracker(url):
            now("sent", bring_up(url, _issues(news, template)))
        elif not news.counts:
            now("nothing")
        else:
            title, body = message(news, template)
            now("begun")
            _send(url, title, body)
            now("sent")
    except (HarnessError, ImportError) as error:
        now("failed", str(error) if isinstance(error, HarnessError) else _EXTRA)


def _server(url: str) -> Any:
    """What apprise makes of a URL. Raises ConfigError, ImportError."""
    import apprise

    with apprise.LogCapture(level=logging.WARNING):  # what it says may have what gives access
        server = apprise.Apprise.instantiate(url)
    if server is None:
        raise ConfigError("its URL is none that apprise knows; a webhook is jsons://HOST/PATH")
    return server


def _send(url: str, title: str, body: str) -> None:
    """Sends one message by apprise. Raises ConfigError, InfraError."""
    server = _server(url)
    import apprise

    if "rto=" not in url:
        server.socket_read_timeout = _ANSWER_S
    if "overflow=" not in url:
        server.overflow_mode = apprise.OverflowMode.TRUNCATE
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        done = server.notify(title=title, body=body, body_format=apprise.NotifyFormat.MARKDOWN)
        said = " ".join(log.getvalue().split())
    if not done:
        raise InfraError(said or "it did not take the message")


if __name__ == "__main__":
    _deliver(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
