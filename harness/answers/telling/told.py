"""Tells every channel of the lab at once, and keeps beside the news what became of that."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from harness.answers.telling.news import News, SchemaNumber, issue, message
from harness.answers.telling.trackers import is_tracker
from harness.device.lab.notify import Channel
from harness.ground import (
    ConfigError,
    Deadline,
    read_bounded,
    spawn_guarded,
    write_whole,
)
from harness.verdict import Part

NEWS: Final = "news.json"
TELL_S: Final = 120.0
"""How long all channels together may take."""
_FOLDER: Final = "told"
_MOST_BYTES: Final = 64 << 20
_MOST_TEMPLATE: Final = 1 << 20
_DELIVER: Final = "harness.answers.telling.deliver"
_BEGUN: Final = "whether it arrived is not known: --again sends it once more"

State = Literal["untold", "begun", "sent", "failed", "nothing"]


class Told(Part):
    """What became of news for a channel: `why` it failed, or what is left for the next time."""

    schema_version: SchemaNumber = 1
    kind: Literal["told"] = "told"
    news: str
    state: State = "untold"
    why: str = ""

    @classmethod
    def of(cls, folder: Path, channel: str, news: str) -> Told:
        """What is kept of it; what cannot be read is none."""
        with contextlib.suppress(OSError, ValueError):
            told = cls.model_validate_json(read_bounded(_file(folder, channel), _MOST_BYTES))
            if told.news == news:
                return told
        return cls(news=news)

    def now(self, folder: Path, channel: str, state: State, why: str = "") -> None:
        """Keeps what has become of it. Raises OSError."""
        file = _file(folder, channel)
        file.parent.mkdir(exist_ok=True)
        told = self.model_copy(update={"state": state, "why": why})
        write_whole(file, told.model_dump_json().encode())


def _file(folder: Path, channel: str) -> Path:
    return folder / _FOLDER / f"{channel}.json"


def news_in(folder: Path) -> News:
    """The news that are kept in a folder. Raises ConfigError if there are none."""
    try:
        return News.model_validate_json(read_bounded(folder / NEWS, _MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"tells no news: {error.strerror}", file=folder / NEWS) from error
    except ValueError as error:
        raise ConfigError("tells no news", file=folder / NEWS) from error


def template_of(channel: Channel, below: Path) -> str | None:
    """A channel's own template. Raises ConfigError if it cannot be read."""
    if channel.template is None:
        return None
    file = below / Path(channel.template).expanduser()
    try:
        return read_bounded(file, _MOST_TEMPLATE).decode()
    except (OSError, ValueError) as error:
        raise ConfigError("is no template that can be read", file=file) from error


def tell(
    folder: Path,
    news: News,
    channels: Iterable[Channel],
    lab: Path,
    seconds: float,
    *,
    again: bool = False,
) -> list[tuple[str, Told]]:
    """Keeps news in a folder, and tells all channels of them at once; what became of each.

    A channel that was told is not told again, unless it shall be. What does not answer in these
    seconds is given up. Raises OSError for a disk that fails.
    """
    write_whole(folder / NEWS, news.model_dump_json(indent=1).encode())
    named = [one.name for one in channels]
    deadline = Deadline(seconds)
    with contextlib.ExitStack() as stack:
        running = []
        for name in named:
            if again:
                _file(folder, name).unlink(missing_ok=True)
            # nobody sees what it prints: that may have what gives access
            words = [sys.executable, "-m", _DELIVER, *map(str, (folder, lab, name))]
            running.append(stack.enter_context(spawn_guarded(words)))
        for process in running:
            process.wait(deadline)
    return [(name, Told.of(folder, name, news.id)) for name in named]


def told_lines(told: Iterable[tuple[str, Told]]) -> Iterator[str]:
    """Whoever was not told, and why."""
    for name, one in told:
        if one.state == "begun":
            yield f"{name} was told, or not: {_BEGUN}"
        elif one.state not in ("sent", "nothing"):
            yield f"{name} was not told: {one.why or 'no answer in time'}"
        elif one.why:
            yield f"{name}: {one.why}"


def dry_lines(news: News, channels: Iterable[Channel], below: Path) -> Iterator[str]:
    """What each channel would be told, without asking any. Raises ConfigError."""
    for channel in channels:
        told, template, url = news.for_channel(channel), template_of(channel, below), channel.url
        with contextlib.suppress(ConfigError):
            url = channel.address(os.environ)
        if is_tracker(url):
            for item in told.items:
                if item.issue is not None:
                    title, text = issue(told, item, template)
                    state = "open" if item.is_open else "closed"
                    yield from (f"{channel.name}: an issue, {state}: {title}", text, "")
        elif told.counts:
            title, body = message(told, template)
            yield from (f"{channel.name}: {title}", body, "")
        else:
            yield from (f"{channel.name}: nothing", "")
