"""The front page while a run goes on: what each device is at, written anew by the run itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from markupsafe import Markup

from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table, html
from harness.answers.report.pages import filled
from harness.answers.site.links import FRONT
from harness.answers.site.pages import framed
from harness.ground.files.whole_file import read_bounded, write_whole
from harness.ground.progress.state import DeviceState, RunState, clock

NOW: Final = "now"
_MAX_BYTES: Final = 64 << 20
_DEAD_S: Final = 60
_log = logging.getLogger(__name__)


class LiveFront:
    """Keeps what a run is at on the front page of the site in a folder, which need not be there."""

    def __init__(self, out: Path, run: str) -> None:
        self._out, self._run = out, run
        self._fails = False

    def page(self, state: RunState, now: float) -> Callable[[], None]:
        """What writes the page as the run is now; `now` is of the state's clock."""
        told = _section(self._run, state, now)
        return lambda: self._write(told)

    def end(self) -> None:
        """The run is over: nothing of it stays on the page."""
        self._write(Markup(""))

    def _write(self, told: Markup) -> None:
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            page = filled(_held(self._out) or _empty(), NOW, told)
            write_whole(self._out / FRONT, page.encode("utf-8", "replace"))
        except OSError as error:
            if not self._fails:  # a page is no reason to end a run
                _log.warning("%s: what the run is at cannot be written: %s", self._out, error)
            self._fails = True


def kept_now(out: Path) -> Markup:
    """What a run that still goes on wrote on the front page; nothing of one that went silent."""
    try:
        silent = time.time() - (out / FRONT).stat().st_mtime > _DEAD_S
        page = "" if silent else _held(out)
    except OSError:
        return Markup("")
    return Markup(page.partition(f"<!--{NOW}-->")[2].partition(f"<!--/{NOW}-->")[0])


def _held(out: Path) -> str:
    try:
        return read_bounded(out / FRONT, _MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _empty() -> str:
    return framed("qnn-harness", [Heading("The first run", 1)], here="Last night", up="")


def _section(run: str, state: RunState, now: float) -> Markup:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    told = html(_blocks(run, state, now))
    return Markup('<section id="now" data-at="{}" aria-live="off">{}</section>').format(at, told)


def _blocks(run: str, state: RunState, now: float) -> Iterator[Block]:
    yield Heading(["Now: run ", Span(run, style="code"), Span("", style="dim")])
    parts = [f"{state.done} of {state.total} cases are over"]
    parts += [f"{state.failed} failed unexpectedly"] if state.failed else []
    parts += [f"{state.lab_errors} without a verdict"] if state.lab_errors else []
    left = state.left_s(now)
    parts += [f"about {clock(left)} left"] if left is not None and state.done < state.total else []
    yield Paragraph(f"{', '.join(parts)}, after {clock(now - state.began)}.", "verdict")
    rows = [_row(state, name, device, now) for name, device in state.devices.items()]
    yield Table(
        "", ("Device", "At", "Step", "Since", "Temperature", "Left to run"), rows, "stacked"
    )


def _row(state: RunState, name: str, device: DeviceState, now: float) -> list[Line]:
    facts, total = device.facts, device.number("total")
    share = f" {100 * device.number('done') / total:.0f} %" if total > 0 else ""
    step = (
        f"{device.number('step'):.0f} of {device.number('steps'):.0f} " if "verb" in facts else ""
    )
    heat = device.number("degrees")
    return [
        Span(name, style="code"),
        Span(str(facts.get("case", "")), style="code"),
        Span(f"{facts.get('doing', '')}{share} {step}{facts.get('verb', '')}".strip()),
        clock(now - device.case_since) if "case" in facts else "",
        f"{heat:.0f} °C" if heat else "",
        str(state.waiting[name]),
    ]
