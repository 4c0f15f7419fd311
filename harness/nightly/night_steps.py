"""The steps of a night; its state is saved after each, so that it can be resumed."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import dropwhile
from pathlib import Path
from subprocess import DEVNULL
from typing import IO, Any, Final

from harness.bisect.folder import LOG, BisectFolder
from harness.bisect.new_failures import NewFailure
from harness.core.bounded_json import parse_json
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, HarnessError, InfraError
from harness.core.files import read_bounded, write_json, write_whole
from harness.core.guarded_process import RUN_GRACE_S, spawn_guarded
from harness.core.linux_processes import is_free
from harness.core.outgoing_text import REDACTED, clock, counted, outgoing
from harness.core.state_folders import PRIVATE, cache_root
from harness.history.comparison import FailOn, apply_history
from harness.history.comparison_text import compare_folders, markdown, page, view_of
from harness.history.database import history_of_reports, open_database
from harness.history.importing import import_run
from harness.history.previous_run import histories, previous_of, since_previous
from harness.history.run_changes import facts_lookup
from harness.lab.inventory import load_lab
from harness.nightly.issues import (
    Histories,
    Issue,
    add_facts,
    add_searches,
    follow_issues,
    issue_text,
    next_search,
    rerun_counts,
)
from harness.nightly.night import (
    MOST_CASES,
    STATE,
    STEPS,
    SUFFIX,
    DeviceSeen,
    Night,
    lost_by_device,
    lost_devices,
    nights,
    publish_site,
    read_devices,
    summary,
)
from harness.notify.messages import SENT, Message, notify
from harness.plugin.problem_file import read_problem
from harness.report.ci import add_to_summary
from harness.report.document import as_code
from harness.report.report_files import project
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
_MIN_STEP_S: Final = 10.0
"""With less time than this nothing is started."""
_LAB_S: Final = 300.0
_ENDING_S: Final = 90.0
"""The time in which a process of a killed night ends."""
_FAIL_ON: Final = FailOn.parse("new,changed,added,vanished")
_LAST_RUN_S: Final = 2400.0
"""The time of a bisection after its limit, for the run under way and the reports."""
_OTHER: Final = "tests without a device, or outputs that drift"
"""Failures of a run that are in no record, so that nobody knows whether they are new."""
_REFUSED: Final = {
    4: "pytest does not accept these arguments, see above; options of nightly itself stand before "
    "`--`",
    5: "pytest found no device test with these arguments; write one (howto/write-tests.md of the "
    "pages that `qnn-harness --help` names), or use --pyargs harness.suites for the suites of "
    "qnn-harness",
}
_log = logging.getLogger(__name__)


class Chain:
    """A night in progress. `words` are its arguments, with the secrets that no file keeps."""

    def __init__(self, night: Night, words: Sequence[str], reports: Path) -> None:
        self.night, self.reports = night, reports
        self.path = reports / night.night
        self._words = words
        self._database = history_of_reports(reports)

    @property
    def is_kept(self) -> bool:
        return (self.path / STATE).is_file()

    def _report(self, text: str) -> None:
        sys.stderr.write(f"nightly: {outgoing(text)} ({clock(self._left_s)} left)\n")
        sys.stderr.flush()

    def go_on(self) -> Night:
        """Run the remaining steps. Raises HarnessError if it cannot go on.

        A wrong database is an error from the start; one that does not answer now may do so in the
        morning.
        """
        try:
            open_database(self._database)
        except InfraError as error:
            self._note(f"the history is not available: {error}")
        except ConfigError as error:
            self._failed(error)
            raise
        path = self.reports / str(self.night.run)
        if self.night.run is not None and not (path / JOURNAL).is_file():
            self._note(f"its run {path} no longer exists; running its tests again")
            self._save(done=tuple(step for step in self.night.done if step == "fetch"), run=None)
        steps = (self._fetch, self._run, self._compare, self._bisect, self._publish)
        while (step := self.night.next_step) is not None:
            self._report(step)
            try:
                steps[STEPS.index(step)]()
                self._save(done=(*self.night.done, step))
            except KeyboardInterrupt:
                run = self._begun_run()
                self._notify(summary(*self._so_far(run), "\nit was interrupted"))
                raise
            except Exception as error:
                problem: Exception = error
                if isinstance(error, OSError):
                    place = f"{error.filename}: " if error.filename else ""
                    why = error.strerror or error
                    problem = InfraError(f"nightly could not {step}: {place}{why}")
                self._failed(problem)
                if problem is error:
                    raise
                raise problem from error
        return self.night

    def _so_far(self, run: RunFolder | None) -> tuple[Night, str]:
        """Return the unfinished night as it is reported, and its headline."""
        night = self.night.as_unfinished(None, None)
        with contextlib.suppress(ConfigError):  # an unreadable run may be why it is unfinished
            night = self.night.as_unfinished(run.run_id, run.coverage()) if run else night
        return night, f"### Devices: {night.verdict}"

    def _failed(self, error: Exception) -> None:
        run = self._begun_run()
        refused = isinstance(error, ConfigError) and self.night.verdict is None and run is None
        night, head = self._so_far(run)
        reason = f"\n{as_code(str(error), 500)}"
        with contextlib.suppress(OSError):  # the disk may be the problem
            self._save()
        self._notify(summary(night, head, reason))
        similar = (night for night in self._earlier() if self.night.follows(night))
        if refused and all(night.lab != self.night.lab for night in similar):  # it is the first
            shutil.rmtree(self.path, ignore_errors=True)
            return
        with contextlib.suppress(OSError):
            if run is not None:
                self._import(run)
            self._write_site(night.model_copy(update={"warnings": (*night.warnings, str(error))}))
            night = night.model_copy(update={"warnings": self.night.warnings})
            self._write_summary(summary(night, head, reason))

    @property
    def _left_s(self) -> float:
        return self.night.remaining(time.time())

    def _save(self, **changes: object) -> None:
        self.night = self.night.model_copy(update=changes)
        self.path.mkdir(mode=PRIVATE, exist_ok=True)
        if not (self.path / INFO).exists():
            number_folder(self.path, "nightly")
        write_whole(self.path / STATE, self.night.model_dump_json(indent=1).encode())

    def _note(self, text: object) -> None:
        _log.warning("%s", text)
        self._save(warnings=tuple(dict.fromkeys((*self.night.warnings, str(text)))))

    def _lab(self, before: Iterable[DeviceSeen]) -> tuple[DeviceSeen, ...]:
        if self._left_s < _MIN_STEP_S or self.night.on_a_simulator:
            return ()
        words = ["devices", "list", "--json", "--lab", self.night.lab]
        _, answer = _run_command(words, min(self._left_s, _LAB_S), self.night.folder)
        return read_devices(answer, before, datetime.now(UTC).isoformat(timespec="seconds"))

    def _earlier(self) -> Iterator[Night]:
        until = dropwhile(lambda night: night.night != self.night.night, nights(self.reports))
        return (night for night in until if night.night != self.night.night)

    def _fetch(self) -> None:
        """Check the arguments with pytest, then fetch runtimes; note those that cannot be had."""
        lab, collect = load_lab(Path(self.night.lab)), ("--collect-only", "-q")
        self._save()  # creates the folder for pytest's problem file
        code = self._pytest_run(self._left_s, None, *collect, stdout=DEVNULL)
        if code in (ConfigError.exit_code, *_REFUSED):
            raise self._refused(code)
        if not self.night.lab_before:
            known = next((night.lab_after or night.lab_before for night in self._earlier()), ())
            self._save(lab_before=self._lab(known))
        catalog = Catalog.of(lab, os.environ, cache_root())
        for target in sorted({device.target for device in lab.enabled_devices() if device.target}):
            for source in catalog.sources:
                try:
                    for entry in new_entries(catalog.entries_of(source, target)):
                        if self._left_s < _MIN_STEP_S:
                            return
                        catalog.runtime(entry.name, target)
                        self._save(fetched=(*self.night.fetched, f"{entry.name} {target}"))
                except HarnessError as error:
                    self._note(f"not fetched: {source.name} {target}: {error}")

    def _pytest_run(
        self, left_s: float, run: RunFolder | None, *more: str, stdout: int = 2
    ) -> int | None:
        """Start or resume a run, and return its exit code; None if the time was over."""
        words = ["-m", "device", f"--qnn-lab={self.night.lab}", f"--qnn-reports={self.reports}"]
        words += ["-o", f"qnn_problem_file={self.path / PROBLEM}"]
        words += [f"--qnn-resume={run.path}"] if run is not None else []
        words += [*self._words, *more]
        return _run_module("pytest", words, left_s, cwd=self.night.folder, stdout=stdout)

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
                budget = f"the time of the night ({clock(self.night.budget_s)})"
                raise InfraError(f"{budget} was over before its run ended{_so_far(run)}")
        if run is None:
            raise self._refused(code)
        if not run.info().get("finished"):
            raise InfraError(f"run {run.run_id} ended early (exit code {code}){_so_far(run)}")
        info = run.info()
        left_out = (f"left out: {why}" for why in info.get("left_out", ()))
        for text in (*info.get("plugin_errors", ()), *left_out):
            self._note(text)
        code, others = info.get("exit_code"), bool(info.get("other_failures"))
        ending = {"run_exit_code": code, "other_failures": others}
        self._save(run=run.run_id, run_is_whole=run.ended_in_order, **ending)

    def _histories(
        self, run: RunFolder, base: RunFolder | None, known: Iterable[Issue]
    ) -> Histories:
        """Run cases again that ended otherwise than before, in a part of the time left."""
        also = {case for issue in known if issue.state == "open" for case in issue.cases}
        by_case = histories(run, base, also)
        records = {record.case: record for record in run.contents().cases}
        times = rerun_counts(by_case, records, self._left_s * _SHARE_AGAIN)
        if not self.night.run_is_whole or (not times and run.ended_in_order):
            return by_case
        if REDACTED in " ".join(self._words):
            self._note(
                "cases were not run again: an argument for pytest had a secret, which is not stored"
            )
        elif times:
            most = counted(max(times.values()), "time")
            self._report(f"run again {counted(len(times), 'case')}, up to {most} each")
            write_json(file := self.path / AGAIN, times)
            room_s = 2 * self._left_s * _SHARE_AGAIN
            if self._pytest_run(room_s, run, "-o", f"qnn_again={file}") is None:
                self._note("there was no time left to run all cases with a changed outcome again")
        # only attempts have been added: the run keeps its end, even if these were cut short
        code, others = self.night.run_exit_code, self.night.other_failures
        run.end({"problem": None, "exit_code": code, "other_failures": others})
        return histories(run, base, also)

    def _begun_run(self) -> RunFolder | None:
        night = self.night.night
        runs = (RunFolder(folder) for folder in reversed(run_folders(self.reports)))
        return next((run for run in runs if night in str(run.info().get("command"))), None)

    def _compare(self) -> None:
        run = RunFolder.open(self.reports / str(self.night.run))
        before = [night for night in self._earlier() if self.night.follows(night)]
        base = base_of(run, before)
        known = before[0].issues if before else ()
        by_case = self._histories(run, base, known)
        comparison = apply_history(compare_folders(base, run, _FAIL_ON, late=True), by_case)
        records = {record.case: record for record in run.contents().cases}
        flaky = {name for name, case in by_case.items() if case.is_flaky and case.now.failed}
        records |= {
            record.case: record
            for record in run.contents().records
            if record.case in flaky and record.is_bad and record.cause == "target"
        }
        ids = {"run": run.run_id, "started": self.night.started, **self.night.place}
        ids["reports"] = self.night.named(self.reports)
        issues = follow_issues(known, comparison, records, **ids, histories=by_case)

        def command(failure: NewFailure) -> list[str] | None:
            return failure.command(self.night.lab, str(self.reports))

        issues = add_searches(issues, comparison, records, command, self.night.night, by_case)
        also = {
            "flaky": any(case.turned_flaky for case in by_case.values()),
            _OTHER: self.night.other_failures or run.info().get("other_failures"),
            "known issues that passed (qnn_strict_known)": comparison.coverage.strict,
        }
        reasons = [*_FAIL_ON.reasons(comparison), *(name for name, is_so in also.items() if is_so)]
        base_id = base.run_id if base else None
        whole = view_of(comparison, reasons, base=base_id, run=run.run_id)
        write_whole(self.path / "comparison.md", markdown(whole).encode())
        write_whole(self.path / "comparison.html", page(whole).encode("utf-8", "replace"))
        self._save(
            base=base_id,
            verdict=f"{whole.verdict}{self.night.on_a_simulator}",
            coverage=comparison.coverage,
            lost=lost_by_device(run.contents().cases),
            failed_on=tuple(reasons),
            new=tuple(comparison.cases("new")[:MOST_CASES]),
            vanished=tuple(
                comparison.cases("vanished")[:MOST_CASES] if "vanished" in reasons else ()
            ),
            issues=issues,
        )

    def _bisect(self) -> None:
        while issue := next_search(self.night.issues, self.night.night):
            search = issue.search
            assert search is not None
            if (left_s := self._left_s) < _MIN_STEP_S:
                self._note("there was no time left to bisect all new failures")
                return
            self._report(f"bisect {search.case}")
            folder = BisectFolder.last_of(self.reports, search.case, search.since)
            words = list(search.command)
            if folder is not None:
                words = ["bisect", "--resume", str(folder.path)]
            words += ["--timeout", f"{int(left_s)}s", "--json"]
            if folder is None or is_free(folder.path / LOG, min(left_s, _ENDING_S)):
                code, result = _run_command(words, left_s + _LAST_RUN_S, self.night.folder)
            else:  # it is not over: the next night tries again
                self._note(f"another process is running {folder.path}")
                code, result = InfraError.exit_code, None
            folder = BisectFolder.last_of(self.reports, search.case, search.since)
            change = {"exit_code": code, "ended_in": self.night.night, "answer": _answer_in(result)}
            change["folder"] = folder.path.name if folder else None
            new = issue.model_copy(update={"search": search.model_copy(update=change)})
            self._save(issues=tuple(new if each is issue else each for each in self.night.issues))

    def _publish(self) -> None:
        run = RunFolder.open(self.reports / str(self.night.run))
        base = RunFolder(self.reports / self.night.base) if self.night.base else None
        project(run, since_previous(run, base))
        self._import(run)
        self._save(lab_after=self._lab(self.night.lab_before))
        (self.path / "issues").mkdir(exist_ok=True)
        for issue in self.night.issues:
            write_whole(
                self.path / f"issues/{issue.id}.md",
                issue_text(issue, self.night.named(self.reports)).encode(),
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

    def _import(self, run: RunFolder) -> None:
        try:
            import_run(history := open_database(self._database), run.path)
            self._save(issues=tuple(add_facts(self.night.issues, facts_lookup(history))))
        except HarnessError as error:
            self._note(f"not in the history: {error}")

    def _notify(self, text: str) -> None:
        message = Message.head_of(text, self.night.night, self.path / SUMMARY)
        for warning in notify(Path(self.night.lab), message, self.path / SENT):
            with contextlib.suppress(OSError):  # of the disk, which may be full
                self._note(warning)

    def _write_site(self, night: Night) -> None:
        try:
            publish_site(night, self._database)
        except HarnessError as error:
            self._note(f"the lab's pages were not written: {error}")

    def _write_summary(self, text: str) -> None:
        write_whole(self.path / SUMMARY, text.encode())
        try:
            add_to_summary(os.environ, text)
        except OSError as error:  # it changes nothing about the night
            self._note(f"cannot report to CI: {error.filename}: {error.strerror}")
        point_to(self.path, LATEST)


def base_of(run: RunFolder, before: Iterable[Night]) -> RunFolder | None:
    """Return the base of a night's run: the whole run of the last of these finished nights.

    Without one, it is the last run of the same cases outside of nights. A night that died reported
    nothing, so that its failures are still new.
    """
    for night in before:
        with contextlib.suppress(ConfigError):
            base = RunFolder.open(run.path.parent / str(night.run))
            if base.ended_in_order:
                return base
    try:
        base = previous_of(run)
    except ConfigError:
        return None
    return None if f"{SUFFIX}/{PROBLEM}" in str(base.info().get("command")) else base


def new_entries(entries: Sequence[CatalogEntry]) -> Sequence[CatalogEntry]:
    """Return the entries newer than all cached ones; without any, the newest one (pure)."""
    here = [number for number, entry in enumerate(entries) if entry.cached]
    return entries[here[-1] + 1 :] if here else entries[-1:]


def _so_far(run: RunFolder | None) -> str:
    return "" if run is None else f": {run.coverage().headline()}"


def _run_module(
    module: str,
    words: Sequence[str],
    left_s: float,
    *,
    cwd: str | None = None,
    stdout: int | IO[bytes] | None = None,
) -> int | None:
    """Run a module, and return its exit code; None if it was ended because the time was over.

    Its results up to then are on the disk. Raises InfraError if it cannot be started.
    """
    command = [sys.executable, "-m", module, *words]
    grace_s = 2 * RUN_GRACE_S  # a bisection ends its own run first
    with spawn_guarded(command, cwd=cwd, stdout=stdout, stderr=None, grace_s=grace_s) as process:
        if (code := process.wait(Deadline(left_s))) is None:
            # pytest's progress letters have no line end yet
            begin, name = ("\n", "the run") if module == "pytest" else ("", words[0])
            sys.stderr.write(f"{begin}nightly: the time is over; ending {name}\n")
        return code


def _run_command(words: Sequence[str], left_s: float, cwd: str | None) -> tuple[int | None, Any]:
    """Run a command of ours; return its exit code, and the JSON that it printed."""
    with tempfile.TemporaryFile() as output:
        code = _run_module("harness.cli.main", words, left_s, cwd=cwd, stdout=output)
        output.seek(0)
        try:
            return code, parse_json(output.read(_MAX_BYTES))
        except ValueError:
            return code, None


def _answer_in(result: Any) -> str | None:
    """Return the answer of a bisection's JSON."""
    answer = (result.get("answer") if isinstance(result, dict) else None) or {}
    text = answer.get("text")
    return text if isinstance(text, str) else None
