"""No command lets a device, a server or a file steer the terminal, or shows a password."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hostile_words import CANARY, SECRET, files_with, steering
from tests.integration.in_process import qnn_harness
from tests.integration.runtimes.maven_server import MavenServer


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    completed = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *map(str, arguments)],
        capture_output=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    require_harmless(completed.stdout + completed.stderr)
    return completed


def require_harmless(output: bytes) -> None:
    assert steering(output) == []
    assert SECRET.encode() not in output
    assert b"Traceback" not in output


@pytest.fixture
def server() -> Iterator[MavenServer]:
    started = MavenServer()
    yield started
    started.stop()


def test_words_of_a_server_and_a_password(
    server: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "com/qualcomm/qti/qnn-runtime/maven-metadata.xml"
    server.files[name], server.status[name] = b"", 403
    server.reason = CANARY
    url = server.url.replace("://", f"://user:{SECRET}@")
    lab = tmp_path / "devices.yaml"
    lab.write_text(
        "schema: 1\ndevices: [{name: x, serial: x}]\nruntimes:\n  - {name: far, kind: maven, "
        f'coordinates: "com.qualcomm.qti:qnn-runtime", repository: "{url}"}}\n'
    )
    cache = tmp_path / "cache"
    for command in (["list"], ["list", "--json"], ["show", "far:latest", "--target=android-arm64"]):
        completed = run("runtimes", *command, "--lab", lab, QNN_HARNESS_CACHE=str(cache))
        assert b"pwned" in completed.stdout + completed.stderr, completed
    assert files_with(SECRET, cache) == []


@pytest.mark.parametrize(
    "words",
    [
        ["devices", "list", "--lab", f"{CANARY}.yaml"],
        [f"x{CANARY}"],
        ["devices", "list", f"--{CANARY}"],
        ["report", "write", CANARY],
        ["compare", CANARY, CANARY],
        ["compare", ".", "--fail-on", CANARY],
        ["history", "list", "--reports", CANARY],
        ["history", "list", "--since", CANARY],
        ["history", "import", CANARY],
        ["history", "list", "--device", CANARY],
        ["runtimes", "show", f"https://u:{SECRET}@host/{CANARY}"],
        ["doctor", CANARY],
    ],
)
def test_odd_words_of_the_user(words: list[str], simulated_lab: Path) -> None:
    lab = ["--lab", simulated_lab] if words[0] in ("doctor", "runtimes") else []
    completed = qnn_harness(*words, *lab, code=2)
    require_harmless((completed.stdout + completed.stderr).encode("utf-8", "surrogateescape"))
