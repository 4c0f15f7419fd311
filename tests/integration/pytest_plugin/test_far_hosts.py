"""Runs on devices that hang on another computer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SSHD, SshHost
from tests.integration.pytest_plugin.test_parallel import SUITE

pytestmark = pytest.mark.needs(SSHD)


def test_devices_by_their_addresses_without_a_lab(
    lab: DeviceRuns, far: SshHost, tmp_path: Path
) -> None:
    suite = tmp_path / "test_far.py"
    suite.write_text(SUITE)
    lab.file.unlink()
    lab.environment |= {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
    serials = [device.address for device in far.devices]
    urls = [f"ssh://{far.login}/{serials[0]}", f"adb://127.0.0.1:{far.adb.port}/{serials[1]}"]
    done = lab.run("-n", "auto", *(f"--device={url}" for url in urls), suites=suite)
    assert done.code == 0, done.output
    assert len(done.cases) == 8
    found = {(case["device"]["serial"], case["device"]["soc"]) for case in done.cases}
    assert found == {(serial, "QCS8550") for serial in serials}
    assert far.begun() == 1
    assert not far.tunnels()


def test_an_address_where_nobody_answers_is_an_error_of_the_lab(
    lab: DeviceRuns, far: SshHost, tmp_path: Path
) -> None:
    suite = tmp_path / "test_far.py"
    suite.write_text(SUITE)
    lab.environment |= {name: os.environ[name] for name in ("PATH", "XDG_RUNTIME_DIR")}
    far.trust(known=False)
    done = lab.run("-n", "2", f"--device=ssh://{far.login}/ABC", suites=suite)
    assert done.code == 3, done.output
    assert "Host key verification failed" in done.output
    done = lab.run("--device=ssh://-oX/ABC", suites=suite)
    assert done.code == 2, done.output
    assert "'ssh://-oX/ABC' is no address of a device" in done.output
