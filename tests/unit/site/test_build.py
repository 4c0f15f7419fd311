"""A site of hand-made runs: its pages, where they lead, and which are written or kept again."""

import json
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from harness.cli.report import site
from harness.core.errors import InfraError
from harness.diagnosis.error_record import FORETOLD, Diagnosis
from harness.history.attempts import Attempt, cause_id
from harness.history.database import CauseSummary, NightSummary, open_database, store_night
from harness.history.importing import import_run
from harness.report.document import Heading, page as as_page
from harness.report.report_files import project
from harness.report.sections import Since
from harness.results.run_folder import INFO, RunFolder
from harness.site.build import SiteWriter, build
from harness.site.pages import SiteData, page_of
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder

EVIL = "<img src=x onerror=alert(1)>\"'&amp;../../evil"
BAD = "a failed id=x"
FIRST, SECOND, THIRD = (f"2026110{day}T220000Z-{day:016x}" for day in (1, 2, 3))


def nights(folder: Path) -> list[Path]:
    """Two nights: one thing breaks, one is mended, one is lost, names are hostile."""
    fine, evil = attempt("a passed"), attempt("b passed", device="<b>&'\"")
    return [
        run_folder(folder, fine, attempt("c failed id=x"), evil, run_id=FIRST),
        run_folder(
            folder,
            attempt("a failed id=x"),
            attempt("c passed"),
            attempt("d failed", file=f"suites/{EVIL}.py"),
            attempt("b error", device="<b>&'\""),
            run_id=SECOND,
        ),
    ]


def built(folder: Path, *runs: Path) -> SiteWriter:
    database = open_database(str(folder / "history.sqlite"))
    for run in runs:
        import_run(database, run)
    return build(database, folder / "site")


def build_again(folder: Path, **summary: Any) -> None:
    """The site once more, when a night has told this of its run."""
    database = open_database(str(folder / "history.sqlite"))
    store_night(database, NightSummary(**{"night": "n"} | summary))
    build(database, folder / "site")


def outline(page: Path, *, days: bool = False) -> list[str]:
    """Headings, verdict and plain paragraphs of a page, with DAY for its times unless asked."""
    parts = re.findall(r'<(h[12]|p class="(?:verdict[^"]*)?")>(.*?)</', page.read_text())
    lines = [re.sub("<[^>]*>", "", text) for _, text in parts]
    moment = r"\d{4}(-\d\d){2}( \d\d:\d\d UTC)?"
    return lines if days else [re.sub(moment, "DAY", line) for line in lines]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    built(tmp_path, *nights(tmp_path))
    return tmp_path / "site"


def test_each_link_leads_to_a_page_of_the_site(pages: Path) -> None:
    links = 0
    for page in pages.rglob("*.html"):
        for link in re.findall(r'href="([^"#]*)"', page.read_text()):
            links += 1
            assert (page.parent / unquote(unescape(link))).is_file(), (page, link)
    assert links > 50


def test_the_front_page_tells_what_broke(pages: Path, snapshot: Snapshot) -> None:
    assert outline(pages / "index.html") == snapshot
    text = (pages / "index.html").read_text()
    assert page_of("case", attempt("a passed").test) in text
    assert page_of("night", SECOND) in text
    cell = f'<a href="{page_of("night", FIRST)}"><span class="o o-failed">1</span></a>'
    assert cell in unescape(text), "the grid leads to its nights"


def test_who_runs_a_case_again_by_hand_makes_no_night(tmp_path: Path, snapshot: Snapshot) -> None:
    built(tmp_path, *nights(tmp_path))
    build_again(tmp_path, run=SECOND)
    built(tmp_path, run_folder(tmp_path, attempt("c passed"), run_id=THIRD))
    site = tmp_path / "site"
    names = ("index.html", page_of("night", THIRD), page_of("night", SECOND))
    assert [outline(site / name)[:2] for name in names] == snapshot
    assert page_of("night", THIRD) not in (site / "index.html").read_text()
    assert page_of("night", THIRD) in (site / "nights.html").read_text()


