"""`make release` in a clone: what is in the way is told; then all of a version is made."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.nightly.test_dist_nightly import ROOT, TIMEOUT_S, run

pytestmark = pytest.mark.nightly


def test_a_release_is_checked_made_and_tagged(tmp_path: Path) -> None:
    """In a clone: what is in the way is told, then all that goes with a version is made."""
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", "--no-tags", ROOT, copy], check=True, timeout=TIMEOUT_S)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    release = ("make", "-o", ".venv/.ready-dev", "release")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    said = run(*release, cwd=copy, code=2)
    assert "CHANGELOG.md has nothing under '## 0.1.0 - YYYY-MM-DD'" in said
    assert not (copy / "dist").exists()

    log = copy / "CHANGELOG.md"
    log.write_text(log.read_text().replace("## Unreleased", "## 0.1.0 - 2026-12-01", 1))
    assert "not committed: CHANGELOG.md" in run(*release, cwd=copy, code=2)
    run(*git, "commit", "-qam", "0.1.0", cwd=copy)
    made = subprocess.run(
        release,
        cwd=copy,
        env=os.environ | {f"GIT_COMMITTER_{key}": "a" for key in ("NAME", "EMAIL")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert "v0.1.0 is tagged here" in made.stdout
    assert "### Added" in run(*git, "tag", "--list", "-n99", "v0.1.0", cwd=copy)
    run("sha256sum", "--check", "SHA256SUMS", cwd=copy / "dist")
    bill = json.loads((copy / "dist/qnn_harness-0.1.0.cdx.json").read_text())
    parts = {one["name"] for one in bill["components"]}
    assert {"numpy", "pydantic", "pytest"} <= parts
    assert (bill["metadata"]["component"]["name"], bill["specVersion"]) == ("qnn-harness", "1.6")
    assert "file://" not in json.dumps(bill)
    assert {one.suffix for one in (copy / "dist").iterdir()} == {".whl", ".gz", ".md", ".json", ""}
    assert "v0.1.0 is tagged already" in run(*release, cwd=copy, code=2)
