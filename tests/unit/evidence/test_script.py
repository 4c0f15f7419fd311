"""The scripts that ask for evidence fit into one request, and shells take them."""

from __future__ import annotations

import subprocess

import pytest

from harness.adb.connection import MAX_REQUEST_BYTES
from harness.evidence.script import (
    collect_script,
    look_script,
    state_script,
)

TOKEN = "0123456789abcdef"
SCRIPTS = {
    "state": state_script(TOKEN),
    "collect": collect_script(TOKEN, last_s=7, boot_epoch_s=1, file_bytes=1 << 20, tombstones=4),
    "look": look_script(TOKEN, 7, file_bytes=1 << 20, seconds=2.5),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_small_and_valid(name: str) -> None:
    assert len(SCRIPTS[name]) < min(4000, MAX_REQUEST_BYTES)
    done = subprocess.run(["sh", "-n", "-c", SCRIPTS[name]], capture_output=True, check=False)
    assert done.stderr == b""