def test_what_came_with_a_cause_is_told_and_not_of_what_is_fixed(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    runs = [
        run_folder(tmp_path, attempt(message), run_id=run_id)
        for run_id, message in ((FIRST, "a passed"), (SECOND, BAD), (THIRD, "a@2.52.0 passed"))
    ]
    cause = cause_id(Attempt.of(attempt(BAD)))
    causes = {cause: CauseSummary(files_changed=("test_a.py",))}
    built(tmp_path, *runs[:2])
    build_again(tmp_path, run=SECOND, causes=causes)
    built(tmp_path, *runs[2:])
    broke, fixed = (tmp_path / "site" / page_of("night", run) for run in (SECOND, THIRD))
    assert [outline(broke), outline(fixed)] == snapshot
    assert re.search(r"<a [^>]*>[-0-9]*</a>; [^<]*<code>test_a.py</code>", broke.read_text())
    assert "test_a.py</code>" not in fixed.read_text()


def test_a_case_ends_so_since_its_night_began_whatever_the_hour_of_the_attempt(
    tmp_path: Path,
) -> None:
    after = attempt("a failed", started=datetime(2030, 1, 2, 0, 30, tzinfo=UTC))
    before = run_folder(tmp_path, attempt("a passed"), run_id=FIRST)
    run = run_folder(tmp_path, after, run_id=SECOND)
    built(tmp_path, before, run)
    day = str(RunFolder.open(run).info()["started"])[:10]
    text = (tmp_path / "site" / page_of("case", after.test)).read_text()
    assert re.findall(r"ails[^<]* since ([-0-9]*)", text) == [day, day]
    assert "2030" not in text


def test_what_others_named_is_never_a_tag_nor_a_path(pages: Path) -> None:
    for page in pages.rglob("*.html"):
        text = page.read_text()
        assert "<img" not in text
        assert "<b>&" not in text
        assert "Content-Security-Policy" in text
        assert "evil" not in page.name or page.parent.name == "case"
    assert not list(pages.parent.glob("evil*"))
    assert {path.name for path in pages.iterdir() if path.is_dir()} >= {"night", "case", "device"}


def test_only_what_has_changed_is_written_again(tmp_path: Path) -> None:
    runs = nights(tmp_path)
    first = built(tmp_path, *runs)
    again = built(tmp_path)
    nights_written = 2  # their pages need not even be made again
    assert (first.unchanged, again.written, again.unchanged) == (
        0,
        0,
        first.written - nights_written,
    )
    page = tmp_path / "site" / page_of("night", FIRST)
    was = page.stat().st_mtime_ns
    more = built(tmp_path, run_folder(tmp_path, attempt("a failed id=x"), run_id=THIRD))
    assert 0 < more.written < first.written
    assert page.stat().st_mtime_ns == was


def test_the_command_takes_in_new_runs(tmp_path: Path) -> None:
    nights(tmp_path)
    words = ["--output", str(tmp_path / "out"), "--reports", str(tmp_path)]
    for is_first in (True, False):
        output = CliRunner().invoke(site, words, catch_exceptions=False).output
        (pages,) = re.findall(r"out/index.html: (\d+) ", output)
        assert (int(pages) > 0) is is_first
    assert (tmp_path / "out/index.html").is_file()


def test_a_history_without_runs_has_a_front_page(tmp_path: Path, snapshot: Snapshot) -> None:
    built(tmp_path)
    assert outline(tmp_path / "site/index.html") == snapshot


def many(folder: Path, number: int) -> list[Path]:
    """Nights of which each has a case that always failed, one that fails since the third night,
    one that is lost since the second, one that fails at first only, and one that is flaky."""
    runs = []
    for index in range(number):
        messages = [
            "always failed id=old message=as_ever",
            "broke@2.0 failed id=new message=since_then" if index > 1 else "broke@1.0 passed",
            f"lost {'error' if index else 'passed'}",
            f"once {'passed' if index else 'failed message=gone'}",
            f"flaky {'failed' if index % 4 == 1 else 'passed'}",
        ]
        started = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=index)
        run_id = f"{started:%Y%m%dT%H%M%SZ}-{index:016x}"
        runs.append(run_folder(folder, *map(attempt, messages), run_id=run_id))
        info = json.loads((runs[-1] / INFO).read_text()) | {"started": started.isoformat()}
        (runs[-1] / INFO).write_text(json.dumps(info))
    return runs


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The site reads six runs and tells changes of three, as if these were 60 and 30."""
    for name in ("site.build", "history.run_changes"):
        monkeypatch.setattr(f"harness.{name}.WINDOW", 6)
    for name in ("MARKS", "_SHOWN"):
        monkeypatch.setattr(f"harness.site.build.{name}", 3)


def pages_of(site: Path) -> dict[str, str]:
    return {str(path.relative_to(site)): path.read_text() for path in site.rglob("*.html")}


def test_pages_say_the_same_whether_made_night_by_night_or_at_once(
    tmp_path: Path, few: None
) -> None:
    runs = many(tmp_path, 14)
    step = [built(tmp_path, *runs[:-1]), built(tmp_path, *runs[-1:])]
    assert step[1].written < step[0].written
    all_pages = pages_of(tmp_path / "site")
    shutil.rmtree(tmp_path / "site")
    built(tmp_path)
    anew = pages_of(tmp_path / "site")
    nights = {page for page in anew if page.startswith("night/")}
    # the page of the night before says what was suspected then
    for name in anew.keys() - nights:
        assert all_pages[name] == anew[name], name
    assert all_pages.keys() == anew.keys()


def test_a_cause_has_its_diagnosis_and_stays_when_it_is_long_gone(
    tmp_path: Path, few: None, snapshot: Snapshot
) -> None:
    built(tmp_path, *many(tmp_path, 12))
    site = tmp_path / "site"
    causes = (site / "causes.html").read_text()
    (former,) = re.findall(r'href="(cause/[^"]*)">[^<]*gone', causes)
    (new,) = re.findall(r'href="(cause/[^"]*)">so</a> <span class="dim">new<', causes)
    assert outline(site / former, days=True) == snapshot
    assert outline(site / new, days=True) == snapshot


def test_nothing_is_green_above_what_was_tested_no_more(tmp_path: Path, snapshot: Snapshot) -> None:
    both = run_folder(tmp_path, attempt("a passed"), attempt("b passed"), run_id=FIRST)
    folder = run_folder(tmp_path, attempt("a passed"), run_id=SECOND)
    built(tmp_path, both, folder)
    front = tmp_path / "site/index.html"
    assert 'class="verdict bad"' not in front.read_text()
    changes = {"exit_code": 1, "failed_on": ("vanished",), "vanished": ("test_b[gone]",)}
    build_again(tmp_path, run=SECOND, **changes)
    assert outline(front) == snapshot
    assert "<code>test_b[gone]</code>" in front.read_text()
    assert 'class="verdict bad"' in front.read_text()


@pytest.mark.parametrize("good", ["passed", "failed"])
def test_a_test_ends_only_so_where_its_verdict_is_current(
    tmp_path: Path, good: str, snapshot: Snapshot
) -> None:
    test = "suites/test_a.py::test_b[a]"

    def state_of_run(run_id: str, *ends: tuple[str, str]) -> str:
        records = [attempt(f"a {end}", device=name, test=test) for name, end in ends]
        built(tmp_path, run_folder(tmp_path, *records, run_id=run_id))
        return outline(tmp_path / "site" / page_of("case", test))[1]

    assert [
        state_of_run(FIRST, ("p", good), ("q", good)),
        state_of_run(SECOND, ("p", good), ("q", "error")),
        state_of_run(THIRD, ("p", "error"), ("q", "error")),
    ] == snapshot


def test_what_is_new_since_the_night_before_is_new_though_a_run_by_hand_saw_it(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    good = run_folder(tmp_path, attempt("a passed"), run_id=FIRST)
    by_hand = run_folder(tmp_path, attempt("a failed"), run_id=SECOND)
    night = run_folder(tmp_path, failing := attempt("a failed"), run_id=THIRD)
    message = "1 failure; 1 new"
    build_again(tmp_path, run=FIRST)
    changes = {"failed_on": ("new", "vanished"), "new": (failing.case,), "verdict": message}
    build_again(tmp_path, night="o", run=THIRD, exit_code=1, base=FIRST, **changes)
    built(tmp_path, good, by_hand, night)
    assert outline(tmp_path / "site/index.html") == snapshot
    assert "1 new failure" in (tmp_path / "site/reports" / THIRD / "report.html").read_text()


def test_a_device_that_was_lost_is_not_said_to_have_failed_nothing_ever(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    failed = run_folder(tmp_path, attempt("a failed"), run_id=FIRST)
    built(tmp_path, failed, run_folder(tmp_path, attempt("a error"), run_id=SECOND))
    page = tmp_path / "site" / page_of("device", "sim")
    assert outline(page) == snapshot
    text = page.read_text()
    assert re.findall("<th[^>]*>([^<]*)</th>", text[text.index("Night by night") :])[:4] == snapshot


def test_a_failure_that_a_known_issue_expects_is_one_of_its_device(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    built(tmp_path, run_folder(tmp_path, attempt("a failed known=slow-load"), run_id=FIRST))
    for name in (page_of("device", "sim"), "index.html"):
        page = tmp_path / "site" / name
        assert outline(page) == snapshot
        assert "<code>slow-load</code>" in page.read_text()


NIGHT, BISECT = "20261102T220000Z-0002-nightly", "20261102T230000Z-0003-bisect"


def reports(folder: Path) -> list[Path]:
    """Two runs with their pages, the second's comparison, and a bisection of what it broke."""
    logs = ["logs/a/probe.log"]
    runs = [
        run_folder(folder, attempt("a passed"), run_id=FIRST),
        run_folder(folder, attempt("a failed id=x", logs=logs), run_id=SECOND),
    ]
    for run, since in zip(runs, (None, Since(FIRST, {}, (), {})), strict=True):
        project(RunFolder.open(run), since)
    (folder / NIGHT).mkdir()
    (folder / NIGHT / "comparison.html").write_text(as_page("beside", [Heading("beside", 1)]))
    (folder / BISECT).mkdir()
    links = '<a href="./runs/1/report.html#x">1</a><a href="./">all</a>'
    (folder / BISECT / "report.html").write_text(f"<!--navigation--><!--/navigation-->{links}")
    return runs


