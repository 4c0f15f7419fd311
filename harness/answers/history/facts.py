"""Facts of a cause of failures on one line: where it shows and where not, since when, and the
versions and files that changed with it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from harness.answers.history.changes import NightChange
from harness.answers.history.surroundings import named_files
from harness.answers.report.document import Span, Style
from harness.verdict.failure.error import Part

_DEVICES: Final = 5
_SOCS: Final = 4
_VERSIONS: Final = 2


class DeviceResult(Part):
    """A device that ran the tests of a cause: `affected` by it, `passes` them, or fails otherwise.

    What fails as a known issue expects is affected, too.
    """

    device: str
    soc: str | None
    result: Literal["affected", "passes", "fails otherwise"]


class CauseFacts(Part):
    """Where a cause shows in the last run that had it, and where the same tests pass.

    `since` is the start of `since_run`, the run that it came with. `versions_changed` are those
    that changed then, in words; null if no run before that has its cases. `files_changed` are files
    of tests, models and inputs that changed then. `only_with` are the versions with which it shows
    on these devices, if the tests pass there with others.
    """

    shows: Literal["fails", "flaky", "no verdict", "fixed"]
    devices: tuple[DeviceResult, ...]
    only_with: tuple[str, ...] = ()
    since: str
    since_run: str
    versions_changed: str | None = None
    files_changed: tuple[str, ...] = ()


LinkTo = Callable[..., Span]
"""Makes the words for a device or a night, with a link where there are pages: of its `kind`, its
`name` (of a night, the id of its run), perhaps another `text`, and a `style`."""


def _unlinked(kind: str, name: str, text: str = "", style: Style = "plain") -> Span:
    return Span(text or name, style=style)


def facts_line(facts: CauseFacts, link: LinkTo = _unlinked) -> list[str | Span]:
    """Return the facts as one line, as in `fails on 1 of 2 tested SM8750 (phone-1); passes on
    1 of 2 tested SM8750 (phone-2); since 2026-11-21; changed then: qnn 2.49.40 to 2.50.40`."""
    line: list[str | Span] = []
    for words, result in ((facts.shows, "affected"), ("passes", "passes")):
        if places := list(_places(facts, result, link)):
            line += ["; " if line else "", f"{words} on ", *places]
    line = line or [facts.shows]
    if facts.only_with:
        versions = _separated([[Span(name, style="code")] for name in facts.only_with], " or ")
        line += ["; only with ", *versions]
    line += ["; since ", link("night", facts.since_run, facts.since[:10])]
    changed = [facts.versions_changed] if facts.versions_changed else []
    changed += [named_files(facts.files_changed)] if facts.files_changed else []
    if not changed and facts.versions_changed is None:
        return [*line, ", its first run that is held"]
    if not changed:
        return [*line, ", with the same versions"]
    names = _separated([[Span(name, style="code")] for name in changed], ", ")
    return [*line, "; changed then: ", *names]


def facts_of(
    changes: Sequence[NightChange],
    tested: Iterable[tuple[str, str, bool]],
    socs: Mapping[str, str | None],
    started: Mapping[int, tuple[str, str]],
) -> CauseFacts:
    """Return the facts of a cause by what a run changed of its cases, of which there is one.

    `tested` has, for the tests of these cases in that run, each device, versions, and whether all
    passed there. `started` has the id and the start of each run by its place.
    """
    tested = list(tested)
    affected = {change.device for change in changes if change.device}
    failed_otherwise = {device for device, _, passed in tested if not passed}
    bad = {change.versions for change in changes}
    good = {versions for device, versions, passed in tested if passed and device in affected}
    kinds = {change.became for change in changes}
    since = min(change.since for change in changes)
    run, begun = started[since]
    changed = [change.changed for change in changes if change.since == since]
    return CauseFacts(
        shows="no verdict"
        if "lost" in kinds
        else "fixed"
        if kinds == {"fixed"}
        else "flaky"
        if kinds == {"flaky"}
        else "fails",
        devices=tuple(
            DeviceResult(
                device=device,
                soc=socs.get(device),
                result="affected"
                if device in affected
                else "fails otherwise"
                if device in failed_otherwise
                else "passes",
            )
            for device in sorted(affected | {device for device, _, _ in tested})
        ),
        only_with=tuple(sorted(bad)) if len(bad) <= _VERSIONS and good - bad else (),
        since=begun,
        since_run=run,
        versions_changed=max((words for words in changed if words is not None), default=None),
    )


def _places(facts: CauseFacts, result: str, link: LinkTo) -> Iterator[str | Span]:
    """The devices with a result by their SoCs, and of how many that were tested."""
    by_soc: dict[str | None, list[DeviceResult]] = {}
    for device in facts.devices:
        by_soc.setdefault(device.soc, []).append(device)
    parts = list[list[str | Span]]()
    judged = "" if result == "affected" and facts.shows == "no verdict" else "tested "
    for soc, of_soc in sorted(by_soc.items(), key=lambda item: item[0] or ""):
        names = [device.device for device in of_soc if device.result == result]
        if not names:
            continue
        # one more name takes no more room than the words that there is one more
        shown = names if len(names) == _DEVICES + 1 else names[:_DEVICES]
        listed = _separated([[link("device", name, style="code")] for name in shown], ", ")
        listed += [f" and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
        kind = Span(soc, style="code") if soc else "devices"
        parts.append([f"{len(names)} of {len(of_soc)} {judged}", kind, " (", *listed, ")"])
    yield from _separated(parts[:_SOCS], ", ")
    if len(parts) > _SOCS:
        yield f" and on {len(parts) - _SOCS} more SoCs"


def _separated(parts: Sequence[Sequence[str | Span]], separator: str) -> list[str | Span]:
    return [piece for part in parts for piece in (separator, *part)][1:]
