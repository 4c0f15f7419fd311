"""The table of SoCs is consistent in itself."""

from typing import get_args

import pytest

from harness.core.socs import KERNEL_SOC_IDS, SOCS, Claim, claim_of, limits_of_simulation
from tests.snapshots import Snapshot


def test_names_are_keys_and_numbers_of_the_kernel_are_of_socs_that_are_known() -> None:
    assert all(name == soc.name for name, soc in SOCS.items())
    assert set(KERNEL_SOC_IDS) <= set(SOCS)
    assert KERNEL_SOC_IDS["SM8650"] == 557
    assert len(set(KERNEL_SOC_IDS.values())) == len(KERNEL_SOC_IDS)


def test_certain_simulators_have_a_memory_limit(snapshot: Snapshot) -> None:
    several: list[list[str | None]] = [
        ["2.47.0"],
        ["2.48.40", "2.47.0"],
        ["2.51.0", "sdk", "2.49.40"],
        ["2.48.40", "2.49.40"],
        ["2.48.40.260626", "2.49.40.260810"],
        [None],
    ]
    texts = [limits_of_simulation("capacity", "linux-x64", versions) for versions in several]
    assert texts == snapshot


@pytest.mark.parametrize("claim", get_args(Claim))
@pytest.mark.parametrize("target", ["linux-x64", "linux-arm64", None])
def test_whatever_is_claimed_of_simulated_devices_alone_is_limited(
    claim: Claim, target: str | None
) -> None:
    versions = ["2.47.0", "2.51.0"]
    assert limits_of_simulation(claim, target, versions)
    assert limits_of_simulation(claim, target, versions, simulated=False) is None


def test_a_failure_of_memory_is_about_capacity() -> None:
    assert [claim_of(code) for code in (1002, 0x3EA, 6999, None)] == [
        *("capacity", "capacity", "version", "version")
    ]
