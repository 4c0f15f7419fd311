"""The progress of a run, by the facts that are reported of it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.facts import (
    Lines,
    RunCounts,
    cleaned,
    clock,
    details,
)

CASES = ["s.py::test_a[1]", "s.py::test_a[2]", "s.py::test_b[1]", "s.py::test_b[2]"]


def test_facts_of_a_device_are_put_together_however_it_is_called() -> None:
    lines = Lines()
    lines.merge("R5CX", {"name": "phone", "degrees": 41.5})
    lines.merge("phone", {"case": "s.py::test_a[1]"})
    lines.merge("R5CX", {"step": 2, "steps": 9, "verb": "noop"})
    facts = {"degrees": 41.5, "case": "s.py::test_a[1]", "step": 2, "steps": 9, "verb": "noop"}
    assert lines.merge("R5CX", {}) == ("phone", facts)
    # another case has nothing of the one before; what is told to be over goes
    assert lines.merge("phone", {"case": "s.py::test_a[2]"}) == (
        "phone",
        {"degrees": 41.5, "case": "s.py::test_a[2]"},
    )
    assert lines.merge("phone", {"case": None, "degrees": None}) == ("phone", {})
    assert lines.merge("", {"doing": "compiling"}) == ("this computer", {"doing": "compiling"})


def test_devices_without_end_are_not_kept() -> None:
    lines = Lines()
    merged = [lines.merge(f"d{number}", {"name": f"n{number}"}) for number in range(1000)]
    assert merged[0] == ("n0", {})
    assert merged[-1] is None
    # those that are kept go on
    assert lines.merge("d0", {"verb": "noop"}) == ("n0", {"verb": "noop"})
    assert lines.merge("n1", {"verb": "noop"}) == ("n1", {"verb": "noop"})
    assert lines.merge("another name", {"name": "n1"}) is None


def test_what_is_no_fact_or_not_of_its_kind_is_passed_over() -> None:
    wrong = {"colour": "red", "size": 3, "gone": None, "verb": 3, "step": "x", "done": [1]}
    assert Lines().merge("phone", wrong) == ("phone", {})
    assert cleaned({"gone": None, "verb": None}) == {"verb": None}


@given(st.dictionaries(st.text(), st.none() | st.text() | st.floats() | st.integers()))
def test_whatever_is_told_is_bounded_text_and_numbers(facts: dict[str, object]) -> None:
    known = dict(zip(["case", "verb", "doing", "step", "done"], facts.values(), strict=False))
    merged = Lines().merge("x\x1b[2J\n" + "y" * 999, facts | known)
    assert merged is not None
    device, line = merged
    assert len(device) <= 200
    assert device.isprintable()
    for fact in line.values():
        if isinstance(fact, str):
            assert len(fact) <= 200
            assert "\n" not in fact
            assert "\x1b" not in fact
        else:
            assert abs(fact) < 1 << 60


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        (
            {"case": "suites/a.py::test_a[x/y]", "verb": "execute", "step": 3, "steps": 9},
            "3/9 execute  test_a[x/y]",
        ),
        (
            {"case": "a.py::t", "loaded": 3, "contexts": 66, "degrees": 41.4},
            "3/66 contexts  41 C  t",
        ),
        ({"doing": "pushing", "loaded": 3, "contexts": 66, "case": "a.py::t"}, "pushing  t"),
        ({"doing": "recovering: reboot"}, "recovering: reboot"),
        ({"case": "no name of pytest"}, "no name of pytest"),
    ],
)
def test_a_device_in_words(facts: dict[str, str | int | float], words: str) -> None:
    assert details(facts) == words


def test_each_case_counts_once() -> None:
    counts = RunCounts(CASES)
    assert counts.bad() == ""
    for _ in range(2):
        counts.ended("s.py::test_a[1]", failed=True)
        counts.ended("s.py::no_case", failed=True)
    counts.ended("s.py::test_a[2]", lab=True)
    counts.ended("s.py::test_b[1]", failed=True, lab=True)
    assert (counts.total, counts.finished, counts.failed, counts.lab_errors) == (4, 3, 2, 1)
    assert counts.bad() == "2 failed unexpectedly, 1 without a verdict"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0:00"),
        (0.2, "0:01"),
        (61, "1:01"),
        (3600, "1:00:00"),
        (359_999, "99:59:59"),
        (360_000, "100 h+"),
        (1e9, "100 h+"),
        (float("inf"), "100 h+"),
    ],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
