"""What a tracker is told of a cause: a case of it, its log, and where else it is (pure)."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from harness.answers.report.again import again
from harness.answers.report.document import Line, Paragraph, Table, as_code, code
from harness.ground.facts.axes import VERSIONS
from harness.run.pytest_plugin.own_contexts import is_of_a_file
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import VERDICTS
from harness.verdict.results.record import CaseRecord

_LOG_LINES: Final = 12
_PLACES: Final = 200
_ROWS: Final = 40
_COLUMNS: Final = 8


class PlaceTried(Part):
    """How many of the cases that were tried on a device, with some versions, fail so there, also as
    a known issue expects, or lack a verdict for this reason; and how many fail `otherwise`."""

    device: str
    kind: str
    versions: str
    failed: int
    tested: int
    otherwise: int = 0


class Example(Part):
    """A case that failed so: what it ran on and with, what was logged, and how the same tests did
    in all `places` that were tried. The `command` runs it again, from the `folder`.

    `logs` is its folder among the reports, `bundle` the command that packs it for others, if it can
    be packed.
    """

    ran: tuple[str, ...]
    log: tuple[str, ...]
    places: tuple[PlaceTried, ...] = ()
    command: tuple[str, ...]
    folder: str = ""
    logs: str | None = None
    bundle: tuple[str, ...] | None = None


def example_of(
    record: CaseRecord,
    failing: Sequence[str],
    records: Mapping[str, CaseRecord],
    *,
    run: str,
    lab: str,
    folder: str = "",
    reports: str = "reports",
) -> Example:
    """That of one of the cases that fail of one cause in a run; `records` has all.

    `reports` is how the folder with the run is named in `folder`.
    """
    error = record.error
    chain = (
        [f"{one.source}: {one.symbol or one.hex or ''} {one.message}" for one in error.chain]
        if error
        else []
    )
    said = chain or (error.message.splitlines() if error else [])
    left = record.logs[0].rpartition("/")[0] if record.logs else None
    words = ("qnn-harness", "contexts", "bundle", record.case, "--run", str(PurePath(reports, run)))
    return Example(
        ran=tuple(_ran(record)),
        log=tuple(" ".join(line.split())[:300] for line in said[:_LOG_LINES]),
        places=tuple(_places(set(failing), records)),
        command=tuple(again(record, f"--qnn-lab={lab}")),
        folder=folder,
        logs=str(PurePath(reports, run, left)) if left else None,
        bundle=words if is_of_a_file(record.case) else None,
    )


def _ran(record: CaseRecord) -> Iterator[str]:
    device, runtime = record.device, record.runtime
    if device is not None:
        kind = (device.soc, device.target, "simulated" if device.simulated else None)
        yield f"device {device.name} ({', '.join(filter(None, kind))})"
        if build := (device.model_extra or {}).get("os_build"):
            yield f"OS {build}"
    if runtime is not None:
        yield f"QNN {runtime.qnn}, build {runtime.build_id or 'not known'}"
        yield from (f"ONNX Runtime {one}" for one in (runtime.ort,) if one)
        yield from (f"contexts by QNN {one}" for one in (runtime.contexts_by,) if one)


def _places(failing: set[str], records: Mapping[str, CaseRecord]) -> Iterator[PlaceTried]:
    """Where the tests that fail so were run; where they fail comes first."""
    tests = {records[name].test for name in failing}
    failures = {_failure(records[name]) for name in failing}
    seen: dict[tuple[str, str, str], Counter[str]] = {}
    for record in records.values():
        tried = record.case in failing or record.standing in VERDICTS
        if record.test in tests and tried and record.device is not None:
            versions = ", ".join(
                f"{axis} {record.axes[axis]}" for axis in VERSIONS if record.axes.get(axis)
            )
            kind = record.device.soc or record.device.target or "?"
            counts = seen.setdefault((record.device.name, kind, versions), Counter())
            counts["tested"] += 1
            if record.case in failing or _failure(record) in failures:
                counts["failed"] += 1
            elif record.is_bad:
                counts["otherwise"] += 1
    order = sorted(seen.items(), key=lambda item: (not item[1]["failed"], item[0]))
    for (device, kind, versions), counts in order[:_PLACES]:
        yield PlaceTried(
            device=device,
            kind=kind,
            versions=versions,
            failed=counts["failed"],
            tested=counts["tested"],
            otherwise=counts["otherwise"],
        )


def _failure(record: CaseRecord) -> tuple[str, str | None]:
    return record.outcome, record.error.signature if record.error else None


def grid(places: Sequence[PlaceTried], became: str = "fails") -> list[Table | Paragraph]:
    """Devices down, the last versions across: how many became that, of those tried."""
    columns = sorted({one.versions for one in places}, key=_order)[-_COLUMNS:]
    rows: dict[tuple[str, str], dict[str, Line]] = {}
    for one in places:
        good = not one.failed and not one.otherwise
        mark = "❌" if one.failed == one.tested else "✅" if good else "⚠️"
        otherwise = f", {one.otherwise} otherwise" if one.otherwise else ""
        row = rows.setdefault((one.device, one.kind), {})
        row[one.versions] = f"{mark} {one.failed} of {one.tested}{otherwise}"
    table: list[list[Line]] = [
        [[code(device), " (", code(kind), ")"], *(row.get(name, "-") for name in columns)]
        for (device, kind), row in rows.items()
    ]
    titles = [became, *(as_code(name or "no versions") for name in columns)]
    more = [Paragraph(f"and {len(table) - _ROWS} devices more")] if len(table) > _ROWS else []
    return [Table("", titles, table[:_ROWS]), *more]


def _order(versions: str) -> list[tuple[int, str]]:
    return [(int(one), "") if one.isdigit() else (0, one) for one in re.split(r"(\d+)", versions)]


def example_lines(example: Example) -> Iterator[str]:
    """The same in Markdown, in which all that others said is code."""
    yield f"- seen on: {', '.join(as_code(one, 300) for one in example.ran) or 'nothing'}"
    if example.log:
        yield "- log:"
        yield from (f"  - {as_code(line, 320)}" for line in example.log)
    where = f", in {as_code(example.folder)}" if example.folder else ""
    yield f"- to reproduce{where}: {as_code(shlex.join(example.command), 2000)}"
    if example.logs:
        yield f"- what it left: {as_code(example.logs)}"
    if example.bundle:
        yield f"- packed for others by: {as_code(shlex.join(example.bundle), 2000)}"
