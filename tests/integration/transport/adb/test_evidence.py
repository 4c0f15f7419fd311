"""Evidence of cases that went wrong: from their own time, bounded, redacted, and never an error."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from harness.core.deadline import Deadline
from harness.evidence.case_evidence import (
    SUMMARY,
    CaseEvidence,
    CollectedEvidence,
    EvidenceLimits,
    take_baseline,
)
from harness.evidence.device_replies import Baseline
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import run_plan
from harness.transport.adb_device import AdbDevice
from tests.integration.transport.adb.conftest import NEWEST_SERVER, Lab, Place, linked_to
from tests.integration.transport.adb.remote import SLACK_S

pytestmark = NEWEST_SERVER
COLLECT_S = 20


@pytest.fixture
def logs(lab: Lab, shared: Place) -> AdbDevice:
    """A device that has a log."""
    if lab.kind != "simulated":
        pytest.skip(
            "no logd answers here: Debian has none, and there is no init to start Android's"
        )
    return shared.device


def say(device: AdbDevice, script: str) -> None:
    assert device.shell(script, timeout_s=60).ok


def summary(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    return content


def collect(evidence: CaseEvidence, folder: Path, seconds: float = COLLECT_S) -> CollectedEvidence:
    collected = evidence.collect(folder, deadline=Deadline(seconds))
    assert sorted(collected.files) == sorted(path.name for path in folder.iterdir())
    return collected


@pytest.mark.slow
def test_the_log_of_the_case_and_no_other(logs: AdbDevice, tmp_path: Path) -> None:
    say(logs, "log -t QnnDsp before")
    baseline = take_baseline(logs, timeout_s=60)
    # so long before the case that the margin does not reach it
    time.sleep(6)
    evidence = CaseEvidence(logs, baseline)
    say(logs, "log -p e -t QnnDsp '<E> during'; log -t wpa 'SSID=\"Home\" of me@example.com'")
    say(logs, "log -t auditd 'avc:  denied  { read }'; log -t x 'SSR Detected'")
    collected = collect(evidence, tmp_path)
    assert collected.lost is None
    whole = (tmp_path / "logcat.txt").read_text()
    assert "during" in whole
    assert "before" not in whole
    assert "SSID=<ssid> of <email>" in whole
    assert (tmp_path / "logcat-npu.txt").read_text().count("\n") == 1
    assert "avc:  denied" in (tmp_path / "avc.txt").read_text()
    assert (tmp_path / "dsp.txt").read_text().count("\n") == 1
    facts = summary(tmp_path)
    assert (facts["rebooted"], facts["clock_jump_s"], facts["lost"]) == (False, None, None)
    assert collected.baseline.boot_id == baseline.boot_id
    assert abs(collected.baseline.boot_epoch_s - baseline.boot_epoch_s) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("own_deadline", [True, False])
def test_a_hung_process(
    shared: Place, probe_folder: str, tmp_path: Path, own_deadline: bool
) -> None:
    evidence = CaseEvidence(shared.device)
    settings = Settings(deadline_ms=200 if own_deadline else 60_000)
    completed = run_plan(
        shared.device,
        f"{probe_folder}/qnn-probe",
        Plan((Step("hang"),), settings),
        env={},
        cwd=probe_folder,
        timeout_s=12 if own_deadline else 1,
        on_hang=evidence.look,
    )
    assert completed.timed_out
    pid = completed.transcript.start.pid
    wait_for_end = (
        f"i=0;while kill -0 {pid} 2>/dev/null;do i=$((i+1));[ $i -lt 50 ]||exit 1;sleep 0.1;done"
    )
    assert shared.device.shell(wait_for_end, timeout_s=60).ok
    collect(evidence, tmp_path)
    assert summary(tmp_path)["hung_process"] == pid
    threads = (tmp_path / "process-threads.txt").read_text()
    assert f"{pid}/comm:qnn-probe" in threads
    assert "qnn-probe" in (tmp_path / "process-maps.txt").read_text()
    debugger = shared.device.shell("command -v gdb || command -v eu-stack", timeout_s=60).ok
    if debugger:
        assert "pause" in (tmp_path / "process-stack.txt").read_text()
    else:
        assert any("no native stack" in note for note in summary(tmp_path)["notes"])


def test_only_processes_of_ours_are_looked_at(shared: Place, tmp_path: Path) -> None:
    """A device may name any process as the probe's."""
    started = shared.device.shell(
        # setsid may go on as another process, and toybox's env in its own with what it had
        "s=$(command -v sleep);"
        'p=$(setsid sh -c "echo \\$\\$;exec env -i $s 100 >/dev/null 2>&1 </dev/null" &);'
        # its environment is empty for a moment also while setsid is being loaded
        'until [ "$(cat /proc/$p/comm)" = sleep ];do :;done;echo $p',
        timeout_s=60,
    )
    pid = int(started.stdout)
    evidence = CaseEvidence(shared.device)
    evidence.look(pid, Deadline(8))
    assert shared.device.shell(f"kill -0 {pid}&&kill -9 {pid}", timeout_s=60).ok
    collected = collect(evidence, tmp_path)
    assert collected.notes
    assert not [name for name in collected.files if name.startswith("process-")]


