"""Writes the site: pages whose words have changed, each whole or not at all."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness import __version__
from harness.answers.history.database import Database
from harness.answers.history.importing import runs_held
from harness.answers.history.nights import NightTold, nights_held
from harness.answers.history.run_changes import (
    WINDOW,
    Harvest,
    causes_held,
    device_rows,
    earlier_runs,
    lines_by_test,
)
from harness.answers.history.timeline import MARKS, CaseLine, RunHeld
from harness.answers.report.bisections import listed as bisection_table
from harness.answers.report.document import Heading
from harness.answers.site.case_page import ListedTest, case_page, case_row, cases_page
from harness.answers.site.cause_page import cause_page, causes_page
from harness.answers.site.device_page import device_page, devices_page
from harness.answers.site.kept_pages import KeptPages, keep_pages
from harness.answers.site.links import FRONT, page_of
from harness.answers.site.night_page import front_page, night_page, nights_page, sentence
from harness.answers.site.pages import Known, framed
from harness.ground.errors import InfraError
from harness.ground.files.bounded_json import parse_model
from harness.ground.files.schema_field import Schema1
from harness.ground.files.whole_file import read_bounded, write_whole
from harness.verdict.failure.error import Part
from harness.verdict.results.journal import uncollected

NOTE: Final = "site.json"
_MAX_BYTES: Final = 256 << 20


@dataclass
class Built:
    """How many pages of the site in a folder were written, and how many were as they ought to be
    already."""

    out: Path
    written: int = 0
    kept: int = 0
    seconds: float = 0.0

    def write(self, name: str, page: str) -> None:
        """Write a page, unless it is there."""
        path, data = self.out / name, page.encode("utf-8", "replace")
        if path.is_file() and path.read_bytes() == data:
            self.kept += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        self.written += 1


class NightWritten(Part):
    """A night whose page is written: the digest of all that it is made of, and its sentence."""

    digest: str
    said: str


class SiteNote(Part):
    """What a site remembers of the nights that it has pages of, by the ids of their runs."""

    schema_number: Schema1 = 1
    kind: Literal["site"] = "site"
    nights: Mapping[str, NightWritten] = {}

    @classmethod
    def read(cls, out: Path) -> SiteNote:
        """That of a folder; an empty one where there is none that can be read."""
        try:
            return parse_model(cls, read_bounded(out / NOTE, _MAX_BYTES))
        except (OSError, ValueError):
            return cls()


@uncollected()
def build(database: Database, out: Path) -> Built:
    """Makes the site say what the history says. Raises InfraError."""
    began, site = time.monotonic(), Built(out)
    runs, nights, note = runs_held(database), nights_held(database), SiteNote.read(out)
    try:
        kept = keep_pages(database, nights, out)
        digests = dict(_digests(runs, nights, kept))
        anew = [
            at
            for at, one in enumerate(runs)
            if one.run not in note.nights or note.nights[one.run].digest != digests[one.run]
        ]
        told = min([max(0, len(runs) - MARKS), *anew])
        with Harvest(max(0, len(runs) - MARKS)) as gathered:
            known = Known(
                runs,
                gathered,
                device_rows(database, runs, max(0, len(runs) - WINDOW)),
                nights,
                causes_held(database, runs),
                kept,
            )
            _of_cases(site, database, known, told)
            _of_the_rest(site, known, told)
            said = {run: one for run, one in note.nights.items() if run in digests}
            for at in anew:
                run, changes = runs[at].run, gathered.of_night(at)
                site.write(page_of("night", run), night_page(known, at, changes))
                said[run] = NightWritten(digest=digests[run], said=sentence(known, at, changes))
            site.write(
                "nights.html", nights_page(known, {run: one.said for run, one in said.items()})
            )
            site.write(FRONT, front_page(known))
            write_whole(out / NOTE, SiteNote(nights=said).model_dump_json(by_alias=True).encode())
    except OSError as error:
        raise InfraError(f"the site cannot be written: {error}") from error
    site.seconds = time.monotonic() - began
    return site


def _digests(
    runs: Sequence[RunHeld], nights: Mapping[str, NightTold], kept: KeptPages
) -> Iterator[tuple[str, str]]:
    """What tells whether the page of a run would be another one: its own cases, what was before it,
    what its night said, and how pages look."""
    look = hashlib.sha256((__version__ + framed("", ())).encode()).hexdigest()
    before = look
    for one in runs:
        night = nights.get(one.run)
        parts = (
            before,
            one.run,
            one.digest,
            str(one.not_run),
            night.model_dump_json() if night else "",
            kept.run(one.run) + kept.comparison(night.night if night else ""),
        )
        yield one.run, hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()
        before = look + one.run


def _of_cases(site: Built, database: Database, known: Known, told: int) -> None:
    """Gathers what became of cases, and writes their pages on the way: none is held for longer."""
    first, listed = max(0, min(told - MARKS, len(known.runs) - WINDOW)), list[ListedTest]()
    for test, kins in lines_by_test(database, known.runs, first):
        known.gathered.take(kins, told, database, known.runs[:first])
        for kin in kins:
            for line in kin.drawn:
                if line.turned == line.seen[0].at:  # it may have been so before what is drawn
                    runs = known.runs[: line.turned] if line.fails else ()
                    through = CaseLine.of([*earlier_runs(database, runs, kin, line), *line.seen])
                    line.turned = through.turned if through.good else -1
        if lines := [line for kin in kins for line in kin.drawn]:
            site.write(page_of("case", test), case_page(known, test, lines))
            listed.append(case_row(known, test, lines))
    known.gathered.index()
    site.write("cases.html", cases_page(listed))


def _of_the_rest(site: Built, known: Known, told: int) -> None:
    for one in known.causes:
        # of one that was gone before its page was last written, nothing has changed
        if one.last >= told - 1 or not (site.out / page_of("cause", one.cause)).is_file():
            site.write(page_of("cause", one.cause), cause_page(known, one))
    site.write("causes.html", causes_page(known))
    for device in known.device_names():
        site.write(page_of("device", device), device_page(known, device))
    site.write("devices.html", devices_page(known))
    blocks = Heading("Bisections", 1), bisection_table(known.kept.bisections, "reports/")
    site.write("bisections.html", framed("Bisections", blocks, here="Bisections", up=""))
