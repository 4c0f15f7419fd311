"""report.html: everything is escaped, nothing is fetched, and any record can be shown."""

import re
from typing import Any

import pytest

from harness.diagnosis.diagnosis import diagnosed
from harness.report.html import html_text
from harness.report.sections import RunData
from harness.results.journal import Contents, Damage
from harness.results.record import CaseRecord, held
from harness.runtimes.preflight_findings import Finding
from tests.report_page import Page, details_of, rows_of
from tests.unit.results.records import error, record

SCRIPTS = 3  # two hold data, one draws
EVIL = "</pre></script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"


def page(records: list[CaseRecord], info: dict[str, Any] | None = None, *damage: Damage) -> Page:
    return Page(html_text(RunData("r", Contents(tuple(records), damage), info or {})))


def test_everything_foreign_is_escaped() -> None:
    case = record(
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
    shown_page = page([case], info, Damage(3, EVIL))
    assert shown_page.tags.count("script") == SCRIPTS
    assert "img" not in shown_page.tags
    assert not [name for name, _ in shown_page.attributes if name.startswith("on")]
    assert any(EVIL in text for text in shown_page.texts)
    (shown,) = details_of(shown_page.whole)
    assert shown["measurements"]["deep"] == {EVIL: [EVIL]}


def test_nothing_is_fetched() -> None:
    text = html_text(RunData("r", Contents((record(logs=["logs/a b/javascript'x.txt"]),), ())))
    foreign = [url for url in re.findall(r"https?://[^\s\"']+", text) if "www.w3.org" not in url]
    assert foreign == []
    assert not re.search(r"//cdn|@import|url\(|fetch\(|XMLHttpRequest|innerHTML|eval\(", text)
    assert not [name for name, _ in Page(text).attributes if name == "src"]
    assert "default-src 'none'" in text


def test_what_is_shown() -> None:
    fixed = {"known_issues": ("some-issue",), "fails": False}
    checks = [held("saves", False, "saved nothing")]
    records = [
        record(case="first", fixed=fixed, checks=checks, axes={"contexts": 66, "backend": "htp"}),
        record(case="second", outcome="failed", axes={"contexts": 8, "backend": "htp"}),
        record(case="second", outcome="error", cause="infra", axes={}, attempt=2),
    ]
    info = {"started": "2026-11-21T06:00:00Z", "command_line": "pytest -m device"}
    shown_page = page(records, info, Damage(4, "is cut off"))
    for shown in ("pytest -m device", "line 4 is cut off", "Earlier attempts"):
        assert shown in " ".join(shown_page.texts)
    first, _ = details_of(shown_page.whole)
    assert first["fixed"] == {"known_issues": ["some-issue"], "fails": False}
    assert first["checks"][0].items() >= {"name": "saves", "verdict": "broken"}.items()
    rows = rows_of(shown_page.whole)
    assert rows["case"] == ["first", "second"]
    assert [rows["pool"][place] for place in rows["state"]] == ["passed", "error"]
    assert [entry["measurements"]["load_us"] for entry in details_of(shown_page.whole)] == [
        [300, 310, 305]
    ] * 2


@pytest.mark.parametrize("code", ["context-arch", "context-floats"])
def test_a_pass_that_only_a_simulator_gives_is_in_the_headline(code: str) -> None:
    finding = Finding(code=code, severity="info", explanation="v75", fix="-")
    for outcome, is_said in (("passed", True), ("failed", False)):
        text = page([record(outcome=outcome, preflight=(finding,))]).whole
        assert ("simulator accepts" in text) == is_said


@pytest.mark.parametrize("cases", [[record()], []])
def test_a_run_that_was_cut_short_says_so_first(cases: list[CaseRecord]) -> None:
    ended = {"finished": "2026-11-21T06:00:00Z"}
    for info in (ended, {}, {"finished": None}, ended | {"problem": "interrupted"}):
        is_cut = info not in (ended, {})
        assert ('class="verdict">Cut short' in page(cases, info).whole) == is_cut


def test_a_run_that_tested_nothing_says_so_first_and_why() -> None:
    skipped = record(outcome="skipped", measurements={"skip_reason": "no `DSP`\nhere"})
    info = {"selected": 2}
    shown_page = page([skipped, record(case="b", outcome="unsupported", error=error())], info)
    assert 'class="verdict">Nothing was tested: 1 unsupported, 1 skipped.' in shown_page.whole
    assert "<details open><summary>Unsupported: 1 case" in shown_page.whole
    rows = rows_of(shown_page.whole)
    assert rows["pool"][rows["why"][0]] == "no `DSP`"
    tested = page([skipped, record(case="b", outcome="failed", error=error(message="no `x`"))])
    assert "Nothing" not in tested.whole
    assert "on devices" in tested.whole
    assert "no <code>x</code>" in tested.whole
    assert "on devices" not in page([]).whole


def test_a_diagnosis_and_its_thread_are_shown() -> None:
    known = diagnosed("failed", error())
    shown_page = page([record(outcome="failed", error=known)])
    text = " ".join(" ".join(shown_page.texts).split())
    assert f"{known.diagnosis.words} {known.api} {known.code}" in text
    fix = " ".join(known.diagnosis.fix.replace("`", " ").split())
    assert f"{known.diagnosis.id}, known What helps: {fix}" in text
    assert "suites/test_context_count.py on sim-v73, QNN 2.51.0" in text
    assert ("href", known.diagnosis.thread) in shown_page.attributes
    uncalled = known.model_copy(update={"api": None, "code": None, "hex": None, "symbol": None})
    texts = page([record(outcome="failed", error=uncalled)]).texts
    assert texts.count(known.headline) == 1, "only the message names the op or the figure"
    evil = known.diagnosis.model_copy(update={"thread": "javascript:alert(1)", "words": EVIL})
    page_of_evil = page(
        [record(outcome="failed", error=known.model_copy(update={"diagnosis": evil}))]
    )
    assert page_of_evil.tags.count("script") == SCRIPTS
    assert ("href", "javascript:alert(1)") not in page_of_evil.attributes


def test_a_message_that_only_the_first_of_a_group_has_is_marked_as_its_own() -> None:
    for number, is_marked in ((57140, False), (1804, True)):
        took = [error(message=f"{us} us, at most 100") for us in (57140, number)]
        cases = [record(case=f"{n}", outcome="failed", error=took[n]) for n in range(2)]
        assert ("<b>The first: 57140 us" in page(cases).whole) == is_marked
        assert ("<b>57140 us" in page(cases).whole) != is_marked
