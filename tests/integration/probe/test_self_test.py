"""Tests of the probe on a simulated device, by deploying it there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.lab.inventory import load_lab
from harness.lab.lab_device import AttachedDevice, OpenLab
from harness.probe.build import ProbeBuilder, read_sources, source_hash
from harness.probe.self_test import built_probe_problem
from tests.logged import Logged


@pytest.fixture
def device(simulated_lab: Path, tmp_path: Path) -> Iterator[AttachedDevice]:
    lab = OpenLab(
        load_lab(simulated_lab), key_folder=tmp_path / "keys", storage_root=tmp_path / "simulated"
    )
    with lab:
        yield lab.device("sim-test").attach()


class Given(ProbeBuilder):
    """Gives a program that was made elsewhere, without looking at it."""

    def build(self, target: str = "linux-x64") -> Path:
        return self.cache


def test_the_real_one_runs(device: AttachedDevice, builder: ProbeBuilder) -> None:
    assert built_probe_problem(builder, device) is None


def test_one_that_does_not_start_or_is_of_other_sources_is_a_problem(
    device: AttachedDevice, plain_probe: Path, tmp_path: Path
) -> None:
    (tmp_path / "probe").write_text("#!/bin/sh\necho no such library >&2; exit 1\n")
    assert "no such library" in (built_probe_problem(Given(tmp_path / "probe"), device) or "")
    now = source_hash(read_sources())
    (tmp_path / "probe").write_bytes(plain_probe.read_bytes().replace(now.encode(), b"0" * 64))
    why = built_probe_problem(Given(tmp_path / "probe"), device)
    assert "0" * 64 in (why or "")
    assert now in (why or "")


def test_what_cannot_be_built_is_no_fault_of_the_device(
    device: AttachedDevice, tmp_path: Path, logged: Logged
) -> None:
    nothing = ProbeBuilder(tmp_path / "cache", {"PATH": "/none"})
    assert built_probe_problem(nothing, device) is None
    assert len(logged.warnings) == 1
