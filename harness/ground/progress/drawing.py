"""The live lines as text for a terminal: by rich, each cut to the terminal's width (pure)."""

from __future__ import annotations

import io
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.ground.progress.state import DeviceState, RunState, clock, one_line

_LEAST_ROWS: Final = 4
_KEPT_ROWS: Final = 2
_NAME_CELLS: Final = 20
_BAR_CELLS: Final = 12
_BAR_FROM_COLUMNS: Final = 60
_SPACED_FROM_COLUMNS: Final = 40
_MB: Final = 1_000_000


class Drawing:
    """Draws the state of a run for terminals that show colours, or characters beyond ASCII."""

    def __init__(self, *, colours: bool, unicode: bool) -> None:
        self._bar = "━─" if unicode else "#-"
        self._more = "…" if unicode else "..."
        self._degrees = "°C" if unicode else "C"
        self._unicode = unicode
        self._console = Console(
            file=io.StringIO(), color_system="standard" if colours else None, _environ={}
        )

    def lines(self, state: RunState, now: float, columns: int, rows: int) -> list[str]:
        """A line for each device, as far as there is room, and one for the run below them."""
        if rows < _LEAST_ROWS or columns < 2:
            return []
        texts = self._devices(state, now, columns, rows - _KEPT_ROWS - 1)
        return [self._drawn(text, columns) for text in (*texts, self._run(state, now, columns))]

    def _devices(self, state: RunState, now: float, columns: int, room: int) -> list[Text]:
        # who is at work comes first where there is not room for all
        at_work = [name for name, device in state.devices.items() if device.facts]
        shown = list(state.devices)
        if len(shown) > room:
            idle = [name for name in shown if name not in at_work]
            shown = [*at_work, *idle][: max(0, room - 1)]
        width = min(_NAME_CELLS, columns // 3, max((cell_len(n) for n in shown), default=0))
        texts = [self._device(state, name, width, now, columns) for name in shown]
        if hidden := len(state.devices) - len(shown):
            texts.append(Text(f"{self._more} and {hidden} more", style="dim"))
        return texts

    def _device(self, state: RunState, name: str, width: int, now: float, columns: int) -> Text:
        device = state.devices[name]
        label = Text(one_line(name), style="bold")
        label.truncate(width, overflow="ellipsis" if self._unicode else "crop", pad=True)
        facts, parts = device.facts, [label]
        if doing := facts.get("doing"):
            parts += self._progress(device, str(doing), now, columns)
        elif contexts := int(device.number("contexts")):
            loaded = int(device.number("loaded"))
            parts += self._bar_of(loaded, contexts, columns)
            parts.append(Text(f"{loaded}/{contexts} contexts", style="cyan"))
        if heat := facts.get("degrees"):
            parts.append(Text(f"{heat:.0f} {self._degrees}", style="yellow"))
        if verb := facts.get("verb"):
            step = f"{int(device.number('step'))}/{int(device.number('steps'))}"
            parts.append(Text(f"{step} {verb}"))
        if case := facts.get("case"):
            parts.append(Text(str(case).partition("::")[2] or str(case), style="dim"))
        elif not doing:
            left = state.waiting[name]
            parts.append(Text(f"{left} to run" if left else "-", style="dim"))
        return _joined(parts, columns)

    def _progress(self, device: DeviceState, doing: str, now: float, columns: int) -> list[Text]:
        done, total = device.number("done"), device.number("total")
        parts = [Text(doing)]
        if total <= 0:
            return parts
        if device.facts.get("unit") == "MB":
            said = f"{done / _MB:.1f}/{total / _MB:.1f} MB"
        else:
            said = f"{done:.0f}/{total:.0f}"
        parts += [*self._bar_of(done, total, columns), Text(said, style="cyan")]
        rate = device.rate(now)
        if rate is not None:
            if device.facts.get("unit") == "MB":
                parts.append(Text(f"{rate / _MB:.1f} MB/s"))
            parts.append(Text(f"{clock((total - done) / rate)} left"))
        return parts

    def _run(self, state: RunState, now: float, columns: int) -> Text:
        parts = [*self._bar_of(state.done, state.total, columns)]
        parts.append(Text(f"{state.done}/{state.total}", style="bold"))
        for number, what, style in (
            (state.failed, "unexpected", "bold red"),
            (state.lab_errors, "without a verdict", "bold yellow"),
        ):
            if number:
                parts.append(Text(f"{number} {what}", style=style))
        left = state.left_s(now)
        if left is not None and state.done < state.total:
            parts.append(Text(f"{clock(left)} left"))
        parts.append(Text(f"after {clock(now - state.began)}", style="dim"))
        return _joined(parts, columns)

    def _bar_of(self, done: float, total: float, columns: int) -> list[Text]:
        if columns < _BAR_FROM_COLUMNS or total <= 0:
            return []
        full = round(_BAR_CELLS * min(1.0, max(0.0, done / total)))
        bar = Text(self._bar[0] * full, style="green")
        return [bar.append(self._bar[1] * (_BAR_CELLS - full), style="dim")]

    def _drawn(self, text: Text, columns: int) -> str:
        # the last column stays free: behind it terminals differ
        text.truncate(columns - 1, overflow="ellipsis" if self._unicode else "crop")
        with self._console.capture() as captured:
            self._console.print(text, end="", soft_wrap=True)
        drawn = captured.get()
        return drawn if self._unicode else drawn.encode("ascii", "replace").decode()


def _joined(parts: list[Text], columns: int) -> Text:
    return Text("  " if columns >= _SPACED_FROM_COLUMNS else " ").join(parts)


def plain_line(state: RunState, now: float) -> str:
    """How far a run is, for a log."""
    parts = [f"{state.done} of {state.total} cases"]
    if state.failed:
        parts.append(f"{state.failed} failed unexpectedly")
    if state.lab_errors:
        parts.append(f"{state.lab_errors} without a verdict")
    left = state.left_s(now)
    if left is not None:
        parts.append(f"about {clock(left)} left")
    return f"qnn-harness: {', '.join(parts)}"
