"""The last run of the same selection: the base of `compare --previous`, and of a report's page."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError, HarnessError
from harness.history.attempts import (
    Attempt,
    attempts_by_name,
    finder,
    once,
    read_attempts,
)
from harness.history.comparison import TITLES, compare
from harness.history.states import CaseHistory
from harness.report.sections import Since
from harness.results.asked_of_files import asked_of_files
from harness.results.journal import cases_in, uncollected
from harness.results.run_folder import JOURNAL, RunFolder, ordered, run_folders

_MOST_RUNS: Final = 300
_EARLIER: Final = 12
_BETWEEN: Final = 4
_MOST_BACK: Final = 30
_MOST_BYTES: Final = 1 << 30


def previous_of(folder: RunFolder) -> RunFolder:
    """The last finished run before this one, beside it, that was asked for the same cases.

    Raises ConfigError if there is none.
    """
    wanted = folder.info().get("selection")
    found = next(_asked_for(wanted, _before(folder)), None)
    if found is not None:
        return found
    asked = "it does not say which"
    if isinstance(wanted, list):
        asked = " ".join(map(str, wanted)) or "all that pytest finds"
    raise ConfigError(
        f"has no finished run before {folder.run_id} that was asked for the same cases ({asked})",
        file=folder.path.parent,
        field="--previous",
        choices=["BASE NEW"],
    )


def runs_around(base: RunFolder, new: RunFolder) -> tuple[list[RunFolder], list[RunFolder]]:
    """The last finished runs before BASE, and between it and NEW, beside each of them.

    All ask for the cases that BASE and NEW ask for, the oldest first. There are only so many as
    tell of noise and can be read in bounded time.
    """
    beside = ordered({*run_folders(base.path.parent), *run_folders(new.path.parent)})
    later = set(beside[beside.index(base.path) + 1 :] if base.path in beside else [])
    asked, then = (one.info().get("selection") for one in (base, new))
    earlier = islice(_asked_for(asked, _before(base)), _EARLIER)
    between = islice(_asked_for(then, (one for one in _before(new) if one in later)), _BETWEEN)
    sides = (list(_last(runs, _MOST_BYTES // 2))[::-1] for runs in (earlier, between))
    return next(sides), next(sides)


def _before(folder: RunFolder) -> list[Path]:
    """The runs beside a run that were begun before it, the newest first; none that it is merged
    of."""
    beside = run_folders(folder.path.parent)
    if folder.path not in beside:
        return []
    merged = folder.info().get("merged")
    parts = [part for part in merged if isinstance(part, dict)] if isinstance(merged, list) else []
    names = {part.get("run") for part in parts if isinstance(part.get("run"), str)}
    return [path for path in beside[: beside.index(folder.path)][::-1] if path.name not in names]


def _asked_for(wanted: object, runs: Iterable[Path]) -> Iterator[RunFolder]:
    """The finished runs among these that were asked for these cases."""
    for path in islice(runs, _MOST_RUNS):
        run = RunFolder(path)
        # one that was interrupted has an end, too, but not all cases
        if wanted is not None and run.info().get("selection") == wanted and run.ended_in_order:
            yield RunFolder.open(path)


def _last(runs: Iterable[RunFolder], room: int) -> Iterator[RunFolder]:
    """The first of these runs, the newest first, whose journals are so many bytes together."""
    for one in islice(runs, _MOST_BACK):
        try:
            room -= (one.path / JOURNAL).stat().st_size
        except OSError:
            continue  # one that was removed meanwhile says nothing
        if room < 0:
            return
        yield one


@uncollected()
def since_previous(folder: RunFolder, base: RunFolder | None = None) -> Since | None:
    """What became of each case since BASE; None if there is none.

    BASE is the last run of the same selection where none is named.
    """
    try:
        base = base or previous_of(folder)
        before, _ = read_attempts(base.path / JOURNAL)
        after, _ = read_attempts(folder.path / JOURNAL)
    except HarnessError:
        return None
    found = compare(before, after)
    became = {one.shown.case: word for word, pairs in found.pairs.items() for one in pairs}
    gone = tuple(pair.shown.case for pair in found["vanished"] if pair.after is None)
    return Since(base.run_id, became, gone, dict[str, str](TITLES.items()))


@uncollected()
def histories(
    run: RunFolder, base: RunFolder | None, also: Collection[str] = ()
) -> dict[str, CaseHistory]:
    """The cases of a run that do not just pass as in BASE, and what runs before said of them, by
    their names.

    Cases called as one of `also`, now or in BASE, are among them. Only so many runs of the same
    selection tell of them as can be read in bounded time. Raises ConfigError for what cannot be
    read.
    """
    before = read_attempts(base.path / JOURNAL)[0] if base is not None else []
    attempts = read_attempts(run.path / JOURNAL)[0]
    named, info = attempts_by_name(attempts), run.info()
    found = {
        pair.after.case: CaseHistory(named[pair.after.case])
        for became, pairs in compare(before, attempts).pairs.items()
        for pair in pairs
        if pair.after is not None
        and (became not in ("passing", "untested") or pair.names & set(also))
    }
    compared, met = False, {attempt.run for attempt in attempts}
    asked = _asked_for(info.get("selection"), _before(run)) if found else ()
    for one in _last(asked, _MOST_BYTES):
        # what came after BASE was told to nobody
        compared = compared or (base is not None and one.path == base.path)
        with contextlib.suppress(HarnessError):
            find = finder(attempts_by_name(once(read_attempts(one.path / JOURNAL)[0], met)))
            for history in found.values():
                if (then := find(history.now.last)) is not None:
                    history.before.insert(0, then)
                    if compared and history.last is None and then.last.has_verdict:
                        history.last = then
    return found


@uncollected()
def asked_when_bad(reports: Path, case: str) -> tuple[str, dict[str, str]]:
    """The last run in a folder in which a case failed, whatever its versions, and what that asked
    of the user's file."""
    known: Attempt | None = None
    for run in _last(map(RunFolder, reversed(run_folders(reports))), _MOST_BYTES // 4):
        with contextlib.suppress(HarnessError, OSError):
            named = attempts_by_name(read_attempts(run.path / JOURNAL)[0])
            found = named.get(case) if known is None else finder(named)(known)
            if found is not None and found.last.is_bad:
                return run.run_id, asked_of_files(run.info().get("command"))
            known = known or (found.last if found is not None else None)
    return "", {}


def last_durations(path: Path, selection: object) -> dict[str, float]:
    """How long each case took in the last run beside a run's path that asked for the same cases.

    Empty if there is none. The run itself need not have begun.
    """
    beside = run_folders(path.parent)
    before = beside[: beside.index(path)] if path in beside else beside
    last: dict[str, tuple[int, float]] = {}
    with contextlib.suppress(HarnessError, OSError):
        for run in islice(_asked_for(selection, before[::-1]), 1):
            for _, record in cases_in(run.path / JOURNAL):
                if record.case not in last or record.attempt >= last[record.case][0]:
                    last[record.case] = record.attempt, record.duration_s
    return {case: seconds for case, (_, seconds) in last.items()}
