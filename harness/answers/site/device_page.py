"""The page of a device: how it has done, night by night, and what fails there (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from harness.answers.history.nights import DeviceTold
from harness.answers.history.run_changes import WINDOW, DeviceRow, StandingCounts
from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.site.drawings import beside, curve, strip
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, by_cause, framed
from harness.ground.errors.outgoing_text import counted

_GB: Final = 1e9
_SHOWN: Final = 30
_COLUMNS: Final = (
    *("Night", "State", "Found", "Passed", "Failed", "Lost", "Busy", "Hottest", "Battery"),
    *("Storage free", "Link faults", "Recoveries", "Quarantined"),
)
_LISTED: Final = (
    "Device",
    "SoC",
    "Host",
    "Nights, the newest to the right",
    "State",
)
_CURVES: Final[dict[str, Callable[[DeviceRow], float | None]]] = {
    "hottest, °C": lambda row: row.hottest_c,
    "battery, %": lambda row: row.battery_percent,
    "storage free, GB": lambda row: row.free_storage_bytes and row.free_storage_bytes / _GB,
    "busy, %": lambda row: 100 * row.busy_s / row.span_s if row.span_s else None,
}


def device_page(known: Known, device: str) -> str:
    """The page of a device."""
    return framed(device, _blocks(known, device))


def _blocks(known: Known, device: str) -> Iterator[Block]:
    links, places = Links(), _places(known, device)
    last = places[-1]
    changes = known.gathered.changes("device = ? AND at = ?", device, last)
    row, state = known.devices.get((device, last)), state_of_device(known, device)
    bad = [one for one in changes if one.became in ("new", "still", "flaky")]
    yield Heading(["Device ", Span(device, style="code")], 1)
    lost = known.gathered.by_device.get((device, last), StandingCounts()).lost
    said = f"{counted(len(bad), 'case')} failed there" if bad else "nothing failed there"
    said += f", {lost} without a verdict" if lost else ""
    said += f" on {known.day(last)}"
    well = f"{state.state} since {state.since[:10]}" if state.since else state.state
    ill = bool(bad or state.state != "good")
    yield Paragraph(f"{well[:1].upper()}{well[1:]}; {said}.", "verdict bad" if ill else "verdict")
    for text in (state.why, state.hands and f"Needs hands: {state.hands}"):
        if text:
            yield Paragraph(Span(text))
    if row is not None:
        yield Paragraph(
            Span(f"{row.soc or 'SoC unknown'}, on {row.host or 'this computer'}"), "dim"
        )
    yield from by_cause(known, changes, links)
    rows = [(at, known.devices[device, at]) for at in places if (device, at) in known.devices]
    drawn = []
    for title, figure in _CURVES.items():
        values = [figure(one) for _, one in rows]
        told = [
            f"{value or 0:,.0f} on {known.day(at)}"
            for value, (at, _) in zip(values, rows, strict=True)
        ]
        drawn.append(curve(values, told.__getitem__, title, band=False))
    if any(drawn):
        yield Heading("How it is")
        yield Paragraph(beside(drawn))
    yield Heading("Night by night")
    yield Table(
        "", _COLUMNS, [_night(known, device, at, links) for at in reversed(places)], "cross found"
    )


def _places(known: Known, device: str) -> list[int]:
    least = known.last - WINDOW
    found = {at for name, at in (*known.gathered.by_device, *known.devices) if name == device}
    return sorted(at for at in found if at > least) or sorted(found)[-1:]


def _night(known: Known, device: str, at: int, links: Links) -> list[Line]:
    told = known.gathered.by_device.get((device, at), StandingCounts())
    failed = told["failed"] + told["known"]
    run, row = known.runs[at], known.devices.get((device, at))
    words: list[Line] = [row.state or "", Span(row.finding or "")] if row else ["", ""]
    cells: list[Line] = [links.to("night", run.run, run.started[:10]), *words, str(told["passed"])]
    cells += [Span(str(one), style="bad" if one else "dim") for one in (failed, told.lost)]
    if row is None:
        return cells + [""] * (len(_COLUMNS) - len(cells))
    marks = (row.link_faults, row.recoveries, row.quarantines)
    cells += [_said(figure(row), title.rpartition(" ")[2]) for title, figure in _of_a_night()]
    cells += [Span(str(one), style="bad" if one else "dim") for one in marks]
    return cells


def _of_a_night() -> list[tuple[str, Callable[[DeviceRow], float | None]]]:
    *before, busy = _CURVES.items()
    return [busy, *before]


def _said(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.0f} {unit}"


def state_of_device(known: Known, device: str) -> DeviceTold:
    """What the last night, or else its own last event, said of a device."""
    for at in range(known.last, max(-1, known.last - WINDOW), -1):
        night = known.nights.get(known.runs[at].run)
        if night is not None and device in night.devices:
            return night.devices[device]
        row = known.devices.get((device, at))
        if row is not None and row.state:
            why = "" if row.state == "good" else row.finding or ""
            return DeviceTold(state=row.state, since=known.runs[at].started, why=why)
    return DeviceTold(state="not heard of", since="")


def unwell(known: Known, at: int) -> list[tuple[str, str]]:
    """The devices that were not well in the night at a place, and how they were."""
    night = known.nights.get(known.runs[at].run)
    devices = dict(night.devices) if night is not None else {}
    if night is None and at == known.last_night:
        devices = {name: state_of_device(known, name) for name in known.device_names()}
    return [(name, device.said) for name, device in devices.items() if device.state != "good"]


def devices_page(known: Known) -> str:
    """All devices that cases ran on: where they are, how they did, how they are."""
    links, rows = Links(""), list[list[Line]]()
    for device in known.device_names():
        state, places = state_of_device(known, device), _places(known, device)
        row = known.devices.get((device, places[-1])) if places else None
        marks = [
            _mark(known, device, at)
            for at in range(max(0, known.last + 1 - _SHOWN), known.last + 1)
        ]
        rows.append(
            [
                [links.to("device", device)],
                (row and row.soc) or "",
                (row and row.host) or "",
                strip(marks),
                [
                    Span(state.state, style="plain" if state.state == "good" else "bad"),
                    " ",
                    Span(state.why),
                ],
            ]
        )
    blocks: list[Block] = [Heading("Devices", 1), Table("", _LISTED, rows, "stacked long")]
    return framed("Devices", blocks, here="Devices", up="")


def _mark(known: Known, device: str, at: int) -> str:
    told = known.gathered.by_device.get((device, at))
    if not told:
        return " "
    return "F" if told["failed"] else "?" if told.lost else "x" if told["known"] else "."
