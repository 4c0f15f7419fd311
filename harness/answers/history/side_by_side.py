"""Two runs' folders compared: what became of their cases, and whether they are slower."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence

from harness.answers.history.attempts import COMPARED, Attempt, once, read_attempts
from harness.answers.history.comparison import Comparison, FailOn, compare
from harness.answers.history.ops import judge_ops
from harness.answers.history.performance import EFFECT
from harness.answers.history.previous import runs_around
from harness.answers.history.speed import judge_speed
from harness.answers.report.summary import cut_short
from harness.ground.errors import HarnessError
from harness.verdict.results.run_folder import JOURNAL, RunFolder

_log = logging.getLogger(__name__)


def compared(base: RunFolder | None, new: RunFolder, asked: FailOn, *, late: bool) -> Comparison:
    """What became of each case since BASE, if there is one, and of its speed and memory.

    Raises ConfigError for what cannot be read.
    """
    if base is None:
        return compare([], _read(new), infos=(None, new.info()))
    before = _read(base)
    found = compare(
        before,
        _read(new),
        lambda name: base.kept_output(name) or new.kept_output(name),
        infos=(base.info(), new.info()),
    )
    if base.path.samefile(new.path):
        return found
    if base.run_id == new.run_id:
        _log.warning("%s and %s are two runs of one id", base.path, new.path)
    earlier, between = runs_around(base, new)
    old = [one.before for one in found["passing"] if one.before]
    now = [one.after for one in found["passing"] if one.after]

    def noise() -> tuple[Iterator[list[Attempt]], Iterator[list[Attempt]]]:
        met = {attempt.run for attempt in (*old, *now)}
        return _readable(earlier, met), _readable(between, met)

    speed = judge_speed(old, now, *noise(), effect=asked.slower or EFFECT, late=late)
    ops = judge_ops(old, now, *noise())
    return dataclasses.replace(found, speed=speed, ops=ops)


def _read(folder: RunFolder) -> list[Attempt]:
    file = folder.path / JOURNAL
    if why := cut_short(folder.info()):
        _log.warning("%s was cut short: %s", folder.run_id, why)
    found, left_out = read_attempts(file, COMPARED)
    for text in left_out.told(file):
        _log.warning("%s", text)
    return found


def _readable(runs: Sequence[RunFolder], met: set[str]) -> Iterator[list[Attempt]]:
    """The runs that can be read, each attempt once, of runs not `met`; the others are logged."""
    for run in runs:
        try:
            yield once(_read(run), met)
        except HarnessError as error:
            _log.warning("%s tells nothing of noise: %s", run.run_id, error)
