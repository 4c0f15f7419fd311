"""The last run of the same selection: the base of `compare --previous`, and of a report's page."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError, HarnessError
from harness.history.attempts import (
    Attempt,
    CaseAttempts,
    attempts_by_name,
    finder,
    read_attempts,
    skip_seen_runs,
)
from harness.history.case_states import CaseHistory
from harness.history.comparison import TITLES, compare
from harness.report.sections import Since
from harness.results.file_options import file_options_in
from harness.results.journal import cases_in, without_gc
from harness.results.run_folder import JOURNAL, RunFolder, ordered, run_folders

_MOST_RUNS: Final = 300
_EARLIER: Final = 12
_BETWEEN: Final = 4
_MOST_BACK: Final = 30
_MOST_BYTES: Final = 1 << 30
_PACED_RUNS: Final = 4
_PACED_BYTES: Final = 32 << 20
_SINCE_TITLES: Final = {
    "vanished": "skipped or unsupported this time",
    "otherwise": "failing as with another version",
}


def previous_of(folder: RunFolder) -> RunFolder:
    """Return the last finished run before this one, in its folder, with the same selection.

    Raises ConfigError if there is none.
    """
    selection = folder.info().get("selection")
    previous = next(_selecting(selection, _before(folder)), None)
    if previous is not None:
        return previous
    words = "which it does not record"
    if isinstance(selection, list):
        words = " ".join(map(str, selection)) or "all that pytest finds"
    raise ConfigError(
        f"no finished run before {folder.run_id} selects the same cases ({words}); to compare "
        "any two runs, name both: compare BASE NEW",
        file=folder.path.parent,
        field="--previous",
    )


def runs_around(base: RunFolder, new: RunFolder) -> tuple[list[RunFolder], list[RunFolder]]:
    """Return the last finished runs before BASE, and those between BASE and NEW, oldest first.

    Runs are looked for in the folders of both. The first list has the selection of BASE, the
    second that of NEW. Their number and size are bounded: they only serve to judge noise.
    """
    siblings = ordered({*run_folders(base.path.parent), *run_folders(new.path.parent)})
    later = set(siblings[siblings.index(base.path) + 1 :] if base.path in siblings else [])
    of_base, of_new = (run.info().get("selection") for run in (base, new))
    earlier = islice(_selecting(of_base, _before(base)), _EARLIER)
    between = islice(_selecting(of_new, (run for run in _before(new) if run in later)), _BETWEEN)
    sides = (list(_last(runs, _MOST_BYTES // 2))[::-1] for runs in (earlier, between))
    return next(sides), next(sides)


def _before(folder: RunFolder) -> list[Path]:
    """Return the runs in a run's folder that started before it, newest first, without its parts."""
    siblings = run_folders(folder.path.parent)
    if folder.path not in siblings:
        return []
    merged = folder.info().get("merged")
    parts = [part for part in merged if isinstance(part, dict)] if isinstance(merged, list) else []
    names = {part.get("run") for part in parts if isinstance(part.get("run"), str)}
    before = siblings[: siblings.index(folder.path)][::-1]
    return [path for path in before if path.name not in names]


def _selecting(selection: object, runs: Iterable[Path]) -> Iterator[RunFolder]:
    for path in islice(runs, _MOST_RUNS):
        run = RunFolder(path)
        # an interrupted run has an end, too, but not all cases
        is_same = selection is not None and run.info().get("selection") == selection
        if is_same and run.ended_in_order:
            yield RunFolder.open(path)


def _last(runs: Iterable[RunFolder], room: int) -> Iterator[RunFolder]:
    """Yield the first of these runs whose journals have at most `room` bytes together."""
    for run in islice(runs, _MOST_BACK):
        try:
            room -= (run.path / JOURNAL).stat().st_size
        except OSError:
            continue  # removed meanwhile
        if room < 0:
            return
        yield run