def test_what_a_device_lacks_is_noted(shared: Place, tmp_path: Path) -> None:
    device = shared.device
    collected = collect(CaseEvidence(device, take_baseline(device, timeout_s=60)), tmp_path)
    assert collected.lost is None
    assert collected.notes
    assert summary(tmp_path)["notes"] == list(collected.notes)
    assert "MemTotal" in (tmp_path / "meminfo.txt").read_text()


LOGCATS = {
    "endless": "#!/bin/sh\nyes '05-21 12:34:56.789     1     2 I QnnDsp: endless'\n",
    "garbage": "#!/bin/sh\nhead -c 3000000 /dev/urandom\n",
    "forged marks": "#!/bin/sh\nprintf '\\n\\036%s =\\n\\n\\036%s evil\\nx\\n' a b\n",
}


@pytest.fixture
def own_logcat(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """own_logcat(program): a device of its own with this logcat."""
    if lab.kind == "real":
        pytest.skip("there is no logcat on Debian")
    daemons = []

    def start(program: str) -> AdbDevice:
        programs = tmp_path_factory.mktemp("programs")
        logcat = programs / "logcat"
        logcat.write_text(program)
        logcat.chmod(0o755)
        daemon, folder = lab.start(**({"programs": programs} if lab.kind == "android" else {}))
        daemons.append(daemon)
        if lab.kind == "simulated":
            logcat.replace(Path(folder).parents[3] / "system/bin/logcat")
        return lab.connect(daemon.address)

    yield start
    for daemon in daemons:
        daemon.stop()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.nightly] if kind == "endless" else [])
        for kind in LOGCATS
    ],
)
def test_logs_that_make_no_sense_are_bounded(kind: str, own_logcat: Any, tmp_path: Path) -> None:
    limits = EvidenceLimits(file_bytes=50_000, total_bytes=120_000)
    # the endless log is of last May: without a clock to go by it is all the same kept
    baseline = Baseline("", 0, {})
    collected = collect(CaseEvidence(own_logcat(LOGCATS[kind]), baseline, limits), tmp_path)
    assert collected.lost is None
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    del sizes[SUMMARY]
    assert sum(sizes.values()) <= 120_000
    assert max(sizes.values()) <= 50_000
    for name in sizes:
        text = (tmp_path / name).read_text()
        assert not [c for c in text if ord(c) < 32 and c not in "\n\t"]
    if kind == "endless":
        assert (tmp_path / "logcat-npu.txt").read_text().startswith("[cut")
        assert summary(tmp_path)["files"]["logcat.txt"]["cut"]
    assert "evil" not in sizes


def test_a_log_that_hangs_costs_no_more_than_the_deadline(own_logcat: Any, tmp_path: Path) -> None:
    device = own_logcat("#!/bin/sh\nexec sleep 1000\n")
    start = time.monotonic()
    collected = collect(CaseEvidence(device), tmp_path, seconds=3)
    assert time.monotonic() - start < 3 + SLACK_S
    assert collected.lost is None, "a slow tool is no lost device"
    assert collected.baseline is not None
    assert len(collected.notes) >= 2  # it did not answer completely, and which part ended early


@pytest.mark.parametrize("fault", ["cut", pytest.param("stall", marks=pytest.mark.slow), "before"])
def test_a_device_lost_in_the_middle(
    fault: str, lab: Lab, shared: Place, folder: str, tmp_path: Path
) -> None:
    with linked_to(lab, shared.device.serial, folder) as linked:
        evidence = CaseEvidence(linked.device)
        if fault == "before":
            linked.link.cut()
            evidence.look(1, Deadline(1))
        else:
            breaking = getattr(linked.link, f"{fault}_after")
            breaking(5000)  # the script, and some of the answer
        start = time.monotonic()
        collected = collect(evidence, tmp_path, seconds=3)
        assert time.monotonic() - start < 3 + SLACK_S
        assert collected.lost is not None
        assert summary(tmp_path)["lost"] == collected.lost


def test_a_folder_that_cannot_be_written(shared: Place, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    collected = CaseEvidence(shared.device).collect(blocked, deadline=Deadline(COLLECT_S))
    assert collected.files == ()
    assert collected.notes
