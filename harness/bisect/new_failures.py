"""What fails in one run and did not in an earlier one, and what to bisect to learn why (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.bisect.answers import AXES, Axis
from harness.bisect.match import ELSE_GOOD
from harness.errors import ConfigError
from harness.pytest_plugin.case_names import NamedPlacement, split_node_id
from harness.qnn.versions import QnnVersion
from harness.results.record import CaseRecord, final_attempts

_OK: Final = ("passed",)
_UNTESTED: Final = ("skipped", "unsupported")


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

    @property
    def known_issue(self) -> str | None:
        """The known issue that expects it."""
        return self.after.expected.known_issue if self.after.expected else None

    @property
    def hindrance(self) -> str | None:
        """Why no bisection can tell more; None if one can."""
        if not self.changed:
            return "with the same versions as before: bisecting them tells nothing"
        if self.after.device is None:
            return "it is not known on which device it ran"
        if _same_failure(self.before, self.after):
            return "it failed alike before, where a known issue expected it"
        if self.before.is_bad and self.after.error is None:
            return "nothing tells its failure from the one before"
        return None

    def command(self, lab: str, reports: str, minutes: float | None = None) -> list[str] | None:
        """The bisection that finds out which version it was; None if there is a `hindrance`.

        A failure that replaced another is looked for by its signature, and the other one is good.
        If all three axes changed, two are searched with the third held at its old version, and
        once more at its new one.
        """
        if self.hindrance is not None or self.after.device is None:
            return None
        searched = self.changed if len(self.changed) < len(AXES) else ("qnn", "ort")
        words = ["bisect", "--case", self.after.case, "--axis", ",".join(searched)]
        for axis in self.changed:
            old, new = version_of(self.before, axis), version_of(self.after, axis)
            if axis not in searched:
                words += [f"--{axis}", f"{old},{new}"]
            elif len(searched) > 1:
                words += [f"--{axis}", _between(old, new)]
            else:
                words += ["--good", old, "--bad", new]
        if self.before.is_bad and self.after.error is not None:
            words += ["--match", f"signature={self.after.error.signature}{ELSE_GOOD}"]
        words += ["--device", self.after.device.name, "--lab", lab, "--reports", reports]
        return [*words, "--max-minutes", f"{minutes:g}"] if minutes is not None else words


@dataclass(frozen=True)
class Comparison:
    """New failures, what is well again, and cases that only one of the runs has.

    `as_known` passed before and fail now, as a known issue expects: nothing to be alarmed by.
    `vanished` had a verdict before and are not tested any more: not run, skipped, or unsupported.
    `spoilt` had one, and now the lab failed or their input was wrong.
    """

    new: tuple[NewFailure, ...]
    as_known: tuple[NewFailure, ...]
    well_again: tuple[str, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    vanished: tuple[str, ...] = ()
    spoilt: tuple[str, ...] = ()


def alike(failures: Iterable[NewFailure]) -> list[list[NewFailure]]:
    """Those of one signature, one known issue and one change together."""
    groups: dict[tuple[object, ...], list[NewFailure]] = {}
    for one in failures:
        key = one.signature, one.known_issue, one.changed, one.hindrance
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def compare(before: Iterable[CaseRecord], after: Iterable[CaseRecord]) -> Comparison:
    """Compares two runs case by case, whatever versions they ran with.

    Cases of the same name belong together; else those that differ in their versions only, if that
    leaves one. What had no verdict before (the lab failed, it was left out) says nothing.
    """
    old, new = final_attempts(before), final_attempts(after)
    by_name = {record.case: record for record in old}
    by_key: dict[tuple[object, ...], list[CaseRecord]] = {}
    for record in old:
        by_key.setdefault(_key(record), []).append(record)
    failures, known, well, only_after, met = [], [], [], [], set()
    vanished: list[str] = []
    spoilt: list[str] = []
    for record in new:
        named_alike = by_key.get(_key(record), [])
        earlier = by_name.get(record.case) or (named_alike[0] if len(named_alike) == 1 else None)
        if earlier is None:
            only_after.append(record.case)
            continue
        met.add(earlier.case)
        if not _has_verdict(earlier):
            continue
        if not _has_verdict(record):
            (vanished if record.outcome in _UNTESTED else spoilt).append(record.case)
            continue
        pair = NewFailure(earlier, record, _changed(earlier, record))
        failed_alike = earlier.expected is None and _same_failure(earlier, record)
        if record.is_unexpected and not failed_alike:
            failures.append(pair)
        elif record.is_bad and earlier.outcome in _OK:
            known.append(pair)
        elif earlier.is_bad and record.outcome in _OK:
            well.append(record.case)
    left = [record for record in old if record.case not in met]
    return Comparison(
        new=tuple(failures),
        as_known=tuple(known),
        well_again=tuple(well),
        only_before=tuple(record.case for record in left),
        only_after=tuple(only_after),
        vanished=(*(record.case for record in left if _has_verdict(record)), *vanished),
        spoilt=tuple(spoilt),
    )


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
    named = [NamedPlacement.beginning(split_node_id(one.case)[1] or "") for one in (before, after)]
    # without a compiler of their own both had contexts of their runtime: that is one axis
    own = any(one is not None and one.compiler is not None for one in named)
    searched = [axis for axis in AXES if own or axis != "compiler"]
    return tuple(one for one in searched if version_of(before, one) != version_of(after, one))


def _same_failure(before: CaseRecord, after: CaseRecord) -> bool:
    old, new = before.error, after.error
    same = (before.outcome, old and old.signature) == (after.outcome, new and new.signature)
    return before.is_bad and same


def _has_verdict(record: CaseRecord) -> bool:
    return record.outcome not in ("error", *_UNTESTED) and record.cause in (
        None,
        "target",
    )
