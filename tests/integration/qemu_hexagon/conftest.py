"""The emulator whose instructions are tested."""

from pathlib import Path

import pytest

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import find_qemu
from tests.needed import HEXAGON, need


@pytest.fixture(scope="session")
def qemu() -> Path:
    """The one that is used here, which has our patch."""
    need(HEXAGON)
    return find_qemu(cache_root() / BOARDS).path
