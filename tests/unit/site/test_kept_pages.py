"""Pages of runs, comparisons and bisections in the site: what leads where, and what stays."""

from __future__ import annotations

import os
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from harness.core.errors import InfraError
from harness.history.database import CauseSummary, NightSummary, open_database, store_night
from harness.report.document import Heading, page
from harness.report.projections import project
from harness.report.sections import Since
from harness.results.run_folder import RunFolder
from harness.site.pages import page_of
from tests.unit.history.runs import attempt, run_folder
from tests.unit.site.test_build import FIRST, SECOND, built

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
    (folder / NIGHT / "comparison.html").write_text(page("beside", [Heading("beside", 1)]))
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
    summary = NightSummary(night=NIGHT, run=SECOND, causes=causes)
    store_night(open_database(str(folder / "history.sqlite")), summary)
    built(folder)
    return folder / "site"


def leads_of(page: Path) -> list[str]:
    """Return the targets of a page's links, relative to the site's folder; each exists."""
    site = next(
        parent for parent in page.parents if parent.name == "site" or parent.name == "moved"
    )
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
    for one in (NIGHT, BISECT, FIRST, SECOND):
        shutil.rmtree(tmp_path / one)
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
    run.write_text("\n".join([run.read_text(), attempt("b failed").model_dump_json()]))
    os.utime(run, ns=(1, was.st_mtime_ns + 1))
    built(tmp_path)
    assert "2 of 2 cases" in page.read_text()
    run.unlink()
    built(tmp_path)
    assert f"reports/{SECOND}/report.html" in leads_of(site / "index.html")


def test_no_page_is_taken_from_elsewhere(tmp_path: Path) -> None:
    run = reports(tmp_path)[0]
    (tmp_path / "secret").write_text("secret")
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(tmp_path / "secret")
    (tmp_path / NIGHT / "comparison.html").unlink()
    summary = NightSummary(night="../secret", run=FIRST)
    store_night(open_database(str(tmp_path / "history.sqlite")), summary)
    built(tmp_path, run)
    (page,) = (tmp_path / "site/reports").rglob(f"{FIRST}/*")
    assert "1 of 1 case has a verdict" in page.read_text()
    assert "secret" not in "".join(path.read_text() for path in tmp_path.glob("site/**/*.html"))


def test_of_a_run_that_another_holds_no_page_is_kept(tmp_path: Path) -> None:
    for name, outcome in (("one", "passed"), ("two", "failed")):
        (tmp_path / name).mkdir()
        folder = run_folder(tmp_path / name, attempt(f"a {outcome}"), run_id=FIRST)
        built(tmp_path, folder)
    page = (tmp_path / f"site/reports/{FIRST}/report.html").read_text()
    assert "1 of 1 case has a verdict: 1 passed." in page


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
    store_night(
        open_database(str(tmp_path / "history.sqlite")),
        NightSummary(night=NIGHT, run=FIRST, causes={"c": CauseSummary(folder=BISECT)}),
    )
    built(tmp_path)
    run, *copies = (tmp_path / "site/reports" / file.relative_to(tmp_path) for file in pages)
    assert "evil.example" not in run.read_text()
    for copy in copies:
        policy, _, text = copy.read_text().partition("<script")
        assert "evil.example" in text
        assert "Content-Security-Policy" in policy
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
