"""Runs a case until the lab survives it: a fault of the lab is no verdict and is tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from _pytest.runner import runtestprotocol

from harness.pytest_plugin.case import Case
from harness.pytest_plugin.report_marks import GIVEN_UP, RECORDS


def run_attempts(
    item: pytest.Item,
    nextitem: pytest.Item | None,
    *,
    retries: int,
    new_case: Callable[[int], Case],
    lab_failed: Callable[[Case, bool], bool],
    events: Callable[[], list[dict[str, object]]],
) -> None:
    """Runs one item, at most `retries` times more if only the lab failed.

    `new_case` makes the case of an attempt (counted from 1) and puts it where hooks find it.
    `lab_failed` is called after each attempt that the lab did not survive, with whether another is
    allowed; it says whether one is worth while. It is not called if nothing comes after. Only the
    last attempt's reports are logged; the records of all attempts go with them, and
    before each those of what happened to devices meanwhile (`events`).
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    records: list[dict[str, object]] = []
    reports: list[pytest.TestReport] = []
    attempt = 0
    while True:
        attempt += 1
        case = new_case(attempt)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        records += events()
        records.append(case.record().model_dump(mode="json"))
        if not case.failed_by_the_lab or item.session.shouldstop:
            break
        again = attempt <= retries
        if (not again and nextitem is None) or not lab_failed(case, again):
            break
    records += events()
    if case.failed_by_the_lab and attempt <= retries:
        used = {"attempts": case.attempt, "left": retries + 1 - attempt}
        for report in reports:
            setattr(report, GIVEN_UP, {"device": case.placement.device, **used})
    setattr(reports[-1], RECORDS, records)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
