"""The progress of a run, by the facts that are reported of it."""

from collections.abc import Mapping

import pytest

from harness.core.notices import followed, followed_by, progress_reporter, report_progress
from harness.core.outgoing_text import clock
from harness.plugin.progress import RunCounts, details
from tests.snapshots import Snapshot

CASES = ["s.py::test_a[1]", "s.py::test_a[2]", "s.py::test_b[1]", "s.py::test_b[2]"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        (
            {"case": "suites/a.py::test_a[x/y]", "verb": "execute", "step": 3, "steps": 9},
            "3/9 execute  test_a[x/y]",
        ),
        ({"case": "a.py::t", "loaded": 3, "contexts": 66}, "3/66 contexts  t"),
        ({"doing": "pushing", "loaded": 3, "contexts": 66, "case": "a.py::t"}, "pushing  t"),
        ({"doing": "recovering: reboot"}, "recovering: reboot"),
        ({"doing": "pushing", "done": 5e5, "total": 2e6, "unit": "MB"}, "pushing  0.5/2.0 MB"),
        ({"doing": "building", "done": 3, "total": 9}, "building  3/9"),
        ({"case": "no name of pytest"}, "no name of pytest"),
    ],
)
def test_a_device_in_words(facts: dict[str, str | int | float], words: str) -> None:
    assert details(facts) == words


def test_each_case_counts_once(snapshot: Snapshot) -> None:
    counts = RunCounts(CASES)
    assert counts.plain_line(5.0) == snapshot
    for _ in range(2):
        counts.ended("s.py::test_a[1]", failed=True)
        counts.ended("s.py::no_case", failed=True)
    counts.ended("s.py::test_a[2]", lab=True)
    counts.ended("s.py::test_b[1]", failed=True, lab=True)
    assert (counts.total, counts.finished, counts.failed, counts.lab_errors) == (4, 3, 2, 1)
    assert counts.plain_line(90.0) == snapshot


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0:00"),
        (0.2, "0:01"),
        (61, "1:01"),
        (359_999, "99:59:59"),
        (360_000, "100 h+"),
        (float("inf"), "100 h+"),
    ],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_who_follows_hears_it_and_only_as_long() -> None:
    heard: list[tuple[str, Mapping[str, object]]] = []
    before = followed()
    report_progress("phone", case="a")
    with followed_by(lambda device, facts: heard.append((device, facts))):
        assert followed()
        with progress_reporter("phone") as report:
            report("pushing", 1, 2, "MB")
    report_progress("phone", case="b")
    assert followed() == before
    facts = {"doing": "pushing", "done": 1, "total": 2, "unit": "MB"}
    assert heard == [("phone", facts), ("phone", dict.fromkeys(facts))]
