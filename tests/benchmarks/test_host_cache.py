"""Devices of one host behind ssh and a slow link: a deployment to all of them, with what the host
keeps and without."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import far as far
from tests.integration.device.lab.ssh_host import SSHD
from tests.integration.device.store.test_host_cache import Far, uplink as uplink

DEVICES = 4
FILES, FILE_BYTES = 4, 2_000_000
BYTES_PER_S = 4e6


@pytest.mark.benchmark
@pytest.mark.needs(SSHD)
@pytest.mark.parametrize("far", [DEVICES], indirect=True)
def test_what_goes_over_the_link(
    uplink: Far, tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    def deployed(name: str, cache_mb: int) -> tuple[float, int]:
        """Seconds and bytes for new files on all devices at once."""
        files = {f"{name}-{number}": tmp_path / f"{name}-{number}" for number in range(FILES)}
        for path in files.values():
            path.write_bytes(os.urandom(FILE_BYTES))
        threads = [
            threading.Thread(
                target=uplink.deployer(number, cache_mb=cache_mb).deploy_files, args=(name, files)
            )
            for number in range(DEVICES)
        ]
        carried, began = uplink.link.carried, time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.monotonic() - began
        for number in range(DEVICES):
            stored = Path(uplink.workdir(number)).glob(f"sets/{name}-*/{name}-*")
            assert sum(path.stat().st_size for path in stored) == FILES * FILE_BYTES
        return took_s, uplink.link.carried - carried

    deployed("first", 10_000)
    uplink.link.bytes_per_s = BYTES_PER_S
    cached_s, cached_bytes = deployed("cached", 10_000)
    plain_s, plain_bytes = deployed("plain", 0)
    show_figures(
        f"{DEVICES} devices behind {BYTES_PER_S / 1e6:g} MB/s",
        MB=f"{FILES * FILE_BYTES / 1e6:g}",
        cached_s=f"{cached_s:.2f}",
        each_its_own_s=f"{plain_s:.2f}",
        time_ratio=f"{cached_s / plain_s:.2f}",
        bytes_ratio=f"{cached_bytes / plain_bytes:.3f}",
    )
    assert cached_bytes / plain_bytes < 1.2 / DEVICES
    assert cached_s < plain_s
