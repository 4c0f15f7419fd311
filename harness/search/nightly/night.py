"""A night as it is kept on the disk, and what is to be done next (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final, Literal, get_args

from harness.answers.report.document import as_code
from harness.device.lab.inventory import SIMULATED_LAB
from harness.ground.errors import ConfigError
from harness.ground.errors.outgoing_text import INSTEAD, counted
from harness.ground.files.schema_field import Schema1
from harness.search.nightly.issue_text import bisected, facts, run_again, title
from harness.search.nightly.issues import FlatName, Issue
from harness.search.nightly.lab_seen import DeviceSeen, lab_lines
from harness.verdict.failure.error import Part
from harness.verdict.results.coverage import Coverage

NightStep = Literal["fetch", "run", "compare", "bisect", "publish"]
STEPS: Final[tuple[NightStep, ...]] = get_args(NightStep)
MOST_VANISHED: Final = 200
"""So many cases that vanished are named."""


class Night(Part):
    """What a night was asked for, what of it is done, and what came of that.

    `until` is the end of its time, in seconds since 1970; `database` is where the history is, if
    that was said, without its password; `site` is the folder of the lab's pages. `run` and `base`
    are the ids of its run and of the one it was compared with. `run_is_whole` tells that nothing
    cut the run short, `other_failures` whether it failed for what is in no record. `lab_before` and
    `lab_after` are how devices were when it began and ended, `lost` is how many cases were not
    tested on each. `coverage` is how many of its cases have a verdict, `failed_on` what of it is
    new and bad. `vanished` are the first cases that are so, if it is that.
    `told` is what went wrong without ending it.
    """

    schema_number: Schema1 = 1
    kind: Literal["nightly"] = "nightly"
    night: FlatName
    started: str
    arguments: tuple[str, ...]
    selection: tuple[str, ...]
    lab: str
    folder: str
    database: str | None = None
    site: str | None = None
    budget_s: float
    until: float
    done: tuple[NightStep, ...] = ()
    lab_before: tuple[DeviceSeen, ...] = ()
    lab_after: tuple[DeviceSeen, ...] = ()
    lost: Mapping[str, int] = {}
    fetched: tuple[str, ...] = ()
    run: FlatName | None = None
    run_exit_code: int | None = None
    run_is_whole: bool = False
    other_failures: bool = False
    base: FlatName | None = None
    verdict: str | None = None
    coverage: Coverage | None = None
    failed_on: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    issues: tuple[Issue, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def next_step(self) -> NightStep | None:
        return next((step for step in STEPS if step not in self.done), None)

    def not_over(self, run: str | None, coverage: Coverage | None) -> Night:
        """Return the night as it is reported once a step failed; `run` is the one it had begun."""
        so_far = self.verdict or (coverage.headline if coverage else "no case was run")
        change = {"verdict": f"not over: {so_far}", "run": run, "coverage": coverage}
        return self.model_copy(update=change)

    @property
    def exit_code(self) -> int:
        """1 if something new fails; else 2 or 3 if verdicts are missing, or as its run ended; else
        0.
        """
        if self.failed_on:
            return 1
        if self.coverage is not None and self.coverage.lost_code:
            return self.coverage.lost_code
        if self.run_exit_code in (0, 1):
            return 0
        return 2 if self.run_exit_code == 2 else 3

    @property
    def headline(self) -> str:
        """What its exit code means, where the comparison of its run does not say it."""
        ended = self.exit_code and not (
            self.failed_on or (self.coverage and self.coverage.lost_code)
        )
        return f"### Devices: the run ended with {self.run_exit_code}" if ended else ""

    @property
    def is_worth_a_message(self) -> bool:
        closed = [issue for issue in self.issues if issue.closed == self.started]
        return bool(self.exit_code) or any(not issue.known_issues for issue in closed)

    @property
    def issues_told(self) -> list[Issue]:
        return [one for one in self.issues if one.state == "open" or one.closed == self.started]

    @property
    def where(self) -> dict[str, str]:
        return {"folder": self.folder, "lab": self.named(PurePath(self.lab))}

    def named(self, path: PurePath) -> str:
        """A path as it is named in the folder that the night was begun in."""
        return str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)

    @property
    def on_a_simulator(self) -> str:
        if self.lab != str(SIMULATED_LAB):
            return ""
        return "; run on a simulated device of this computer: no devices.yaml was there"

    @property
    def lab_lines(self) -> tuple[str, ...]:
        return tuple(lab_lines(self.lab_before, self.lab_after, self.lost))

    def left(self, now: float) -> float:
        """How many seconds of its time are left; never more than it had, whatever the clock did."""
        return min(max(self.until - now, 0.0), self.budget_s)

    def goes_on_with(self, other: Night, now: float) -> bool:
        """Whether another night, asked for by these words in this place, has work and time left."""
        names = ("arguments", "lab", "folder", "database", "budget_s")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and other.next_step is not None and other.left(now) > 0

    def resumed(self, asked: Night, now: float, *, budget: bool, database: bool) -> Night:
        """This night with its whole time again, and with the `budget` and the `database` that
        another was asked for, if they were named. Raises ConfigError for other arguments.

        Words that were not named again must be whole: a secret in them was not kept.
        """
        if asked.arguments and asked.arguments != self.arguments:
            problem = "goes on with what was asked before: no arguments, or the same ones"
            raise ConfigError(problem, field="--resume")
        if not asked.arguments and "run" not in self.done and INSTEAD in " ".join(self.arguments):
            problem = "a word for pytest had a secret, which no file keeps: name all of them again"
            raise ConfigError(problem, field="--resume")
        where = asked.database if database else self.database
        if INSTEAD in (where or "") and where != asked.database:
            problem = f"{where} had a password, which no file keeps: name it again"
            raise ConfigError(problem, field="--database")
        time_s = asked.budget_s if budget else self.budget_s
        change = {"database": where, "budget_s": time_s, "until": now + time_s}
        change["site"] = asked.site or self.site
        return self.model_copy(update=change)

    def repeats(self, other: Night) -> bool:
        """Whether another night of the same lab ran these cases, and is over."""
        return self.follows(other) and self.lab == other.lab

    def follows(self, other: Night) -> bool:
        """Whether another night ran these cases and is over, so that its issues are followed."""
        same = other.selection == self.selection and other.night != self.night
        return same and other.next_step is None


def summary_lines(night: Night) -> Iterator[str]:
    """The issues of a night in Markdown: new ones first, then those seen in its run (pure)."""
    run = night.run
    shown = sorted(night.issues_told, key=lambda one: (not _is_new(one, run), one.last_run != run))
    for heading, issues in (
        ("Causes of failures", [one for one in shown if not one.fault]),
        ("Verdicts that are missing", [one for one in shown if one.fault]),
    ):
        if issues:
            yield from ("", f"#### {heading}, {night.night}", "")
        for one in issues:
            fresh = "**flaky** " if one.flaky else "**new** " if _is_new(one, run) else ""
            cases = counted(one.count, "case")
            cases += f", {one.new} of them new" if 0 < one.new < one.count else ""
            yield f"- {fresh}{one.state}: {title(one)} ({cases}, {one.id})"
            if line := facts(one):
                yield f"  - {line}"
            if said := run_again(one):
                yield f"  - {said}"
            if not one.fault and (one.state == "open" or one.search):
                yield f"  - {as_code(bisected(one), 500)}"
    if night.told:
        yield from ("", f"#### What went wrong besides, {night.night}", "")
        yield from (f"- {as_code(text, 500)}" for text in night.told)


def _is_new(issue: Issue, run: str | None) -> bool:
    return issue.first_run == run or bool(issue.new)


def summary(night: Night, head: str, intro: str, details: str = "") -> str:
    """Return summary.md: what matters most first, since messages have only its head (pure)."""
    lab = ("", *night.lab_lines) if night.lab_lines else ()
    return "\n".join([head, intro, *summary_lines(night), *lab, details]).rstrip() + "\n"
