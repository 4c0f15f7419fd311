"""Goes through the steps of a night; its state is on the disk after each, so that it can go on."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import dropwhile
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

from harness.bisect.folder import LOG, BisectFolder
from harness.bisect.new_failures import NewFailure
from harness.core.cache import PRIVATE, cache_root
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.facts import clock
from harness.core.outgoing_text import INSTEAD, counted, outgoing
from harness.core.platform import is_free
from harness.core.whole_file import read_bounded, write_json, write_whole
from harness.history.comparison import FailOn, settled
from harness.history.comparison_text import compared, markdown, page, told
from harness.history.database import HISTORY, open_database
from harness.history.importing import import_run
from harness.history.previous import histories, previous_of, since_previous
from harness.history.run_changes import facts_held
from harness.lab.inventory import load_lab
from harness.nightly.issues import (
    Histories,
    Issue,
    followed,
    issue_text,
    next_search,
    to_bisect,
    to_run_again,
    with_facts,
)
from harness.nightly.night import (
    MOST_CASES,
    STATE,
    STEPS,
    SUFFIX,
    DeviceSeen,
    Night,
    devices_seen,
    lost_devices,
    lost_on,
    nights,
    summary,
    tell_site,
)
from harness.nightly.notifications import (
    ENOUGH_S,
    SENT,
    Message,
    answer_of,
    answered,
    bisection,
    ended,
    first_bad_of,
    notify,
)
from harness.plugin.problem import read_problem
from harness.report.ci import add_to_summary
from harness.report.document import as_code
from harness.report.projections import project
from harness.results.record import CaseRecord
from harness.results.run_folder import (
    INFO,
    JOURNAL,
    RunFolder,
    number_folder,
    point_to,
    run_folders,
)
from harness.runtimes.catalog import Catalog, CatalogEntry

LATEST: Final = "latest-nightly"
PROBLEM: Final = "problem.json"
SUMMARY: Final = "summary.md"
AGAIN: Final = "again.json"
_MAX_BYTES: Final = 64 << 20
_SHARE_AGAIN: Final = 0.2
_LAB_S: Final = 300.0
_ENDING_S: Final = 90.0
"""What a night that was killed had begun is over by then."""
_FAIL_ON: Final = FailOn.parse("new,changed,added,vanished")
_OTHER: Final = "tests without a device, or outputs that drift"
"""A run may fail for something that is in no record, so that nobody knows whether it is new."""
_REFUSED: Final = {
    4: "pytest does not take these arguments, see above; `qnn-harness nightly --help` has ours",
    5: "nothing was selected: pytest found no device test with these arguments; first-night.md "
    "(`qnn-harness --help` says where) begins with one, --pyargs harness.suites runs our suites",
}
_log = logging.getLogger(__name__)


class Chain:
    """A night on its way. `words` are its arguments with the secrets that no file keeps."""

    def __init__(
        self, night: Night, words: Sequence[str], reports: Path, database: str | None
    ) -> None:
        self.night, self.reports = night, reports
        self.path = reports / night.night
        self._words = words
        self._database = database or str(reports / HISTORY)

    @property
    def is_kept(self) -> bool:
        return (self.path / STATE).is_file()

    @property
    def _reports(self) -> str:
        return self.night.named(self.reports)

    def _tell(self, text: str) -> None:
        sys.stderr.write(f"nightly: {outgoing(text)} ({clock(self._left_s)} left)\n")
        sys.stderr.flush()

    def go_on(self) -> Night:
        """Does what is left of it. Raises HarnessError for what it cannot go on without.

        A wrong place of history is found out first of all; one that does not answer now may do so
        in the morning.
        """
        try:
            open_database(self._database)
        except InfraError as error:
            self._note(f"the history does not answer: {error}")
        except ConfigError as error:
            self._failed(error)
            raise
        if self.night.run is not None and not (self._run_path / JOURNAL).is_file():
            self._note(f"its run {self._run_path} is gone: its tests are run anew")
            self._keep(done=tuple(step for step in self.night.done if step == "fetch"), run=None)
        steps = (self._fetch, self._run, self._compare, self._bisect, self._publish)
        while (step := self.night.next_step) is not None:
            self._tell(step)
            try:
                steps[STEPS.index(step)]()
                self._keep(done=(*self.night.done, step))
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                why = error.strerror or error
                problem = InfraError(f"nightly could not {step}: {where}{why}")
                self._failed(problem)
                raise problem from error
            except KeyboardInterrupt:
                run = self._begun_run()
                self._notify(summary(*self._so_far(run), "\nit was interrupted"))
                raise
            except Exception as error:
                self._failed(error)
                raise
        return self.night

    def _so_far(self, run: RunFolder | None) -> tuple[Night, str]:
        """Return the night as it is reported before it is over, and its headline.

        It has no run where that cannot be read, which may be why it is not over.
        """
        night = self.night.not_over(None, None)
        with contextlib.suppress(ConfigError):
            night = self.night.not_over(run.run_id, run.coverage()) if run else night
        return night, f"### Devices: {night.verdict}"

    def _failed(self, error: Exception) -> None:
        """Note why a step failed, and report the night as it is.

        A night that was refused leaves nothing if it was the first of its kind.
        """
        run = self._begun_run()
        refused = isinstance(error, ConfigError) and self.night.verdict is None and run is None
        night, head = self._so_far(run)
        reason = f"\n{as_code(str(error), 500)}"
        with contextlib.suppress(OSError):  # the disk may be what is wrong
            self._keep()
        self._notify(summary(night, head, reason))
        if refused and not any(map(self.night.repeats, self._earlier())):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        with contextlib.suppress(OSError):
            if run is not None:
                self._hold(run)
            self._write_site(night.model_copy(update={"told": (*night.told, str(error))}))
            told = self.night.told
            self._write_summary(summary(night.model_copy(update={"told": told}), head, reason))

    @property
    def _left_s(self) -> float:
        return self.night.left(time.time())

    def _keep(self, **changes: object) -> None:
        self.night = self.night.model_copy(update=changes)
        self.path.mkdir(mode=PRIVATE, exist_ok=True)
        if not (self.path / INFO).exists():
            number_folder(self.path, "nightly")
        write_whole(self.path / STATE, self.night.model_dump_json(indent=1).encode())

    def _note(self, text: object) -> None:
        _log.warning("%s", text)
        self._keep(told=tuple(dict.fromkeys((*self.night.told, str(text)))))

    def _lab(self, before: Iterable[DeviceSeen]) -> tuple[DeviceSeen, ...]:
        if self._left_s < ENOUGH_S or self.night.on_a_simulator:
            return ()
        words = ["devices", "--json", "--lab", self.night.lab]
        _, said = answered(words, min(self._left_s, _LAB_S), self.night.folder)
        return devices_seen(said, before, datetime.now(UTC).isoformat(timespec="seconds"))

    def _earlier(self) -> Iterator[Night]:
        until = dropwhile(lambda one: one.night != self.night.night, nights(self.reports))
        return (one for one in until if one.night != self.night.night)

    def _fetch(self) -> None:
        """What pytest refuses is found out first; what cannot be had is told."""
        lab, look = load_lab(Path(self.night.lab)), ("--collect-only", "-q")
        self._keep()  # pytest says there what is wrong
        code = self._pytest_run(self._left_s, None, *look, stdout=DEVNULL)
        if code in (ConfigError.exit_code, *_REFUSED):
            raise self._refused(code)
        if not self.night.lab_before:
            known = next((one.lab_after or one.lab_before for one in self._earlier()), ())
            self._keep(lab_before=self._lab(known))
        catalog = Catalog.of(lab, os.environ, cache_root())
        for target in sorted({one.target for one in lab.in_use() if one.target}):
            for source in catalog.sources:
                try:
                    for entry in unfetched(catalog.entries_of(source, target)):
                        if self._left_s < ENOUGH_S:
                            return
                        catalog.runtime(entry.name, target)
                        name = f"{entry.name} {target}"
                        self._keep(fetched=(*self.night.fetched, name))
                except HarnessError as error:
                    self._note(f"not fetched: {source.name} {target}: {error}")

    def _pytest_run(
        self, left_s: float, run: RunFolder | None, *more: str, stdout: int = 2
    ) -> int | None:
        """Begins a run, or goes on with it, and waits for its end: its exit code, if it came."""
        words = ["-m", "device", f"--qnn-lab={self.night.lab}", f"--qnn-reports={self.reports}"]
        words += [f"--qnn-problem-file={self.path / PROBLEM}"]
        words += [f"--qnn-resume={run.path}"] if run is not None else []
        words += [*self._words, *more]
        return ended("pytest", words, left_s, cwd=self.night.folder, stdout=stdout)

    def _refused(self, code: int | None) -> HarnessError:
        problem = read_problem(self.path / PROBLEM)
        text = problem.text if problem else _REFUSED.get(code or 0, f"pytest ended with {code}")
        return InfraError(text) if code == InfraError.exit_code else ConfigError(text)

    def _run(self) -> None:
        run, code = self._begun_run(), None
        if run is None or not run.ended_in_order:
            if run is not None:
                is_free(run.path / JOURNAL, min(self._left_s, _ENDING_S))
            code = self._pytest_run(self._left_s, run)
            run = self._begun_run()
            if code is None:
                had = clock(self.night.budget_s)
                problem = f"the night's time of {had} was over before its run{_so_far(run)}"
                raise InfraError(problem)
        if run is None:
            raise self._refused(code)
        if not run.info().get("finished"):
            raise InfraError(f"run {run.run_id} did not end in order ({code}){_so_far(run)}")
        info = run.info()
        code, others = info.get("exit_code"), bool(info.get("other_failures"))
        said = {"run_exit_code": code, "other_failures": others, "run_is_whole": run.ended_in_order}
        self._keep(run=run.run_id, **said)

    def _histories(
        self, run: RunFolder, base: RunFolder | None, known: Iterable[Issue]
    ) -> Histories:
        """What runs before say of the cases that matter tonight.

        What ended otherwise than they did is run again first, in a part of the time that is left.
        """
        also = {case for issue in known if issue.state == "open" for case in issue.cases}
        found = histories(run, base, also)
        records = {one.case: one for one in run.contents().cases}
        times = to_run_again(found, records, self._left_s * _SHARE_AGAIN)
        if not self.night.run_is_whole or (not times and run.ended_in_order):
            return found
        if INSTEAD in " ".join(self._words):
            self._note("not run again: a word for pytest had a secret, which no file keeps")
        elif times:
            most = counted(max(times.values()), "time")
            self._tell(f"run again {counted(len(times), 'case')}, up to {most} each")
            write_json(file := self.path / AGAIN, times)
            if (
                self._pytest_run(2 * self._left_s * _SHARE_AGAIN, run, f"--qnn-again={file}")
                is None
            ):
                self._note("not all that ended otherwise than before was run again in time")
        # only attempts have been added: it ended as it had, also if they were cut short
        code, others = self.night.run_exit_code, self.night.other_failures
        run.end({"problem": None, "exit_code": code, "other_failures": others})
        return histories(run, base, also)

    def _begun_run(self) -> RunFolder | None:
        night = self.night.night
        runs = (RunFolder(one) for one in reversed(run_folders(self.reports)))
        return next((one for one in runs if night in str(one.info().get("command"))), None)

    @property
    def _run_path(self) -> Path:
        return self.reports / str(self.night.run)

    @property
    def _folder(self) -> RunFolder:
        return RunFolder.open(self._run_path)

    def _compare(self) -> None:
        run = self._folder
        before = [one for one in self._earlier() if self.night.follows(one)]
        base = base_of(run, before)
        known = before[0].issues if before else ()
        seen = self._histories(run, base, known)
        found = settled(compared(base, run, _FAIL_ON, late=True), seen)
        records = {one.case: one for one in run.contents().cases}
        flaky = {name for name, one in seen.items() if one.is_flaky and one.now.failed}
        records |= {one.case: one for one in run.contents().records if _fails(one, flaky)}
        ids = {"run": run.run_id, "seen": self.night.started, **self.night.where}
        ids["reports"] = self._reports
        issues = followed(known, found, records, **ids, histories=seen)

        def command(failure: NewFailure) -> list[str] | None:
            return failure.command(self.night.lab, str(self.reports))

        issues = to_bisect(issues, found, records, command, self.night.night, seen)
        also = {
            "flaky": any(one.turned_flaky for one in seen.values()),
            _OTHER: self.night.other_failures or run.info().get("other_failures"),
            "known issues that passed (--strict-known)": found.coverage.strict,
        }
        reasons = [*_FAIL_ON.reasons(found), *(name for name, is_so in also.items() if is_so)]
        whole = told(
            found,
            reasons,
            base=base.run_id if base else None,
            run=run.run_id,
        )
        write_whole(self.path / "comparison.md", markdown(whole).encode())
        write_whole(self.path / "comparison.html", page(whole).encode("utf-8", "replace"))
        self._keep(
            base=base.run_id if base else None,
            verdict=f"{whole.verdict}{self.night.on_a_simulator}",
            coverage=found.coverage,
            lost=lost_on(run.contents().cases),
            failed_on=tuple(reasons),
            new=tuple(found.cases("new")[:MOST_CASES]),
            vanished=tuple(found.cases("vanished")[:MOST_CASES] if "vanished" in reasons else ()),
            issues=issues,
        )

    def _bisect(self) -> None:
        while issue := next_search(self.night.issues, self.night.night):
            search = issue.search
            assert search is not None
            if (left := self._left_s) < ENOUGH_S:
                self._note("no time was left to bisect all that is new")
                return
            self._tell(f"bisect {search.case}")
            begun = BisectFolder.last_of(self.reports, search.case, search.since)
            words = list(search.command)
            if begun is not None:
                words = ["bisect", "--resume", str(begun.path)]
            words += ["--max-minutes", f"{left / 60:.3f}", "--json"]
            if begun is None or is_free(begun.path / LOG, min(left, _ENDING_S)):
                code, result = bisection(words, left, self.night.folder)
            else:  # it is not over: the next night asks again
                self._note(f"another process is at {begun.path}")
                code, result = InfraError.exit_code, None
            begun = BisectFolder.last_of(self.reports, search.case, search.since)
            change = {"exit_code": code, "answer": answer_of(result), "ended_in": self.night.night}
            change["first_bad"] = first_bad_of(result)
            change["folder"] = begun.path.name if begun else None
            new = issue.model_copy(update={"search": search.model_copy(update=change)})
            self._keep(issues=tuple(new if one is issue else one for one in self.night.issues))

    def _publish(self) -> None:
        run = self._folder
        base = RunFolder(self.reports / self.night.base) if self.night.base else None
        project(run, since_previous(run, base))
        self._hold(run)
        self._keep(lab_after=self._lab(self.night.lab_before))
        (self.path / "issues").mkdir(exist_ok=True)
        for issue in self.night.issues:
            write_whole(
                self.path / f"issues/{issue.id}.md", issue_text(issue, self._reports).encode()
            )
        comparison = read_bounded(self.path / "comparison.md", _MAX_BYTES).decode(errors="replace")
        head, _, rest = comparison.partition("\n")
        head = self.night.headline or head
        head += f"{lost_devices(self.night.lost)}{self.night.on_a_simulator}"
        intro, heading, details = rest.partition("\n#### ")
        parts = head, intro.rstrip("\n"), f"{heading}{details}"
        if self.night.is_worth_a_message:
            self._notify(summary(self.night, *parts))
        self._write_site(self.night)
        self._write_summary(summary(self.night, *parts))

    def _hold(self, run: RunFolder) -> None:
        """Takes the run into the history, which knows since when and where causes are."""
        try:
            import_run(history := open_database(self._database), run.path)
            with facts_held(history) as facts:
                self._keep(issues=tuple(with_facts(self.night.issues, facts)))
        except HarnessError as error:
            self._note(f"not in the history: {error}")

    def _notify(self, text: str) -> None:
        message = Message.head_of(text, self.night.night, self.path / SUMMARY)
        for warning in notify(Path(self.night.lab), message, self.path / SENT):
            with contextlib.suppress(OSError):  # of the disk, which may be full
                self._note(warning)

    def _write_site(self, night: Night) -> None:
        try:
            tell_site(night, self._database)
        except HarnessError as error:
            self._note(f"the lab's pages were not written: {error}")

    def _write_summary(self, text: str) -> None:
        """Write summary.md, also for a CI system, and let `latest-nightly` lead to it."""
        write_whole(self.path / SUMMARY, text.encode())
        try:
            add_to_summary(os.environ, text)
        except OSError as error:  # it changes nothing about the night
            self._note(f"CI cannot be told: {error.filename}: {error.strerror}")
        point_to(self.path, LATEST)


def base_of(run: RunFolder, before: Iterable[Night]) -> RunFolder | None:
    """What a night's run is compared with: the whole run of the last of these nights, which are
    over. Without one it is the last run of the same cases that no night made.

    A night that died before it was over told nobody what it saw, which would then not be new.
    """
    for night in before:
        with contextlib.suppress(ConfigError):
            found = RunFolder.open(run.path.parent / str(night.run))
            if found.ended_in_order:
                return found
    try:
        found = previous_of(run)
    except ConfigError:
        return None
    return None if f"{SUFFIX}/{PROBLEM}" in str(found.info().get("command")) else found


def unfetched(entries: Sequence[CatalogEntry]) -> Sequence[CatalogEntry]:
    """What is new at a source: newer than all that is here, else the newest (pure)."""
    here = [number for number, one in enumerate(entries) if one.cached]
    return entries[here[-1] + 1 :] if here else entries[-1:]


def _fails(record: CaseRecord, among: Collection[str]) -> bool:
    return record.case in among and record.is_bad and record.cause == "target"


def _so_far(run: RunFolder | None) -> str:
    return "" if run is None else f": {run.coverage().headline}"
