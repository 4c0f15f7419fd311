"""No command lets a device, a server or a file steer the terminal, or shows a password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.answers.report.projections import finish
from harness.verdict.results.journal import Journal
from harness.verdict.results.run_folder import RunFolder
from tests.integration.hostile_words import CANARY, SECRET, files_with, steering
from tests.integration.in_process import qnn_harness
from tests.integration.libraries.runtimes.maven_server import MavenServer
from tests.unit.verdict.results.records import error, record


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "harness.tools.cli.main", *map(str, arguments)],
        capture_output=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )
    require_harmless(done.stdout + done.stderr)
    return done


def require_harmless(said: bytes) -> None:
    assert steering(said) == []
    assert SECRET.encode() not in said
    assert b"Traceback" not in said


@pytest.fixture
def server() -> Iterator[MavenServer]:
    started = MavenServer()
    yield started
    started.stop()


@pytest.mark.nightly
def test_a_device_that_says_odd_things(simulated_lab: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("uname", "id", "nproc"):
        (programs / name).write_text(f"#!/bin/sh\nprintf '%s\\n' 'x{CANARY}'\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    simulated_lab.write_text(simulated_lab.read_text() + "    tags: [x]\n")
    seen = b""
    for command in (["devices"], ["devices", "--json"], ["doctor", "--no-smoke"]):
        done = run(*command, "--lab", simulated_lab, PATH=path)
        seen += done.stdout + done.stderr
    assert b"pwned" in seen, "what it said is shown, as text"


@pytest.mark.nightly
def test_runs_with_odd_words(tmp_path: Path) -> None:
    for name, outcome in (("before", "passed"), ("after", "failed")):
        case = f"suites/test_x.py::test_y[{CANARY}]"
        folder = RunFolder.create(
            tmp_path / name, command=["pytest", CANARY], lab={"x": CANARY}, devices=[CANARY]
        )
        with Journal(folder.path / "results.jsonl") as journal:
            failure = error(message=f"said {CANARY}") if outcome == "failed" else None
            journal.append(record(outcome=outcome, case=case, suite=CANARY, error=failure))
        finish(folder, exit_code=0)
        ElementTree.parse(folder.path / "junit.xml")
        assert steering((folder.path / "report.html").read_bytes(), log=False) == []
    before, after = tmp_path / "before/latest", tmp_path / "after/latest"
    done = run("compare", before, after)
    assert done.returncode == 1, done.stderr
    assert b"pwned" in done.stdout
    told = json.loads(run("compare", before, after, "--json").stdout)
    assert CANARY in told["new"][0]["case"], "JSON keeps what it is"
    assert b"pwned" in run("report", after).stdout
    for form in ("--markdown", "--html"):
        assert b"pwned" in run("compare", before, after, form).stdout
    for form in ("--json", "--device=sim-v73"):
        assert b"pwned" in run("history", "--reports", tmp_path / "after", form).stdout


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
        done = run("runtimes", *command, "--lab", lab, QNN_HARNESS_CACHE=str(cache))
        assert b"pwned" in done.stdout + done.stderr, done
    assert files_with(SECRET, cache) == []


@pytest.mark.parametrize(
    "words",
    [
        ["devices", "--lab", f"{CANARY}.yaml"],
        [f"x{CANARY}"],
        ["devices", f"--{CANARY}"],
        ["report", CANARY],
        ["compare", CANARY, CANARY],
        ["compare", ".", "--fail-on", CANARY],
        ["history", "--reports", CANARY],
        ["history", "--axis", CANARY],
        ["history", "import", CANARY],
        ["history", "--database", f"my://u:{SECRET}@host/{CANARY}"],
        ["history", "--database", f"postgresql://u:{SECRET}@host:{CANARY}/x"],
        ["runtimes", "show", f"https://u:{SECRET}@host/{CANARY}"],
        ["doctor", CANARY],
    ],
)
def test_odd_words_of_the_user(words: list[str], simulated_lab: Path) -> None:
    lab = ["--lab", simulated_lab] if words[0] in ("doctor", "runtimes") else []
    done = qnn_harness(*words, *lab)
    assert done.returncode == 2
    require_harmless((done.stdout + done.stderr).encode("utf-8", "surrogateescape"))
