"""Runs a case until the lab survives it: a fault of the lab is no verdict and is tried again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from _pytest.runner import runtestprotocol

from harness.pytest_plugin.case import Case


def run_attempts(
    item: pytest.Item,
    nextitem: pytest.Item | None,
    *,
    retries: int,
    records_attribute: str,
    new_case: Callable[[int], Case],
    lab_failed: Callable[[bool], bool],
) -> None:
    """Runs one item, at most `retries` times more if only the lab failed.

    `new_case` makes the case of an attempt (counted from 1) and puts it where hooks find it.
    `lab_failed` is called after each attempt that the lab did not survive, with whether that was
    the last one; it says whether another is worth while. Only the last attempt's reports are
    logged; the records of all attempts go with them, in the attribute named.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    records: list[dict[str, object]] = []
    reports: list[pytest.TestReport] = []
    for attempt in range(1, retries + 2):
        case = new_case(attempt)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        records.append(case.record().model_dump(mode="json"))
        if not case.failed_by_the_lab or item.session.shouldstop:
            break
        if not lab_failed(attempt > retries):
            break
    setattr(reports[-1], records_attribute, records)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
