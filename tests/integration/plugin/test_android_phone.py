"""Whole cases on Android's own code: the real adbd, shell and C library, arm64 programs under qemu.

What stands in for QNN's libraries is built for bionic, and comes as AARs of a Maven folder.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.android.phone import ADBD, Phone
from tests.android.runtimes import NO_BUDGET, add_stand_in
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import Finished
from tests.needed import ANDROID

pytestmark = [pytest.mark.needs(item) for item in (ANDROID, ADBD, "qemu-aarch64", "unshare")]

NEW = "2.51.0"


SUITE = '''"""What a backend can do to a case, each told to it on the phone."""
import pytest

from harness import Model
from harness.models.session_plan import schedule
from harness.probe.plan import Plan, Step

CONF = "/data/local/tmp/stand_in.conf"


def run(bench, told, timeout_s=30):
    shell = bench.device.transport.shell
    shell(f"echo {told} >{CONF}", timeout_s=60)
    try:
        plan = bench.context_plan(bench.contexts(Model("tiny")), schedule(1, "resident"))
        bench.run(plan, timeout_s=timeout_s).check()
    finally:
        shell(f"rm -f {CONF}", timeout_s=60)


@pytest.mark.device(backend="htp")
def test_code(bench):
    run(bench, "code=6999")


@pytest.mark.device(backend="htp")
def test_crash(bench):
    # in place of crash_dump, which cannot trace a program under qemu
    dump = "mkdir -p /data/tombstones; echo 'signal 11' >/data/tombstones/tombstone_07"
    bench.device.transport.shell(dump, timeout_s=60)
    run(bench, "crash=load")


@pytest.mark.device(backend="htp")
def test_hang(bench):
    run(bench, "hang=execute", timeout_s=4)


@pytest.mark.device(backend="htp")
def test_ended(bench):
    # as lmkd does; the program that runs is the loader that starts qemu
    kill = "until pgrep ld-linux; do sleep 0.1; done; sleep 2; pkill -KILL ld-linux"
    beside = f"setsid sh -c '{kill}' >/dev/null 2>&1 </dev/null &"
    bench.device.transport.shell(beside, timeout_s=60)
    bench.run(Plan((Step("hang"),)), timeout_s=30).check()


@pytest.mark.device(backend="htp")
def test_fine(bench):
    run(bench, "nothing")
'''


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory, context_for: ContextFor) -> Iterator[Phone]:
    folder = tmp_path_factory.mktemp("phone")
    contexts = [context_for("tiny", NEW)]
    with Phone(folder) as started:
        add_stand_in(started.repository, NEW, contexts, budget=NO_BUDGET, work=folder / NEW)
        yield started


@pytest.fixture(scope="module")
def ends(phone: Phone, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    suite = tmp_path_factory.mktemp("suite") / "test_ends.py"
    suite.write_text(SUITE)
    phone.log("05-21 12:35:00.000  1000  1000 E adsprpc : of a test\n")
    return phone.runs.run("--qnn", NEW, suites=suite)


@pytest.mark.slow
def test_each_end_is_what_it_is(ends: Finished) -> None:
    assert ends.code == 1, ends.output
    cases = {name: case for name, (case,) in ends.by_test.items()}
    assert {name: (case["outcome"], case["cause"]) for name, case in cases.items()} == {
        "test_code": ("failed", "target"),
        "test_crash": ("crashed", "target"),
        "test_hang": ("hung", "target"),
        "test_ended": ("crashed", "target"),
        "test_fine": ("passed", None),
    }
    error = cases["test_code"]["error"]
    assert (error["api"], error["code"]) == ("QnnGraph_execute", 6999)
    crash = cases["test_crash"]["error"]
    assert (crash["api"], crash["step"]) == ("QnnContext_createFromBinary", 5)
    assert "SIGSEGV" in crash["message"]
    assert "SIGKILL" in cases["test_ended"]["error"]["message"]
    assert cases["test_fine"]["runtime"]["source"] == "qualcomm"
    device = cases["test_fine"]["device"]
    assert (device["target"], device["simulated"]) == ("android-arm64", True), (
        "as its properties say"
    )
    assert device["os_build"].startswith("Android 11")


def test_what_the_phone_says_is_kept_with_the_case(ends: Finished) -> None:
    cases = {name: case for name, (case,) in ends.by_test.items()}
    for name in ("test_code", "test_crash", "test_hang", "test_ended"):
        logs = {Path(log).name: ends.folder / "latest" / log for log in cases[name]["logs"]}
        assert {"evidence.json", "meminfo.txt", "logcat-npu.txt"} <= logs.keys()
        assert "of a test" in logs["logcat-npu.txt"].read_text()
        assert json.loads(logs["evidence.json"].read_text())["lost"] is None
    dumped = [log for log in cases["test_crash"]["logs"] if "tombstone" in log]
    assert [Path(log).name for log in dumped] == ["tombstone_07.txt"]
    assert (ends.folder / "latest" / dumped[0]).read_text() == "signal 11\n"
    (threads,) = (log for log in cases["test_hang"]["logs"] if log.endswith("-threads.txt"))
    assert "ld-linux" in (ends.folder / "latest" / threads).read_text()
    assert "evidence.json" not in {Path(log).name for log in cases["test_fine"]["logs"]}
