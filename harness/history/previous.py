"""The last run of the same selection: the base of `compare --previous`, and of a report's page."""

from __future__ import annotations

import contextlib
import json
from itertools import groupby
from typing import Final

from harness.errors import ConfigError, HarnessError
from harness.history.brief import read_briefs
from harness.history.comparison import compare
from harness.history.comparison_text import TITLES
from harness.report.page_data import Since
from harness.report.rundir import JOURNAL, LATEST, RunFolder
from harness.results.journal import journal_lines

_MOST_RUNS: Final = 300
_MOST_S: Final = 1e7


def previous_of(folder: RunFolder) -> RunFolder:
    """The last finished run before this one, beside it, that was asked for the same cases.

    Raises ConfigError if there is none.
    """
    reports, own = folder.path.parent, folder.info()
    wanted, started = own.get("selection"), str(own.get("started"))
    found_names = (one.parent.name for one in reports.glob(f"*/{JOURNAL}"))
    names = sorted((name for name in found_names if name != LATEST), reverse=True)[:_MOST_RUNS]
    # names tell the second, run.json tells the rest
    for _, same_second in groupby(names, _second):
        found = []
        for earlier in (RunFolder.open(reports / name) for name in same_second):
            info = earlier.info()
            before = str(info.get("started")) < started and earlier.run_id != folder.run_id
            if before and info.get("finished") and wanted and info.get("selection") == wanted:
                found.append((str(info["started"]), earlier.run_id, earlier))
        if found:
            return max(found)[2]
    raise ConfigError(
        f"has no finished run before {folder.run_id} that was asked for the same cases "
        f"({' '.join(map(str, wanted)) if isinstance(wanted, list) else 'it does not say which'})",
        file=reports,
        field="--previous",
        choices=["BASE NEW"],
    )


def since_previous(folder: RunFolder) -> Since | None:
    """What became of each case since the last run of the same selection; None if there is none."""
    try:
        base = previous_of(folder)
        before, _ = read_briefs(base.path / JOURNAL)
        after, _ = read_briefs(folder.path / JOURNAL)
    except HarnessError:
        return None
    found = compare(before, after)
    became = {one.shown.case: word for word, pairs in found.pairs.items() for one in pairs}
    gone = tuple(pair.shown.case for pair in found["vanished"] if pair.after is None)
    return Since(base.run_id, became, gone, dict[str, str](TITLES.items()))


def last_durations(folder: RunFolder) -> dict[str, float]:
    """How long each case took in the last run of the same selection; empty if there is none."""
    found: dict[str, float] = {}
    with contextlib.suppress(HarnessError):
        for line in journal_lines(previous_of(folder).path / JOURNAL):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                if row["kind"] == "case" and 0 <= float(row["duration_s"]) < _MOST_S:
                    found[str(row["case"])] = float(row["duration_s"])
    return found


def _second(run_id: str) -> str:
    return run_id.partition("-")[0]
