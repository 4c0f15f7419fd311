"""A journal that anybody may have written: all that is made of it is valid, bounded and quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.results.journal import MAX_LINE_BYTES
from tests.integration.hostile_words import COMMANDS, steering
from tests.report_page import Page, details_of, rows_of
from tests.unit.results.records import error, record

MB = 1 << 20
EVIL = (
    "</script><img src=x onerror=alert(1)>]]>&amp;\x1b[31m\x1b]0;t\x07\x00\x08\r"
    "\u202e\u2028\ufffe\U000e0001'\"`$(id)" + "".join(f"\n{command}" for command in COMMANDS)
)
HUGE = 7 * MB


def line_of(**changed: Any) -> bytes:
    return record(**changed).model_dump_json().encode() + b"\n"


def journal() -> bytes:
    """Records of evil words, and what is no record; lines of 7 MB of both."""
    evil = {
        "case": f"suites/test_{EVIL}.py::test[{EVIL}]",
        "suite": EVIL,
        "axes": {EVIL: EVIL, "qnn": EVIL, "prepare": "raw", "execute": "raw"},
        "measurements": {EVIL: {EVIL: [EVIL]}, "load_us": [1, 2, 3], "shared_buffer_bytes": EVIL},
        "logs": ["logs/evil.txt"],
    }
    huge = "A\x1b[2J<b>" * (HUGE // 13)  # of which JSON makes 13 bytes each
    failed = {"outcome": "failed", "error": error(message=EVIL, api=EVIL, symbol=EVIL)}
    return b"".join(
        [
            line_of(**evil),
            line_of(**evil | failed | {"case": "other::" + EVIL}),
            line_of(case="huge::message", outcome="failed", error=error(message=huge)),
            line_of(case="huge::" + huge[:MB]),
            line_of(
                case="huge::measured", measurements={"words": huge, "load_us": [1] * (MB // 4)}
            ),
            line_of(case="huge::axis", axes={"contexts": huge}),
            b"\xff\xfe\x00" * 1000 + b"\n",
            b'{"kind": "case", "case": "\xc3\x28"}\n',
            b"[" * 100_000 + b"\n",
            b'{"a":' * 100_000 + b"\n",
            b"\x00" * HUGE + b"\n",
            b"x" * (MAX_LINE_BYTES + MB) + b"\n",
            line_of(case="last::one"),
            line_of(case="torn::one")[:-20],
        ]
    )


def tags_of(text: str) -> list[str]:
    page = Page(text)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    return page.tags


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports") / "20261121T060000Z-00ff"
    (folder / "logs").mkdir(parents=True)
    (folder / "results.jsonl").write_bytes(journal())
    (folder / "run.json").write_text(
        json.dumps({"schema": 1, "run": EVIL, "problem": EVIL, "command_line": EVIL})
    )
    (folder / "logs/evil.txt").write_bytes(EVIL.encode("utf-8", "replace") + b"\xff\xfe" * HUGE)
    return folder


def command(*words: object) -> bytes:
    completed = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *map(str, words)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode in (0, 1), completed.stderr[-2000:]
    assert steering(completed.stdout + completed.stderr) == []
    assert b"Traceback" not in completed.stderr
    return completed.stdout


def test_reports_of_a_hostile_journal(run: Path) -> None:
    output = command("report", "write", run)
    assert len(output) < MB
    page = (run / "report.html").read_text()
    assert len(page) < 3 * MB
    tags = tags_of(page)
    assert (tags.count("script"), tags.count("img"), tags.count("body")) == (3, 0, 1)
    cases = rows_of(page)["case"]
    assert {"huge::message", "huge::measured", "huge::axis", "last::one"} <= set(cases)
    assert len(details_of(page)) == len(cases)
    assert "line 7" in page
    assert "torn::one" not in cases
    junit = (run / "junit.xml").read_bytes()
    assert len(junit) < 50 * MB
    named = [element.get("name") for element in ElementTree.fromstring(junit).iter("testcase")]
    # the run says that it was cut short: that has a test case of its own
    assert len(named) == len(cases) + 1
