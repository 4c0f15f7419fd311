"""Bisections for cases that fail and did not in an earlier run (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.bisect.bad_condition import ELSE_GOOD, repeats_needed
from harness.core.matrix_axes import VERSIONS, AxisName
from harness.history.attempts import Attempt, same_failure
from harness.history.case_states import CaseState, versions_of
from harness.history.comparison import Bisectable, Pair


@dataclass(frozen=True)
class NewFailure:
    """A case that did not fail before, or failed differently; `before` is its earlier record.

    `changed` are the axes on which the versions differ, `state` is its state over all runs.
    """

    before: Attempt
    after: Attempt
    changed: tuple[AxisName, ...]
    state: CaseState | None = None

    @classmethod
    def of(cls, pair: Pair, state: CaseState | None = None) -> NewFailure:
        """Return the new failure for a pair of a comparison, which both runs have."""
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
        """Return why a bisection cannot help; None if it can."""
        if self.state is not None and self.state.is_flaky:
            explained = self.changed and versions_of(self.before) in self.state.never_bad_with
            return None if explained else f"flaky: {self.state.summary}"
        if not self.changed:
            return "no version has changed since the run before"
        if self.after.device is None:
            return "the device that it ran on is unknown"
        if same_failure(self.before, self.after):
            expected = ", where a known issue expected it" if self.before.known_issue else ""
            return f"it failed in the same way before{expected}"
        if self.before.is_bad and self.after.failure is None:
            return "its failure cannot be distinguished from the one before"
        return None

    def command(self, lab: str, reports: str) -> list[str] | None:
        """Return the command that finds the version; None if there is a `hindrance`.

        A failure that replaced another is matched by its signature, and the other one is good. If
        two axes changed, both are searched; a third is held at its old version. An empty `lab` is
        left out.
        """
        if self.hindrance is not None or self.after.device is None:
            return None
        searched, fixed = self.changed[:2], self.changed[2:]
        words = ["bisect", "--case", self.after.case]
        words += ["--axis", *searched] if len(searched) == 1 else []
        for option, record in (("--good", self.before), ("--bad", self.after)):
            versions = [version_of(record, axis) for axis in searched]
            pairs = map("=".join, zip(searched, versions, strict=True))
            words += [option, *(versions if len(searched) == 1 else [",".join(pairs)])]
        for axis in fixed:
            words += [f"--{axis}", version_of(self.before, axis)]
        if self.before.is_bad:
            words += ["--match", f"signature={self.after.failure}{ELSE_GOOD}"]
        words += ["--repeat", str(self.repeat)] if self.repeat > 1 else []
        words += ["--device", self.after.device]
        return [*words, *(["--lab", lab] if lab else []), "--reports", reports]

    def bisectable(self, lab: str, reports: str) -> Bisectable:
        """Return the entry for reports: the changed axes, and the command or a hindrance."""
        command = self.command(lab, reports)
        bisect = None if command is None else ("qnn-harness", *command)
        return Bisectable(changed=self.changed, bisect=bisect, hindrance=self.hindrance)


def version_of(record: Attempt, axis: AxisName) -> str:
    """Return the version that a case ran with, as options name it."""
    ran_with = record.ort if axis == "ort" else None
    return str(getattr(record.placement, axis, None) or ran_with or record.axes.get(axis) or "")


def _changed(before: Attempt, after: Attempt) -> tuple[AxisName, ...]:
    places = [record.placement for record in (before, after)]
    # without an explicit compiler both took contexts of their runtime: that is one axis
    own_compiler = any(place is not None and place.compiler is not None for place in places)
    searched = [axis for axis in VERSIONS if own_compiler or axis != "compiler"]
    return tuple(axis for axis in searched if version_of(before, axis) != version_of(after, axis))
