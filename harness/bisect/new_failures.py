"""What to bisect to learn why a case fails that did not in an earlier run (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.bisect.match import ELSE_GOOD, repeats_needed
from harness.core.axes import VERSIONS, AxisName
from harness.history.attempts import Attempt, same_failure
from harness.history.comparison import Bisectable, Pair
from harness.history.states import CaseState, versions_of


@dataclass(frozen=True)
class NewFailure:
    """A case that failed now and not before, or failed otherwise; `before` is its record then.

    `changed` are the axes on which the two ran with other versions, `state` is what all its runs
    make of it.
    """

    before: Attempt
    after: Attempt
    changed: tuple[AxisName, ...]
    state: CaseState | None = None

    @classmethod
    def of(cls, pair: Pair, state: CaseState | None = None) -> NewFailure:
        """What a comparison found new, changed or known; so both runs have the case."""
        assert pair.before is not None
        assert pair.after is not None
        return cls(pair.before, pair.after, _changed(pair.before, pair.after), state)

    @property
    def repeat(self) -> int:
        if self.state is None or not self.state.is_flaky:
            return 1
        return repeats_needed(self.state.failed, self.state.verdicts)

    @property
    def hindrance(self) -> str | None:
        """Why no bisection can tell more; None if one can."""
        if self.state is not None and self.state.is_flaky:
            came = self.changed and versions_of(self.before) in self.state.never_bad_with
            return None if came else f"flaky: {self.state.said}"
        if not self.changed:
            return "no version has changed since the run before"
        if self.after.device is None:
            return "it is not known on which device it ran"
        if same_failure(self.before, self.after):
            expected = ", where a known issue expected it" if self.before.known_issue else ""
            return f"it failed alike before{expected}"
        if self.before.is_bad and self.after.failure is None:
            return "nothing tells its failure from the one before"
        return None

    def command(self, lab: str, reports: str) -> list[str] | None:
        """The bisection that finds out which version it was; None if there is a `hindrance`.

        A failure that replaced another is looked for by its signature, and the other one is good.
        If two axes changed, the mixed corners tell which of them matters; a third is held at its
        old version. An empty `lab` names none.
        """
        if self.hindrance is not None or self.after.device is None:
            return None
        searched, held = self.changed[:2], self.changed[2:]
        words = ["bisect", "--case", self.after.case]
        words += ["--axis", *searched] if len(searched) == 1 else []
        for option, record in (("--good", self.before), ("--bad", self.after)):
            versions = [version_of(record, axis) for axis in searched]
            pairs = map("=".join, zip(searched, versions, strict=True))
            words += [option, *(versions if len(searched) == 1 else [",".join(pairs)])]
        for axis in held:
            words += [f"--{axis}", version_of(self.before, axis)]
        if self.before.is_bad:
            words += ["--match", f"signature={self.after.failure}{ELSE_GOOD}"]
        words += ["--repeat", str(self.repeat)] if self.repeat > 1 else []
        words += ["--device", self.after.device]
        return [*words, *(["--lab", lab] if lab else []), "--reports", reports]

    def bisectable(self, lab: str, reports: str) -> Bisectable:
        """What reports say of it: which versions changed, and the command or a hindrance."""
        command = self.command(lab, reports)
        bisect = None if command is None else ("qnn-harness", *command)
        return Bisectable(changed=self.changed, bisect=bisect, hindrance=self.hindrance)


def version_of(record: Attempt, axis: AxisName) -> str:
    """The version that a case ran with, as options call it."""
    said = getattr(record.placement, axis, None)
    if said is None and axis == "ort":
        said = record.ort
    return str(said or record.axes.get(axis) or "")


def _changed(before: Attempt, after: Attempt) -> tuple[AxisName, ...]:
    places = [one.placement for one in (before, after)]
    # without a compiler of their own both had contexts of their runtime: that is one axis
    own = any(one is not None and one.compiler is not None for one in places)
    searched = [axis for axis in VERSIONS if own or axis != "compiler"]
    return tuple(one for one in searched if version_of(before, one) != version_of(after, one))
