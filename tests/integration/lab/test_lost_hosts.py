"""A host that goes away takes its devices out, is waited for once, and brings them back."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
import yaml

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.lab.attach import OpenLab
from harness.lab.device_watch import DeviceWatch
from harness.lab.health import LabEvent, Quarantine
from harness.lab.inventory import load_lab
from tests.integration.lab.ssh_host import SSHD, SshHost

pytestmark = pytest.mark.needs(SSHD)

BACK_S = 4


@pytest.mark.slow
def test_a_host_is_waited_for_once_and_brings_its_devices_back(
    far: SshHost, tmp_path: Path
) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(yaml.safe_dump(far.lab() | {"recovery": {"come_back_s": BACK_S}}))
    events: list[LabEvent] = []
    now = [0.0]
    with OpenLab(load_lab(file), key_folder=tmp_path, storage_root=tmp_path / "none") as lab:
        watch = DeviceWatch(
            Quarantine(tmp_path / "quarantine"),
            probe_problem=lambda device: None,
            on_event=events.append,
            clock=lambda: now[0],
        )
        for name in ("far-0", "far-1"):
            watch.require(lab.device(name))
        far.stop()
        waited, tunnels = [], far.begun()
        for name in ("far-0", "far-1"):
            start = time.monotonic()
            assert not watch.failed(lab.device(name), case_over=False)
            waited.append(time.monotonic() - start)
        assert waited[0] >= BACK_S > waited[1]
        # who looks does so ever more seldom
        assert far.begun() - tunnels <= 6
        for name in ("far-0", "far-1"):
            with pytest.raises(InfraError, match=f"device {name} is not used: it does not answer"):
                watch.require(lab.device(name))
        far.start()
        deadline, out = Deadline(60), {"far-0", "far-1"}
        while out:
            assert not deadline.expired
            now[0] += 16
            for name in sorted(out):
                with contextlib.suppress(InfraError):
                    watch.require(lab.device(name))
                    out.discard(name)
            time.sleep(0.05)
        assert (
            lab.device("far-1").attach().transport.shell("echo here", timeout_s=60).stdout
            == b"here\n"
        )
    steps = [(event.device, event.event) for event in events if event.event != "health"]
    assert [name for name, event in steps if event == "quarantine"] == ["far-0", "far-1"]
    assert {name for name, event in steps if event == "healed"} == {"far-0", "far-1"}
