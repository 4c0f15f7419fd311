"""What a run says of itself on the front page: rows, hostile words, and what stays of it."""

from __future__ import annotations

import os
from pathlib import Path

from harness.answers.history.database import open_database
from harness.answers.report.pages import filled
from harness.answers.site.build import build
from harness.answers.site.live import NOW, LiveFront, kept_now
from harness.ground.progress.state import RunState
from tests.logged import Logged

CASES = {"::a": "phone-1", "::b": "phone-1", "::c": "<b>evil"}


def state() -> RunState:
    made = RunState(CASES, 100.0)
    made.take("phone-1", {"case": "<i>::b", "degrees": 41.2, "verb": "load", "step": 2}, 130.0)
    made.ended("::a", 10.0, failed=True)
    return made


def test_each_device_has_a_row(tmp_path: Path) -> None:
    front = LiveFront(tmp_path / "site", "run-1")
    front.page(state(), 160.0)()
    text = (tmp_path / "site/index.html").read_text()
    assert "1 of 3 cases are over, 1 failed unexpectedly, about" in text
    assert "after 1:00." in text
    assert "<code>&lt;i&gt;::b</code>" in text
    assert "0:30</td>" in text
    assert "41 °C" in text
    assert "<b>evil" not in text
    front.end()
    assert "phone-1" not in (tmp_path / "site/index.html").read_text()


def test_a_site_that_is_written_anew_keeps_it_while_it_is_fresh(tmp_path: Path) -> None:
    database, out = open_database(str(tmp_path / "h")), tmp_path / "site"
    build(database, out)
    LiveFront(out, "run-1").page(state(), 160.0)()
    build(database, out)
    assert "phone-1" in (out / "index.html").read_text()
    os.utime(out / "index.html", (0, 0))
    assert kept_now(out) == ""
    build(database, out)
    assert "phone-1" not in (out / "index.html").read_text()


def test_a_page_without_a_place_for_it_stays_as_it_is() -> None:
    assert filled("<p>mine</p>", NOW, kept_now(Path("/nowhere"))) == "<p>mine</p>"


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path: Path, logged: Logged) -> None:
    (tmp_path / "site").write_text("a file")
    front = LiveFront(tmp_path / "site", "run-1")
    for _ in range(3):
        front.page(state(), 160.0)()
    assert len(logged.warnings) == 1