@without_gc()
def since_previous(folder: RunFolder, base: RunFolder | None = None) -> Since | None:
    """Return the change of each case since BASE; None if there is no such run.

    BASE is by default the last run of the same selection.
    """
    try:
        base = base or previous_of(folder)
        before, _ = read_attempts(base.path / JOURNAL)
        after, _ = read_attempts(folder.path / JOURNAL)
    except HarnessError:
        return None
    comparison = compare(before, after)
    became = {
        pair.after.case: "otherwise" if word == "failing" and len(pair.names) > 1 else word
        for word, pairs in comparison.pairs.items()
        for pair in pairs
        if pair.after is not None
    }
    not_run = tuple(pair.shown.case for pair in comparison["vanished"] if pair.after is None)
    failing = [case for case, word in became.items() if word == "failing"]
    fates = _histories(folder, base, failing, attempts_by_name(after), _PACED_BYTES)
    began = {case: fate.state.since for case, fate in fates.items() if fate.state is not None}
    titles = {**dict[str, str](TITLES.items()), **_SINCE_TITLES}
    return Since(base.run_id, became, not_run, titles, began)


@without_gc()
def histories(
    run: RunFolder, base: RunFolder | None, also: Collection[str] = ()
) -> dict[str, CaseHistory]:
    """Return the histories of all cases that do not just pass as in BASE, by name.

    Cases named in `also`, now or in BASE, are among them. The number and size of the earlier runs
    of the same selection are bounded. Raises ConfigError for a run that cannot be read.
    """
    before = read_attempts(base.path / JOURNAL)[0] if base is not None else []
    attempts = read_attempts(run.path / JOURNAL)[0]
    cases = [
        pair.after.case
        for became, pairs in compare(before, attempts).pairs.items()
        for pair in pairs
        if pair.after is not None
        and (became not in ("passing", "untested") or pair.names & set(also))
    ]
    return _histories(run, base, cases, attempts_by_name(attempts), _MOST_BYTES)


def _histories(
    run: RunFolder,
    base: RunFolder | None,
    cases: Iterable[str],
    now: Mapping[str, CaseAttempts],
    most_bytes: int,
) -> dict[str, CaseHistory]:
    """Return the histories of cases, read from so many bytes of earlier journals."""
    by_case = {case: CaseHistory(now[case]) for case in cases}
    compared, seen_runs = False, {attempts.last.run for attempts in now.values()}
    earlier = _selecting(run.info().get("selection"), _before(run)) if by_case else ()
    for older in _last(earlier, most_bytes):
        # verdicts after BASE were reported to nobody
        compared = compared or (base is not None and older.path == base.path)
        with contextlib.suppress(HarnessError):
            fresh = skip_seen_runs(read_attempts(older.path / JOURNAL)[0], seen_runs)
            find = finder(attempts_by_name(fresh))
            for history in by_case.values():
                if (then := find(history.now.last)) is not None:
                    history.before.insert(0, then)
                    if compared and history.last is None and then.last.has_verdict:
                        history.last = then
    return by_case


@without_gc()
def find_failed_run(reports: Path, case: str) -> tuple[str, dict[str, str]]:
    """Return the last run in which a case failed, whatever its versions, and the options that it
    gave for the user's file; ("", {}) if there is none."""
    known: Attempt | None = None
    for run in _last(map(RunFolder, reversed(run_folders(reports))), _MOST_BYTES // 4):
        with contextlib.suppress(HarnessError, OSError):
            named = attempts_by_name(read_attempts(run.path / JOURNAL)[0])
            attempts = named.get(case) if known is None else finder(named)(known)
            if attempts is not None and attempts.last.is_bad:
                return run.run_id, file_options_in(run.info().get("command"))
            known = known or (attempts.last if attempts is not None else None)
    return "", {}


def last_durations(path: Path, selection: object) -> dict[str, dict[str, float]]:
    """Return the seconds of each case by device, in the last runs before `path` of this selection.

    Only verdicts count, and of several on one device the last. The number and the size of the runs
    before the very last one are bounded. `path` need not exist yet.
    """
    siblings = run_folders(path.parent)
    before = siblings[: siblings.index(path)] if path in siblings else siblings
    seconds: dict[str, dict[str, float]] = {}
    with contextlib.suppress(HarnessError, OSError):
        runs = list(islice(_selecting(selection, before[::-1]), _PACED_RUNS))
        for run in reversed([*runs[:1], *_last(runs[1:], _PACED_BYTES)]):
            for _, record in cases_in(run.path / JOURNAL):
                if record.device is not None and record.outcome != "error":
                    seconds.setdefault(record.case, {})[record.device.name] = record.duration_s
    return seconds
