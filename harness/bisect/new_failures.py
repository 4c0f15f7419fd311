"""What fails in one run and did not in an earlier one, and what to bisect to learn why (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.bisect.task import AXES, Axis
from harness.errors import ConfigError
from harness.pytest_plugin.case_names import NamedPlacement, split_node_id
from harness.qnn.versions import QnnVersion
from harness.results.record import CaseRecord, final_attempts

_OK: Final = ("passed",)


@dataclass(frozen=True)
class NewFailure:
    """A case that failed and had not, or had in another way; `before` is its record then.

    `changed` are the axes on which the two ran with other versions.
    """

    before: CaseRecord
    after: CaseRecord
    changed: tuple[Axis, ...]

    @property
    def signature(self) -> str:
        """What tells its failure from others."""
        return self.after.error.signature if self.after.error else self.after.outcome

    def command(self, lab: str, reports: str, minutes: float | None = None) -> list[str] | None:
        """The bisection that finds out which version it was; None if no version changed.

        A failure that replaced another is looked for by its signature.
        """
        if not self.changed or len(self.changed) > 2 or self.after.device is None:
            return None
        words = ["bisect", "--case", self.after.case, "--axis", ",".join(self.changed)]
        if len(self.changed) == 1:
            axis = self.changed[0]
            words += [
                "--good",
                version_of(self.before, axis),
                "--bad",
                version_of(self.after, axis),
            ]
        else:
            for axis in self.changed:
                ends = version_of(self.before, axis), version_of(self.after, axis)
                words += [f"--{axis}", _between(*ends)]
        if self.before.is_bad and self.after.error is not None:
            words += ["--match", f"signature={self.after.error.signature}"]
        words += ["--device", self.after.device.name, "--lab", lab, "--reports", reports]
        return [*words, "--max-minutes", f"{minutes:g}"] if minutes is not None else words


@dataclass(frozen=True)
class Comparison:
    """New failures, what is well again, and cases that only one of the runs has."""

    new: tuple[NewFailure, ...]
    well_again: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    def by_signature(self) -> list[list[NewFailure]]:
        """The new failures, those of one signature and one change together."""
        groups: dict[tuple[object, ...], list[NewFailure]] = {}
        for one in self.new:
            groups.setdefault((one.signature, one.changed), []).append(one)
        return list(groups.values())


def compare(before: Iterable[CaseRecord], after: Iterable[CaseRecord]) -> Comparison:
    """Compares two runs case by case, whatever versions they ran with.

    Cases of the same name belong together; else those that differ in their versions only, if that
    leaves one. A case without a verdict (the lab failed, it was left out) says nothing.
    """
    old, new = final_attempts(before), final_attempts(after)
    by_name = {record.case: record for record in old}
    by_key: dict[tuple[object, ...], list[CaseRecord]] = {}
    for record in old:
        by_key.setdefault(_key(record), []).append(record)
    failures, well, only_after, met = [], [], [], set()
    for record in new:
        alike = by_key.get(_key(record), [])
        earlier = by_name.get(record.case) or (alike[0] if len(alike) == 1 else None)
        if earlier is None:
            only_after.append(record.case)
            continue
        met.add(earlier.case)
        if not (_has_verdict(earlier) and _has_verdict(record)):
            continue
        if record.is_unexpected and not _failed_alike(earlier, record):
            failures.append(NewFailure(earlier, record, _changed(earlier, record)))
        elif earlier.is_bad and record.outcome in _OK:
            well.append(record.case)
    only_before = [record.case for record in old if record.case not in met]
    return Comparison(tuple(failures), tuple(well), tuple(only_before), tuple(only_after))


def _between(one: str, other: str) -> str:
    """All versions from one to the other; the two alone where they are not of the same source."""
    try:
        low, high = sorted((one, other), key=QnnVersion.parse)
    except ConfigError:
        return f"{one},{other}"
    return f">={low},<={high}"


def version_of(record: CaseRecord, axis: Axis) -> str:
    """The version that a case ran with, as options call it."""
    named = NamedPlacement.beginning(split_node_id(record.case)[1] or "")
    said = getattr(named, axis) if named is not None else None
    if said is None and axis == "ort" and record.runtime is not None:
        said = record.runtime.ort
    return str(said or record.axes.get(axis) or "")


def _key(record: CaseRecord) -> tuple[object, ...]:
    base, parameters = split_node_id(record.case)
    named = NamedPlacement.beginning(parameters or "")
    free: Sequence[str] = ("qnn", "ort", "compiler")
    axes = tuple(sorted((k, str(v)) for k, v in record.axes.items() if k not in free))
    return base, axes, named.device if named else None


def _changed(before: CaseRecord, after: CaseRecord) -> tuple[Axis, ...]:
    return tuple(
        axis
        for axis in _searched(before, after)
        if version_of(before, axis) != version_of(after, axis)
    )


def _searched(before: CaseRecord, after: CaseRecord) -> tuple[Axis, ...]:
    """Without a compiler of their own both had contexts of their runtime: that is one axis."""
    named = [NamedPlacement.beginning(split_node_id(one.case)[1] or "") for one in (before, after)]
    own = any(one is not None and one.compiler is not None for one in named)
    return tuple(axis for axis in AXES if own or axis != "compiler")


def _failed_alike(before: CaseRecord, after: CaseRecord) -> bool:
    if not before.is_bad or before.expected is not None:
        return False
    old, new = before.error, after.error
    return (before.outcome, old and old.signature) == (after.outcome, new and new.signature)


def _has_verdict(record: CaseRecord) -> bool:
    return record.outcome not in ("error", "skipped", "unsupported") and record.cause in (
        None,
        "target",
    )
