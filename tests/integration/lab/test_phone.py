"""A lab with a phone: what Android's own programs answer, and how the phone comes back."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.deploy.deploy import Deployer
from harness.lab.device_watch import DeviceWatch
from harness.lab.facts import ask_vitals
from harness.lab.health import DeviceEvent, Quarantine
from harness.lab.inventory import load_lab
from harness.lab.lab_device import OpenLab
from harness.lab.lease import Leases
from tests.android.phone import ADBD, Phone
from tests.android.system import API, SOC
from tests.needed import ANDROID

pytestmark = [pytest.mark.needs(tool) for tool in (ANDROID, ADBD, "qemu-aarch64", "unshare")]

Open = Callable[..., OpenLab]


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    with Phone(tmp_path_factory.mktemp("phone")) as started:
        yield started


@pytest.fixture
def open_lab(tmp_path: Path) -> Iterator[Open]:
    """open_lab(phone): the lab of a run that has it."""
    with ExitStack() as cleanup:

        def made(phone: Phone, purpose: str = "first") -> OpenLab:
            leases = Leases(tmp_path / "leases", purpose=purpose)
            return cleanup.enter_context(
                OpenLab(
                    load_lab(phone.runs.file),
                    key_folder=phone.home,
                    storage_root=tmp_path / "none",
                    leases=leases,
                )
            )

        yield made


def test_what_it_says_of_itself(phone: Phone, open_lab: Open) -> None:
    device = open_lab(phone).device("phone").attach()
    facts = device.facts
    assert (facts.target, facts.machine) == ("android-arm64", "aarch64")
    assert (facts.soc, facts.android_api, device.htp_arch) == (SOC, API, 73)
    assert facts.identity[0] == f"serial number {facts.serial_number}"
    assert (facts.glibc, facts.page_bytes) == (None, 4096)
    assert facts.free_storage_bytes
    assert facts.ram_bytes
    assert facts.boot
    vitals = ask_vitals(device.transport, device.workdir)
    assert (vitals.booted, vitals.is_root, vitals.write_problem) == (True, False, None)
    assert vitals.boot_id
    assert vitals.uptime_s
    assert vitals.free_ram_bytes
    assert vitals.free_storage_bytes


def test_it_comes_back_when_it_is_plugged_in_again(
    phone: Phone, open_lab: Open, tmp_path: Path
) -> None:
    lab, events = open_lab(phone), list[DeviceEvent]()
    watch = DeviceWatch(
        Quarantine(tmp_path / "out"), probe_problem=lambda device: None, on_event=events.append
    )
    watch.require(lab.device("phone"))
    phone.link.cut()
    with pytest.raises(InfraError):
        lab.device("phone").attach().transport.shell("echo here", timeout_s=20)
    phone.link.resume()
    assert watch.failed(lab.device("phone"), case_over=False)
    assert (
        lab.device("phone").attach().transport.shell("echo here", timeout_s=60).stdout == b"here\n"
    )


@pytest.mark.nightly
def test_a_full_phone_and_one_that_cannot_be_written_to(tmp_path: Path, open_lab: Open) -> None:
    with Phone(tmp_path / "small", storage_limit_bytes=1 << 20) as small:
        lab = open_lab(small)
        device = lab.device("phone").attach()
        device.transport.shell("cat /dev/zero >/data/local/tmp/all 2>/dev/null", timeout_s=60)
        full = ask_vitals(device.transport, device.workdir)
        assert full.free_storage_bytes == 0
        assert "No space left" in (full.write_problem or "")
    lab.close()  # it is the same phone by its serial number
    with Phone(tmp_path / "frozen", read_only=True) as frozen:
        device = open_lab(frozen, "second").device("phone").attach()
        vitals = ask_vitals(device.transport, device.workdir)
        assert "Read-only file system" in (vitals.write_problem or "")


def test_a_boot_that_may_not_be_asked_for(phone: Phone, open_lab: Open, tmp_path: Path) -> None:
    """As SELinux has it for the shell of some phones: EACCES."""
    device = open_lab(phone).device("phone").attach()
    boot, file = "/proc/sys/kernel/random/boot_id", tmp_path / "file"
    file.write_text("content")
    try:
        refused = device.transport.shell(f"chmod 000 {boot}; cat {boot}", timeout_s=60)
        assert "Permission denied" in refused.stderr.decode()
        assert ask_vitals(device.transport, device.workdir).boot_id is None
        placed = []
        for _ in range(2):
            deployer = Deployer(device.transport, device.workdir)
            placed.append(deployer.deploy_files("inputs", {"file": file}))
            deployer.release()
        assert placed[0] == placed[1]
        assert device.transport.shell(f"cat {placed[0]}/file", timeout_s=60).stdout == b"content"
    finally:
        device.transport.shell(f"chmod 444 {boot}", timeout_s=60)
