"""`app run` on a phone with the real adbd and Android's shell. What installs and starts apps there
is scripted (tests/android/scripted_apps.sh): no phone has run it."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.cli.schema import schemas
from tests.android.phone import ADBD, Phone
from tests.integration.device_runs import DeviceRuns
from tests.integration.hostile_words import CANARY, STEERING, steering
from tests.integration.in_process import qnn_harness
from tests.needed import ANDROID
from tests.unit.app.apps import apk, bundle, healthy, manifest, write
from tests.waiting import wait_for

SCRIPTED = Path(__file__).parents[2] / "android/scripted_apps.sh"
SCHEMA = json.loads(schemas()["app-run.schema.json"])
LINKER = (
    'dlopen failed: library "libcdsprpc.so" not found: needed by /data/app/lib/arm64/'
    "libQnnHtpV73Stub.so in namespace clns-4"
)
START = """
log() { echo "$(date '+%m-%d %H:%M:%S').123 $1" >>/data/misc/log; }
log " 999   999 I ActivityManager: Start proc $$:com.example/u0a12 for activity"
log " 998   998 E QnnDsp  : another app: Failed to create transport for device, error: 4000"
log "  $$    $$ I Example : hello"
"""
CRASH = f"""
log "  $$    $$ E AndroidRuntime: FATAL EXCEPTION: main"
log '  '$$'    '$$' E AndroidRuntime: java.lang.UnsatisfiedLinkError: {LINKER}'
"""
STAY = "sleep 600 & wait"
pytestmark = [pytest.mark.needs(ANDROID), pytest.mark.needs(ADBD), pytest.mark.slow]


class ScriptedPhone:
    """A phone whose apps are scripted; `app` is what the process of the app does, in shell."""

    def __init__(self, phone: Phone, folder: Path) -> None:
        self.phone = phone
        self.state = phone.data / "misc/scripted"
        entries = healthy()
        del entries["assets/model.bin"]
        self.apk = write(folder, apk(manifest(min_sdk=30), entries))
        self.evidence = folder / "evidence"
        shutil.rmtree(self.state, ignore_errors=True)
        (self.state / "apps").mkdir(parents=True)
        phone.log("")
        self.write(package="com.example\n", activity="com.example/.Main\n", app=START + STAY)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.state / name).write_text(text)

    def words(self, *more: object) -> list[str]:
        lab = ["-s", "phone", "--lab", self.phone.runs.file, "-o", self.evidence]
        return [*map(str, ["app", "run", self.apk, *lab, "--for", "1s", *more])]

    def run(self, *more: object, code: int | None = None) -> subprocess.CompletedProcess[str]:
        environment = self.phone.runs.environment
        return qnn_harness(*self.words(*more), environment=environment, code=code)

    def report(self, *more: object, code: int) -> dict[str, Any]:
        report = json.loads(self.run(*more, "--json", code=code).stdout)
        jsonschema.Draft202012Validator(SCHEMA).validate(report)
        assert isinstance(report, dict)
        return report

    @property
    def calls(self) -> list[str]:
        lines = (self.state / "calls").read_text().splitlines()
        return [" ".join(line.split()[:3]) for line in lines]

    @property
    def installed(self) -> list[str]:
        return [path.name for path in (self.state / "apps").iterdir()]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    with Phone(tmp_path_factory.mktemp("phone")) as phone:
        for name in ("cmd", "dumpsys", "logcat"):
            program = phone.runs.folder / "programs-phone" / name
            shutil.copyfile(SCRIPTED, program)
            program.chmod(0o755)
        yield phone


@pytest.fixture
def phone(started: Phone, tmp_path: Path) -> ScriptedPhone:
    return ScriptedPhone(started, tmp_path)


def test_an_app_that_runs_is_removed(phone: ScriptedPhone) -> None:
    completed = phone.run("-g", code=0)
    lines = completed.stdout.splitlines()
    assert lines[:2] == [
        "com.example on phone: was not installed before",
        "started com.example/.Main: shown after 321 ms",
    ]
    assert lines[2].startswith("running (watched for ")
    assert lines[3:] == [f"evidence: {phone.evidence}"]
    assert "install-create -r -t -g -S" in (phone.state / "calls").read_text()
    log = (phone.evidence / "logcat-app.txt").read_text()
    assert "hello" in log
    assert "another app" not in log
    assert phone.calls[-3:] == [
        "cmd activity force-stop",
        "cmd package uninstall",
        "cmd package list",
    ]
    assert phone.installed == []


def test_a_crash_is_explained(phone: ScriptedPhone) -> None:
    phone.write(app=START + CRASH)
    report = phone.report(code=1)
    assert report["outcome"] == "crashed"
    assert "FATAL EXCEPTION" in report["sign"]
    assert report["explanation"]["diagnoses"][0]["id"] == "linker-namespace"
    assert report["watched_s"] < 10
    assert phone.installed == []


def test_a_process_that_ends(phone: ScriptedPhone) -> None:
    phone.write(app=START + "kill -9 $$")
    assert phone.report(code=1)["outcome"] == "ended"


def test_an_app_that_was_there_stays(phone: ScriptedPhone) -> None:
    (phone.state / "apps/com.example").write_text("versionCode=1 minSdk=29 targetSdk=35\n")
    completed = phone.run(code=0)
    assert "replaces version 1.2 (1), and stays" in completed.stdout
    assert phone.installed == ["com.example"]
    assert "cmd package uninstall" not in phone.calls


@pytest.mark.parametrize(
    ("refusal", "code", "words"),
    [
        ("Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: differ]", 1, "another key"),
        ("Failure [INSTALL_FAILED_INSUFFICIENT_STORAGE]", 3, "free storage"),
        ("Failure [INSTALL_FAILED_NEW_REASON: why]", 1, "why"),
        (f"Exception {CANARY}", 1, "pwned"),
    ],
)
def test_a_refusal(phone: ScriptedPhone, refusal: str, code: int, words: str) -> None:
    phone.write(refusal=refusal)
    (phone.state / "apps/com.example").write_text("versionCode=1")
    completed = phone.run(code=code)
    assert "refused" in completed.stdout
    assert words in completed.stdout
    assert steering(completed.stdout.encode()) == []
    assert phone.installed == ["com.example"]
    assert "cmd activity start" not in phone.calls


def test_a_phone_that_is_unplugged(phone: ScriptedPhone) -> None:
    link = phone.phone.link
    threading.Thread(
        target=lambda: (
            wait_for(lambda: "hello" in (phone.phone.data / "misc/log").read_text()),
            time.sleep(2),  # until the line has come over the link
            link.cut(),
        )
    ).start()
    try:
        completed = phone.run("--for", "30s", code=3)
    finally:
        link.resume()
    assert "unknown (watched" in completed.stdout
    assert "com.example may still be on the phone" in completed.stdout
    assert "hello" in (phone.evidence / "logcat-app.txt").read_text()


def test_ctrl_c(phone: ScriptedPhone) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", *phone.words("--for", "40s")],
        env=phone.phone.runs.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: "hello" in (phone.phone.data / "misc/log").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130, process.communicate()
    process.communicate()
    assert phone.installed == []
    assert "cmd activity force-stop" in phone.calls


@pytest.mark.parametrize("step", ["list", "install-write", "install-commit"])
def test_a_phone_that_hangs(phone: ScriptedPhone, step: str) -> None:
    phone.write(hangs=step)
    completed = phone.run("--timeout", "11s", code=3)
    if step == "list":  # nothing is known, and nothing was done
        assert completed.stdout == ""
        assert "not done within" in completed.stderr
        return
    assert "cmd package install-abandon" in phone.calls
    assert "--timeout is the limit of all steps" in completed.stdout


@pytest.mark.parametrize(
    ("state", "words", "message"),
    [
        ({"activity": "No activity found\n"}, (), "no single launcher activity"),
        ({"activity": "com.example/.A;reboot\n"}, (), "is not an activity of com.example"),
        ({"activity": f"com.example/{STEERING}\n"}, (), "is not an activity of com.example"),
        ({}, ("--activity", ".Other"), "cannot be started: Error type 3"),
        ({}, ("--activity", "$(reboot)"), "is not an activity of com.example"),
        ({}, ("--activity", "com.other/.Main"), "is not an activity of com.example"),
        ({}, ("--timeout", "5s"), "too short"),
        ({}, ("--for", "0s"), "too short"),
    ],
)
def test_wrong_input(
    phone: ScriptedPhone, state: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    phone.write(**state)
    completed = phone.run(*words, code=2)
    assert message in completed.stderr
    assert steering(completed.stderr.encode()) == []
    assert phone.installed == []


def test_hostile_lines(phone: ScriptedPhone) -> None:
    line = f"  $$ $$ E AndroidRuntime: FATAL EXCEPTION {CANARY}".replace("'", "'\\''")
    phone.write(app=START + f"printf '%s\\n' \"$(date '+%m-%d %H:%M:%S').1 '{line}'\"" + STAY)
    completed = phone.run()
    assert steering(completed.stdout.encode()) == []


def test_no_app_for_a_phone(
    tmp_path: Path, lab: DeviceRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = write(tmp_path, apk(manifest(), healthy()))
    named = write(tmp_path, apk(manifest(package="a;reboot"), healthy()), "named.apk")
    made_later = write(tmp_path, bundle(manifest(), healthy()), "app.aab")
    for path, message in (
        (made_later, "bundletool"),
        (named, "'a;reboot' in its manifest is not a valid package name"),
        (whole, "its target is linux-x64"),
    ):
        words = ["app", "run", path, "-s", "sim-v73", "--lab", lab.file]
        completed = qnn_harness(*words, environment=lab.environment, code=2)
        assert message in completed.stderr