def cause_of(folder: Path) -> str:
    (file,) = (folder / "site/cause").iterdir()
    return file.name.rpartition("-")[0]


def written(folder: Path) -> Path:
    runs = reports(folder)
    built(folder, *runs)
    causes = {cause_of(folder): CauseSummary(known="first bad 2.51.0", folder=BISECT)}
    build_again(folder, night=NIGHT, run=SECOND, causes=causes)
    return folder / "site"


def leads_of(page: Path) -> list[str]:
    """Return the targets of a page's links, relative to the site's folder; each exists."""
    site = next(parent for parent in page.parents if parent.name in ("site", "moved"))
    links = [unquote(unescape(link)) for link in re.findall(r' href="([^"#]+)', page.read_text())]
    leads = [(page.parent / entry).resolve() for entry in links]
    assert all(entry.is_file() for entry in leads), (page, links)
    return [str(path.relative_to(site.resolve())) for path in leads]


def test_a_page_that_cannot_be_kept_is_the_labs_and_ends_no_night(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/reports").write_text("a file in the way of the folder")
    with pytest.raises(InfraError, match="reports"):
        written(tmp_path)


def test_nights_causes_and_cases_lead_to_them_wherever_the_folder_is(tmp_path: Path) -> None:
    site = tmp_path / "moved"
    shutil.move(written(tmp_path), site)
    for name in (NIGHT, BISECT, FIRST, SECOND):
        shutil.rmtree(tmp_path / name)
    run, bisection = (f"reports/{name}/report.html" for name in (SECOND, BISECT))
    for name in ("index.html", page_of("night", SECOND)):
        assert {run, f"reports/{NIGHT}/comparison.html", bisection} < set(leads_of(site / name))
    for path in (site / "reports").rglob("*.html"):
        assert {"index.html", "nights.html"} < set(leads_of(path)), path
    assert f"reports/{FIRST}/report.html" in leads_of(site / run)
    assert (site / bisection).read_text().count("data-gone") == 2, "its runs stay where they are"


def test_only_what_was_made_anew_is_kept_anew_and_what_is_gone_stays(tmp_path: Path) -> None:
    site = written(tmp_path)
    run = tmp_path / SECOND / "results.jsonl"
    page = site / "reports" / SECOND / "report.html"
    was = page.stat()
    assert was.st_mtime_ns == run.stat().st_mtime_ns
    built(tmp_path)
    assert page.stat().st_ino == was.st_ino
    before = page.read_text()
    run.write_text("\n".join([run.read_text(), attempt("b failed").model_dump_json()]))
    os.utime(run, ns=(1, was.st_mtime_ns + 1))
    built(tmp_path)
    assert page.read_text() != before
    run.unlink()
    built(tmp_path)
    assert f"reports/{SECOND}/report.html" in leads_of(site / "index.html")


def test_no_page_is_taken_from_elsewhere(tmp_path: Path) -> None:
    run = reports(tmp_path)[0]
    (tmp_path / "secret").write_text("secret")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(tmp_path / "secret")
    (tmp_path / NIGHT / "comparison.html").unlink()
    built(tmp_path, run)
    build_again(tmp_path, night="../secret", run=FIRST)
    (page,) = (tmp_path / "site/reports").rglob(f"{FIRST}/*")
    assert "1 passed" in page.read_text()
    assert "secret" not in "".join(path.read_text() for path in tmp_path.glob("site/**/*.html"))


def test_of_a_run_that_another_holds_no_page_is_kept(tmp_path: Path) -> None:
    for name, outcome in (("one", "passed"), ("two", "failed")):
        (tmp_path / name).mkdir()
        folder = run_folder(tmp_path / name, attempt(f"a {outcome}"), run_id=FIRST)
        built(tmp_path, folder)
    page = (tmp_path / f"site/reports/{FIRST}/report.html").read_text()
    assert "1 passed." in page


def test_no_script_of_a_strangers_page_is_published(tmp_path: Path) -> None:
    runs, evil = reports(tmp_path), "<script>fetch('https://evil.example/')</script>"
    pages = [
        runs[0] / "report.html",
        tmp_path / NIGHT / "comparison.html",
        tmp_path / BISECT / "report.html",
    ]
    for file in pages:
        file.write_text(f"<!DOCTYPE html><html><head>{evil}</head><body onload=alert(1)></body>")
    built(tmp_path, *runs)
    causes = {"c": CauseSummary(folder=BISECT)}
    build_again(tmp_path, night=NIGHT, run=FIRST, causes=causes)
    run, *copies = (tmp_path / "site/reports" / file.relative_to(tmp_path) for file in pages)
    assert "evil.example" not in run.read_text()
    for copy in copies:
        policy, _, text = copy.read_text().partition("<script")
        assert "evil.example" in text
        assert "Content-Security-Policy" in policy
        assert "default-src 'none'" in policy
        assert "script-src" not in policy


def test_a_cause_is_named_by_words_that_fit_cases_without_a_prediction() -> None:
    plain = Diagnosis(id="pd-exhausted", confidence="known", words="the PD is full")
    foretold = plain.model_copy(update={"words": f"{FORETOLD}too many contexts: {plain.words}"})
    causes = [
        SimpleNamespace(cause=name, record=SimpleNamespace(diagnosis=diagnosis))
        for name, diagnosis in (("a", plain), ("b", foretold))
    ]
    diagnoses: Any = vars(SiteData)["diagnoses"].func
    assert diagnoses(SimpleNamespace(causes=causes)) == {"a": plain, "b": plain}
