"""report.html: everything is escaped, nothing is fetched, and any record can be shown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.failure.diagnosis import diagnosed
from harness.results.checks import held, undecided
from harness.results.html import html_text
from harness.results.journal import Contents, Damage
from harness.results.pages import outcome_bar, sparkline, thinned
from harness.results.record import CaseRecord
from tests.unit.results.records import error, record, records

EVIL = "</pre></script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"


class Page(HTMLParser):
    """Collects tags, attributes and text as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page(made: list[CaseRecord], info: dict[str, Any] | None = None, *damage: Damage) -> Page:
    return Page(html_text(Contents(tuple(made), damage), info or {}, run="r"))


def test_everything_foreign_is_escaped() -> None:
    made = record(
        case=EVIL,
        suite=EVIL,
        axes={EVIL: EVIL},
        measurements={EVIL: EVIL, "deep": {EVIL: [EVIL]}},
        checks=[held(EVIL, False, EVIL)],
        outcome="failed",
        error=error(api=EVIL, message=EVIL, symbol=EVIL),
        expected={"known_issue": EVIL},
        device={"name": EVIL, "serial": EVIL, "soc": EVIL, "target": EVIL, "simulated": True},
        logs=["logs/" + EVIL.replace("/", "")],
    )
    info = {"problem": EVIL, EVIL: EVIL, "command_line": EVIL, "host": {"name": EVIL}}
    found = page([made], info, Damage(3, EVIL))
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert any(EVIL in text for text in found.texts)


def test_nothing_is_fetched_and_links_stay_in_the_folder() -> None:
    text = html_text(Contents((record(logs=["logs/a b/javascript:x.txt"]),), ()), {}, run="r")
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    links = [value for name, value in Page(text).attributes if name in ("href", "src")]
    assert links == ["./logs/a%20b/javascript%3Ax.txt"]
    assert "default-src 'none'" in text


def test_what_is_shown() -> None:
    made = [
        record(case="first", axes={"contexts": 66, "backend": "htp"}),
        record(case="second", outcome="failed", axes={"contexts": 8, "backend": "htp"}),
        record(case="second", outcome="error", cause="infra", axes={}, attempt=2),
    ]
    info = {"started": "2026-11-21T06:00:00Z", "command_line": "pytest -m device"}
    found = page(made, info, Damage(4, "is cut off"))
    text = " ".join(" ".join(found.texts).split())
    for shown in ("first", "second", "pytest -m device", "line 4 is cut off", "3 values: min 300"):
        assert shown in text
    assert "Earlier attempts" in text
    assert "polyline" in found.tags


def test_checks_are_shown_with_their_verdicts() -> None:
    checks = [held("saves", False, "saved nothing"), undecided("copies", "no event tells")]
    text = " ".join(" ".join(page([record(checks=checks)]).texts).split())
    for shown in ("saves", "broken", "saved nothing", "copies", "unseen", "no event tells"):
        assert shown in text


def test_an_empty_run_can_be_shown() -> None:
    assert "0 cases" in "".join(page([]).texts)


def test_the_bar_is_divided_by_share() -> None:
    bar = str(outcome_bar({"passed": 3, "failed": 1}, width=100))
    assert 'width="75.00"' in bar
    assert 'x="75.00"' in bar
    assert str(outcome_bar({})).count("rect") == 0


def test_thinning_keeps_the_peaks() -> None:
    values = [1.0] * 1000
    values[777] = 99.0
    assert len(thinned(values, 50)) == 50
    assert max(thinned(values, 50)) == 99.0
    assert thinned([1, 2], 50) == [1.0, 2.0]


def test_no_line_is_drawn_for_a_single_value() -> None:
    assert str(sparkline([5])) == ""


@given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=400))
def test_lines_stay_inside_their_picture(values: list[float]) -> None:
    found = re.search(r'points="([^"]*)"', str(sparkline(values, width=180)))
    assert found is not None
    points = [tuple(map(float, point.split(","))) for point in found[1].split()]
    assert len(points) == min(len(values), 200)
    assert all(-0.1 <= x <= 180.1 and 0 <= y <= 26 for x, y in points)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(records(), max_size=5),
    st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.text(max_size=9)), max_size=3),
)
def test_any_records_can_be_shown(made: list[CaseRecord], info: dict[str, Any]) -> None:
    found = page(made, info)
    assert found.tags.count("script") == 1
    assert found.tags.count("body") == 1


def test_a_diagnosis_and_its_thread_are_shown() -> None:
    known = diagnosed("failed", error())
    assert known.diagnosis is not None
    found = page([record(outcome="failed", error=known)])
    assert any(f"known: {known.diagnosis.words}" in text for text in found.texts)
    assert any("(known)" in text for text in found.texts)
    assert ("href", known.diagnosis.thread) in found.attributes
    evil = known.diagnosis.model_copy(update={"thread": "javascript:alert(1)", "words": EVIL})
    page_of_evil = page(
        [record(outcome="failed", error=known.model_copy(update={"diagnosis": evil}))]
    )
    assert page_of_evil.tags.count("script") == 1
    assert ("href", "javascript:alert(1)") not in page_of_evil.attributes


def test_what_may_be_fixed_is_shown() -> None:
    found = page([record(fixed={"known_issues": ("some-issue",), "fails": False})])
    assert any("conditions of some-issue" in text for text in found.texts)
