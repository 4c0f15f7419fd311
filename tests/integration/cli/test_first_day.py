"""A phone's first day: the phone tutorial's first commands, word by word, on Android's own code.

The real adbd, shell and C library, arm64 programs under qemu; what stands in for QNN's libraries
is no backend, and comes as an AAR of a Maven folder.
"""

import json
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.deadline import Deadline
from harness.doctor.acceptance import STEPS
from harness.lab.device_config import AdbDeviceConfig
from harness.lab.inventory import load_lab
from harness.transport.adb_address import TcpAddress
from harness.transport.adb_server import AdbServer
from tests.android.phone import ADBD, Phone
from tests.android.runtimes import REAL_BUDGET, add_stand_in
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import ROOT
from tests.needed import ANDROID

pytestmark = [pytest.mark.needs(need) for need in (ANDROID, ADBD, "qemu-aarch64", "unshare")]

VERSION = "2.51.0"
NOT_OK = {
    "backend gpu": "not-applicable",
    "backend cpu": "not-applicable",
    "66 contexts": "warn",  # as many as the real library for x86-64 takes
}


@pytest.fixture
def phone(tmp_path: Path, context_for: ContextFor) -> Iterator[Phone]:
    contexts = [context_for(model, VERSION) for model in ("tiny", "io-heavy-56mb")]
    with Phone(tmp_path) as started:
        work = tmp_path / "stand-in"
        add_stand_in(started.repository, VERSION, contexts, budget=REAL_BUDGET, work=work)
        yield started


class Desk:
    """The desk of somebody who follows the tutorial, with the phone plugged in."""

    def __init__(self, phone: Phone, folder: Path) -> None:
        folder.mkdir()
        self.phone, self.folder = phone, folder
        self.file = folder / "devices.yaml"
        self.server = load_lab(phone.runs.file).hosts[0].address
        AdbServer(TcpAddress(self.server.host, self.server.port)).connect(
            phone.link.address, deadline=Deadline(60)
        )

    def types(self, command: str, *more: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; pulls out and plugs in when asked to."""
        program = [sys.executable, "-m", "harness.cli.main"]
        out, words = self.folder / "out.txt", []
        with out.open("w") as stdout:
            process = subprocess.Popen(
                [*program, *shlex.split(command)[1:], *more],
                cwd=self.folder,
                env=self.phone.runs.environment,
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
            )
            for line in process.stderr:
                words.append(line)
                if "unplug the cable of" in line:
                    self.phone.link.cut_after(1)
                if "plug phone in again" in line:
                    self.phone.link.resume()
        return process.wait(timeout=60), out.read_text(), "".join(words)


@pytest.mark.nightly
def test_the_tutorial_word_by_word(phone: Phone, tmp_path: Path) -> None:
    section = (ROOT / "docs/tutorial/phone.md").read_text().partition("\n## In short\n")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    init, doctor, acceptance = (line.partition("  #")[0].strip() for line in block.splitlines())
    desk = Desk(phone, tmp_path / "desk")

    code, out, err = desk.types(init, "--server", str(desk.server))
    assert code == 0, err
    assert out.endswith("written: devices.yaml; next: qnn-harness doctor phone\n")
    (device, _) = load_lab(desk.file).devices
    assert isinstance(device, AdbDeviceConfig)
    assert (device.name, device.serial, device.host) == ("phone", phone.link.address, "adb-host")
    assert (device.soc, device.htp_arch, device.target) == ("QCS8550", 73, "android-arm64")

    code, out, _ = desk.types(doctor, "--json", "--no-smoke")
    by_name = {check["name"]: check for check in json.loads(out)["checks"]}
    assert (code, by_name["probe"]["status"]) == (1, "ok")
    assert by_name["probe for android-arm64"]["status"] == "ok"
    assert by_name["runtime"]["status"] == "fail"
    assert "QAIRT_SDK_ROOT" in by_name["runtime"]["advice"]

    # as docs/tutorial/phone.md says of Maven
    source = "name: central, kind: maven, coordinates: 'com.qualcomm.qti:qnn-runtime'"
    text = desk.file.read_text()
    assert "\n# runtimes:\n" in text
    desk.file.write_text(f"{text}runtimes:\n  - {{{source}, repository: {phone.repository}}}\n")
    named = acceptance.replace("sm-s921u", "phone")
    code, out, err = desk.types(named, "--unplug", "--reboot")
    assert code == 0, f"{err}\n{out}"
    assert err.endswith("packed: acceptance-phone.zip\n")
    with zipfile.ZipFile(desk.folder / "acceptance-phone.zip") as packed:
        checks = json.loads(packed.read("report.json"))["checks"]
        texts = [packed.read(name).decode() for name in packed.namelist()]
    steps = {check["name"]: check["status"] for check in checks if check["group"] == "acceptance"}
    expected = {step.name: NOT_OK.get(step.name, "ok") for step in STEPS}
    assert steps == {**expected, "nothing left behind": "ok"}, out
    assert "DSP nodes: adsprpc-smd (rw)" in out
    assert not [text for text in texts if phone.link.address in text]
    assert not (phone.data / "local/tmp/qnn-harness/acceptance").exists()
