"""The page of a version, and the grid of all versions and devices (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from harness.answers.report.document import Block, Heading, Line, Paragraph, Span, Table
from harness.answers.report.ops_grid import version_order
from harness.answers.site.gathered import StandingCounts
from harness.answers.site.links import Links
from harness.answers.site.pages import Known, framed, happened
from harness.ground.errors.outgoing_text import counted


def versions_page(known: Known) -> str:
    """A grid for each axis: on which device how much fails with which version."""
    blocks: list[Block] = [Heading("Versions", 1)]
    for axis, group in groupby(versions(known), key=lambda one: one.partition(" ")[0]):
        blocks += [Heading(axis), _grid(known, list(group), Links(""))]
    return framed("Versions", blocks, here="Versions", up="")


def version_page(known: Known, version: str) -> str:
    """What a version brought, and how each device does with it."""
    return framed(version, _blocks(known, version))


def versions(known: Known) -> list[str]:
    """All that the last runs had, of each axis in their order."""
    return sorted({name for name, _ in known.gathered.by_version}, key=_order)


def _order(version: str) -> tuple[str, object]:
    axis, _, named = version.partition(" ")
    return axis, version_order(named)


def _blocks(known: Known, version: str) -> Iterator[Block]:
    links = Links()
    brought = known.gathered.changes(
        "became IN ('new', 'still') AND changed <> '' "
        "AND instr(', ' || versions || ',', ', ' || ? || ',')",
        version,
    )
    brought = list({(one.test, one.device, one.since): one for one in brought}.values())
    yield Heading(Span(version, style="code"), 1)
    said = f"First bad of {counted(len(brought), 'case')}." if brought else "It broke nothing."
    yield Paragraph(said, "verdict bad" if brought else "verdict")
    if brought:
        yield happened(known, brought, links)
    yield Heading("On each device: how many failed of those tested lately")
    yield _grid(known, [version], links)


def _grid(known: Known, columns: Sequence[str], links: Links) -> Table:
    devices = sorted({device for name, device in known.gathered.by_version if name in columns})
    rows: list[list[Line]] = [["", *([links.to("version", one)] for one in columns)]]
    for device in devices:
        told = [known.gathered.by_version.get((one, device)) for one in columns]
        rows.append([[links.to("device", device)], *map(_cell, told)])
    return Table("", ["" for _ in rows[0]], rows, "cross")


def _cell(told: StandingCounts | None) -> Line:
    if told is None:
        return ""
    failed = told["failed"]
    tested = failed + told["passed"] + told["known"]
    return Span(
        f"{failed} of {tested}" if failed else f"{tested}", style="bad" if failed else "dim"
    )
