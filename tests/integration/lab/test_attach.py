"""A lab that is closed while a thread of its run begins a device: nothing of it stays."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.deploy.instances import Instances
from harness.lab.attach import OpenLab
from harness.lab.inventory import load_lab
from harness.simulator.device import SimulatedDevice

LAB = """\
schema: 1
devices:
  - {name: sim, simulated: true, soc: QCS8550}
"""


@pytest.mark.parametrize("step", ["storage", pytest.param("start", marks=pytest.mark.slow)])
def test_closed_by_another_thread_it_leaves_nothing_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """As Ctrl-C does to a command that begins its devices in threads."""
    entered, goes_on = threading.Event(), threading.Event()
    owner = Instances if step == "storage" else SimulatedDevice
    begin = getattr(owner, step)

    def slow(self: object, *arguments: object) -> object:
        completed = begin(self, *arguments) if step == "storage" else None
        entered.set()
        goes_on.wait(2)  # before that, a lab that does not wait for this one has closed
        return completed if step == "storage" else begin(self, *arguments)

    monkeypatch.setattr(owner, step, slow)
    file, root = tmp_path / "devices.yaml", tmp_path / "simulated"
    file.write_text(LAB)
    lab = OpenLab(load_lab(file), key_folder=tmp_path, storage_root=root, instances=Instances(root))

    def attach() -> None:
        with contextlib.suppress(InfraError):
            lab.device("sim").attach()

    beginning = threading.Thread(target=attach)
    beginning.start()
    assert entered.wait(60)
    lab.close()
    goes_on.set()
    beginning.join(60)
    assert list((root / ".runs").iterdir()) == []
    with pytest.raises(InfraError, match="sim is not started: its run has ended"):
        lab.device("sim").attach()
    assert lab.simulation.server is None
    assert lab.simulation.devices == {}
