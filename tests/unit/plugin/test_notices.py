"""Notices of a run reach whoever watches it, also those that come up while a case runs."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.notices import Notices, shown_by
from tests.logged import Logged

CASE = """
import logging, threading

log = logging.getLogger("harness.runtimes.maven_repository")

def test_it(caplog):
    print("captured")
    log.info("how far it is")
    log.warning("said in the middle of a case, to http://me:secret@host/ by \x1b[2J")
    assert caplog.text == ""

def test_that_fails():
    thread = threading.Thread(target=log.warning, args=["said by a thread"])
    thread.start()
    thread.join()
    assert False
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_warning_in_a_case_is_shown_once_and_repeated_in_no_report(
    tmp_path: Path, workers: int
) -> None:
    (tmp_path / "test_it.py").write_text(CASE)
    completed = run_pytest(tmp_path, "--rootdir", ".", f"-n{workers}")
    assert completed.returncode == 1, completed.stdout
    warning = "arning: said in the middle of a case, to http://***@host/ by \\x1b[2J"
    assert completed.stdout.count(warning) == 1
    assert "arning: said by a thread" in completed.stdout
    for hidden in ("captured\n", "how far it is", "secret", "Captured log", "\x1b"):
        assert hidden not in completed.stdout
    assert completed.stderr == ""


def test_only_who_shows_notices_now_hears_them(logged: Logged) -> None:
    log = logging.getLogger("harness.deploy.deploy")
    inner = Logged()
    with shown_by(Notices(progress=inner.progress.append, warn=inner.warnings.append)):
        log.info("100 % of it")
        log.debug("nobody wants this")
    log.warning("then")
    assert inner == Logged(["100 % of it"], [])
    assert logged == Logged([], ["then"])


def test_a_path_that_is_not_there_is_said_alike_with_workers(tmp_path: Path) -> None:
    completed = run_pytest(tmp_path, "-n1", "nowhere")
    assert completed.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: file or directory not found: nowhere\n" in completed.stderr
    assert "INTERNALERROR" not in completed.stdout + completed.stderr
