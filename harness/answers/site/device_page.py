"""The page of a device: how it has done, night by night, and what fails there (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.site.gathered import WINDOW
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, by_cause, framed
from harness.ground import counted

_COLUMNS: Final = ("Night", "Passed", "Failed", "As known", "Lost")


def device_page(known: Known, device: str) -> str:
    """The page of a device."""
    return framed(device, _blocks(known, device))


def _blocks(known: Known, device: str) -> Iterator[Block]:
    links = Links()
    last = max(at for name, at in known.gathered.by_device if name == device)
    changes = known.gathered.changes("device = ? AND at = ?", device, last)
    yield Heading(["Device ", Span(device, style="code")], 1)
    bad = [one for one in changes if one.became in ("new", "still", "flaky")]
    run = known.runs[last]
    said = f"{counted(len(bad), 'case')} failed there on {known.day(last)}." if bad else "All well."
    yield Paragraph(said, "verdict bad" if bad else "verdict")
    yield from by_cause(known, changes, links)
    rows: list[list[Line]] = []
    for at in range(known.last, max(-1, known.last - WINDOW), -1):
        told, run = known.gathered.by_device.get((device, at)), known.runs[at]
        if told:
            lost = sum(told[name] for name in ("lab", "harness", "input"))
            counts = (told["passed"], told["failed"], told["known"], lost)
            rows.append([links.to("night", run.run, run.started[:10]), *map(str, counts)])
    yield Heading("Night by night")
    yield Table("", _COLUMNS, rows, "cross")


def devices_page(known: Known) -> str:
    """All devices that cases ran on."""
    rows: list[list[Line]] = []
    for device in sorted({name for name, _ in known.gathered.by_device}):
        told = known.gathered.by_device.get((device, known.last))
        counts = (told["passed"], told["failed"]) if told else ("-", "-")
        rows.append([Links("").to("device", device), *map(str, counts)])
    table = Table("", ("Device", "Passed", "Failed"), rows, "cross long")
    blocks: list[Block] = [Heading("Devices", 1), table]
    return framed("Devices", blocks, here="Devices", up="")
