"""The loop of every search: asks, runs the case, writes the answer down, until all is found."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue

from harness.search.bisect.answers import Point, Question, Stopped
from harness.search.bisect.case_run import RunEnd, finished_run, run_case
from harness.search.bisect.folder import SearchFolder
from harness.search.bisect.log import Answered, Concluded, Resumed
from harness.search.bisect.match import Judged
from harness.search.bisect.search import Search
from harness.verdict.results.record import CaseRecord
from harness.verdict.results.run_folder import JOURNAL, RunFolder

Discovery = TypeVar("Discovery")
Runner = Callable[[list[str], Path, Path, float], RunEnd]
WAITS_S: Final[tuple[float, ...]] = (0.0, 15.0)
"""How long to wait, after each failure of the lab in a row, before the question is asked again."""


class Watcher:
    """Is told what goes on, and ignores it; the loop does not depend on it."""

    def asked(self, question: Question) -> None:
        """A run begins."""

    def answered(self, question: Question, judged: Judged, end: RunEnd) -> None:
        """A run ended."""

    def remark(self, text: str) -> None:
        """Something that a person should know meanwhile."""


class Loop(ABC, Generic[Discovery]):
    """Goes on with what the log of a folder says, which is held."""

    def __init__(
        self,
        folder: SearchFolder[Any],
        watcher: Watcher,
        search: Search[Any, Discovery],
        *,
        run: Runner = run_case,
        stop_at: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder, self.watcher, self._search = folder, watcher, search
        self._run_case, self._stop_at, self._sleep = run, stop_at, sleep

    def go_on(self) -> Discovery | Stopped | None:
        """Runs until something is found, the lab stops it, or the time is over (None).

        Raises ConfigError for input that is wrong whatever is asked (nothing is written down as
        an answer then), InfraError if nothing can be written.
        """
        log = self.folder.read()
        if log.entries and not log.is_over:
            self.folder.append(Resumed())
            self._search.resume()
            self._take_up(log.under_way())
        while True:
            step = self._next()
            if isinstance(step, Question):
                self._wait(self._search.evidence.troubles)
                if self._time_left() <= 0:
                    return None
                self._run(step)
                continue
            if not isinstance(step, Stopped) and not self.folder.read().is_over:
                self.folder.append(Concluded(text=str(step), detail=self._concluded()))
            return step

    def _next(self) -> Question | Stopped | Discovery:
        return self._search.next()

    @abstractmethod
    def _begin(self, at: Point, reports: Path) -> RunEnd:
        """Runs the case at a point, with its reports in that folder."""

    @abstractmethod
    def _judged(self, at: Point, end: RunEnd) -> Judged:
        """What a run answers, and what else is to be kept of it. Raises ConfigError."""

    def _concluded(self) -> dict[str, JsonValue]:
        return {}

    def _time_left(self) -> float:
        return math.inf if self._stop_at is None else self._stop_at - time.monotonic()

    def _wait(self, troubles: int) -> None:
        """Gives the lab time to come back, each time more of it."""
        wanted = WAITS_S[min(troubles, len(WAITS_S)) - 1] if troubles else 0.0
        seconds = min(wanted, max(0.0, self._time_left()))
        if seconds > 0:
            self.watcher.remark(f"the lab failed; it is tried again in {seconds:.0f} s")
            self._sleep(seconds)

    def _run(self, question: Question) -> None:
        self.folder.append(question)
        self.watcher.asked(question)
        reports = self.folder.reports_of(self.folder.read())
        self._take(question, self._begin(question.at, reports))

    def _take(self, question: Question, end: RunEnd) -> None:
        judged = self._judged(question.at, end)
        answered = Answered(
            at=question.at,
            answer=judged.answer,
            why=judged.why,
            seconds=round(end.seconds, 3),
            detail=dict(judged.detail),
        )
        if end.folder is not None and (record := end.record) is not None:
            where = {
                "run": end.folder.relative_to(self.folder.path).as_posix(),
                "case": record.case,
                "device": record.device.name if record.device is not None else None,
            }
            answered = answered.model_copy(update=where)
        self.folder.append(answered)
        self._search.answer(question, judged.answer)
        self.watcher.answered(question, judged, end)

    def _take_up(self, question: Question | None) -> None:
        """A run that was under way may have ended although nobody was left to hear of it."""
        reports = self.folder.reports_of(self.folder.read()) if question is not None else None
        end = None if reports is None else finished_run(reports)
        if question is not None and end is not None:
            self.watcher.asked(question)
            self._take(question, end)


def record_of(folder: Path, entry: Answered) -> CaseRecord | None:
    """The record of an answered run; None if there is none, or no longer."""
    run = folder / entry.run if entry.run else None
    if run is None or not (run / JOURNAL).is_file():
        return None
    cases = RunFolder(run).contents().cases
    return next((one for one in cases if one.case == entry.case), None)
