"""Live lines: what is on them, and that they fit, whatever a device says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from harness.ground.progress.drawing import Drawing, plain_line
from harness.ground.progress.state import Lines, RunState

CASES = {f"suites/test_x.py::test_a[{device}]": device for device in ("phone", "tablet")}
PLAIN = Drawing(colours=False, unicode=True)


def run_of(**facts: object) -> RunState:
    state = RunState(CASES, 100.0)
    merged = Lines().merge("phone", facts)
    assert merged is not None
    state.take(*merged, 100.0)
    return state


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "phone   1 to run"),
        (
            {"case": "suites/a.py::test_a[x/y]", "verb": "execute", "step": 3, "steps": 9},
            "phone   3/9 execute  test_a[x/y]",
        ),
        (
            {"case": "a.py::t", "loaded": 3, "contexts": 66, "degrees": 41.4},
            "phone   ━───────────  3/66 contexts  41 °C  t",
        ),
        (
            {"doing": "pushing", "done": 30e6, "total": 120e6, "unit": "MB"},
            "phone   pushing  ━━━─────────  30.0/120.0 MB",
        ),
        (
            {"doing": "pushing", "done": 1e12, "total": 2e12, "unit": "MB"},
            "phone   pushing  ━━━━━━──────  1000000.0/2000000.0 MB",
        ),
        ({"doing": "compiling", "done": 0, "total": 1}, "phone   compiling  ────────────  0/1"),
        ({"doing": "recovering: reboot"}, "phone   recovering: reboot"),
        ({"case": "no name of pytest"}, "phone   no name of pytest"),
    ],
)
def test_a_device_has_a_line(facts: dict[str, object], line: str) -> None:
    assert PLAIN.lines(run_of(**facts), 100.0, 100, 24)[0] == line


def test_what_takes_long_has_a_rate_and_an_end() -> None:
    state = run_of(doing="pushing", done=0, total=120_000_000, unit="MB")
    facts = {"doing": "pushing", "done": 30_000_000, "total": 120_000_000, "unit": "MB"}
    state.take("phone", facts, 110.0)
    assert PLAIN.lines(state, 110.0, 100, 24)[0].endswith("30.0/120.0 MB  3.0 MB/s  0:30 left")
    state.take("phone", {"doing": "compiling", "done": 0, "total": 5}, 110.0)
    state.take("phone", {"doing": "compiling", "done": 2, "total": 5}, 114.0)
    assert PLAIN.lines(state, 114.0, 100, 24)[0].endswith("2/5  0:06 left")


def test_the_run_has_the_last_line() -> None:
    state = run_of()
    state.ended("suites/test_x.py::test_a[phone]", 30.0, failed=True)
    assert PLAIN.lines(state, 130.0, 100, 24)[-1] == (
        "━━━━━━──────  1/2  1 unexpected  0:30 left  after 0:30"
    )
    assert plain_line(state, 130.0) == (
        "qnn-harness: 1 of 2 cases, 1 failed unexpectedly, about 0:30 left"
    )
    state.ended("suites/test_x.py::test_a[tablet]", 30.0, lab=True)
    assert PLAIN.lines(state, 160.0, 100, 24)[-1] == (
        "━━━━━━━━━━━━  2/2  1 unexpected  1 without a verdict  after 1:00"
    )
    assert "1 failed unexpectedly, 1 without a verdict" in plain_line(state, 160.0)
    assert PLAIN.lines(state, 160.0, 20, 24)[-1] == "2/2 1 unexpected 1…"


def test_where_there_is_not_room_for_all_those_at_work_are_shown() -> None:
    cases = {f"a.py::t[{number}]": f"d{number}" for number in range(9)}
    state = RunState(cases, 0.0)
    state.take("d8", {"case": "a.py::t[8]"}, 0.0)
    lines = PLAIN.lines(state, 0.0, 80, 7)
    assert [line.split()[0] for line in lines] == ["d8", "d0", "d1", "…", "────────────"]
    assert "… and 6 more" in lines
    shown = [line.split()[0] for line in PLAIN.lines(state, 0.0, 80, 12)]
    assert shown == [*(f"d{number}" for number in range(9)), "────────────"]
    assert PLAIN.lines(state, 0.0, 80, 3) == []
    assert [line.split()[0] for line in PLAIN.lines(state, 0.0, 80, 4)] == ["…", "────────────"]


def test_without_unicode_there_is_none() -> None:
    state = run_of(case="a.py::tést[" + "x" * 99, loaded=1, contexts=2, degrees=40)
    lines = Drawing(colours=False, unicode=False).lines(state, 100.0, 80, 24)
    assert all(line.isascii() for line in lines), lines


@pytest.mark.parametrize("unicode", [True, False])
def test_a_long_name_is_cut_so_that_there_is_room_for_the_rest(unicode: bool) -> None:
    state = RunState({"a.py::t": "x" * 30}, 0.0)
    drawing = Drawing(colours=False, unicode=unicode)

    def name(columns: int) -> str:
        return drawing.lines(state, 0.0, columns, 24)[0].split()[0]

    cut = "…" if unicode else "x"
    assert name(100) == "x" * 19 + cut
    assert name(30) == "x" * 9 + cut


def test_where_there_is_little_room_the_bar_goes_first_and_then_the_spaces() -> None:
    state = RunState({"a.py::t[1]": "phone", "a.py::t[2]": "phone"}, 0.0)
    state.ended("a.py::t[1]", 9.0)
    said = "1/2  0:09 left  after 0:09"
    assert [PLAIN.lines(state, 9.0, columns, 24)[-1] for columns in (60, 59, 40, 39)] == [
        f"━━━━━━──────  {said}",
        said,
        said,
        said.replace("  ", " "),
    ]
    assert [PLAIN.lines(state, 9.0, columns, 24) for columns in (1, 2)] == [[], ["…", "…"]]


def test_a_line_is_as_long_as_the_terminal_is_wide() -> None:
    case = "t[" + " ".join(["word"] * 99) + "]"
    (line, _, _) = PLAIN.lines(run_of(case=case), 100.0, 200, 24)
    assert line == f"phone   {case}"[:198] + "…"


def test_what_is_counted_wrongly_draws_no_more_than_a_whole_bar() -> None:
    facts = {"doing": "pushing", "total": 4}
    bars = [
        PLAIN.lines(run_of(**facts, done=done), 100.0, 100, 24)[0].split()[2] for done in (-1, 9)
    ]
    assert bars == ["─" * 12, "━" * 12]


def test_a_run_without_cases_has_a_line_too() -> None:
    state = RunState({}, 0.0)
    assert PLAIN.lines(state, 9.0, 100, 24) == ["0/0  after 0:09"]
    assert plain_line(state, 9.0) == "qnn-harness: 0 of 0 cases"


def test_colours_say_what_is_bad() -> None:
    state = run_of()
    state.ended("suites/test_x.py::test_a[phone]", 30.0, failed=True)
    coloured = Drawing(colours=True, unicode=True).lines(state, 130.0, 100, 24)
    plain = PLAIN.lines(state, 130.0, 100, 24)
    assert "\x1b[1;31m1 unexpected\x1b[0m" in coloured[-1]
    assert not any("\x1b" in line for line in plain)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == plain


words = st.text(max_size=300) | st.text("\x1b[2J\n\r\t\x07\u202e世🧪\u0301", max_size=300)
facts_given = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["case", "verb", "doing", "unit"], words),
        **dict.fromkeys(
            ["step", "steps", "loaded", "contexts", "done", "total", "degrees"],
            st.floats() | st.integers(),
        ),
    },
)


@given(words, facts_given, st.integers(0, 300), st.integers(0, 60), st.booleans())
def test_whatever_a_device_says_no_line_is_too_long_or_steers_the_terminal(
    name: str, facts: dict[str, object], columns: int, rows: int, unicode: bool
) -> None:
    state = RunState(CASES, 0.0)
    merged = Lines().merge(name, facts)
    assert merged is not None
    state.take(*merged, 0.0)
    for now in (0.0, 9.0):
        lines = Drawing(colours=True, unicode=unicode).lines(state, now, columns, rows)
        assert len(lines) <= max(0, rows - 2)
        for line in lines:
            bare = re.sub(r"\x1b\[[0-9;]*m", "", line)
            assert cell_len(bare) < columns
            assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", bare)
            assert unicode or bare.isascii()
