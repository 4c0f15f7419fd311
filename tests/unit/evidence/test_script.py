"""The scripts that ask for evidence fit into one request, and shells take them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.adb.connection import MAX_REQUEST_BYTES
from harness.adb.sections import sections_with
from harness.adb.shell_protocol import TOKEN_VARIABLE
from harness.evidence.script import (
    NO_STACK,
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


REFUSED = "echo debuggerd: failed to dump process >&2; exit 1"
DEBUGGERS = {
    "debuggerd": ({"debuggerd": "echo frames", "gdb": "echo more"}, "frames"),
    "the next one": (
        {"debuggerd": REFUSED, "gdb": "echo frames"},
        "debuggerd: failed to dump process\nframes",
    ),
    "the last one": ({"debuggerd": REFUSED, "eu-stack": "exit 2", "gdb": "echo last"}, "last"),
    "all fail": (
        {"debuggerd": REFUSED, "gdb": "exit 1"},
        f"debuggerd: failed to dump process\n{NO_STACK}",
    ),
    "none": ({}, NO_STACK),
    "too late": ({"debuggerd": "exit 137", "gdb": "echo never"}, ""),
}


@pytest.mark.parametrize("kind", DEBUGGERS)
def test_the_next_debugger_is_tried_where_one_fails(kind: str, tmp_path: Path) -> None:
    tools, said = DEBUGGERS[kind]
    # what the script needs beside them, and no debugger of this host
    for name in ("cat", "ls", "grep", "head", "rm"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    ours = os.environ | {TOKEN_VARIABLE: "x"}
    with subprocess.Popen(["sleep", "100"], env=ours) as looked_at:
        script = look_script(TOKEN, looked_at.pid, file_bytes=1 << 20, seconds=2.5)
        command = ["/bin/sh", "-c", script]
        done = subprocess.run(
            command, env={"PATH": str(tmp_path)}, capture_output=True, check=False
        )
        looked_at.kill()
    answer = sections_with(done.stdout, TOKEN)["stack"].content.decode().strip()
    assert answer.endswith(said) if said else answer == ""
