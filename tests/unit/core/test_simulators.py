"""Results of simulated devices say what they leave open, whatever the claim."""

from __future__ import annotations

from typing import get_args

import pytest

from harness.core.socs import Claim, claim_of, limits_of_simulation

CLAIMS = get_args(Claim)


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        (["2.47.0"], "of QNN 2.47.0 enforces no limit of memory (only those from 2.49.40 on do)"),
        (["2.48.40", "2.47.0"], "of QNN 2.47.0, 2.48.40 enforces no limit"),
        (["2.51.0", "sdk", "2.49.40"], "is the simulator's, one protection domain"),
        (["2.48.40", "2.49.40"], "only simulators from 2.49.40 on enforce a limit of memory"),
        (["2.48.40.260626", "2.49.40.260810"], "those of 2.48.40.260626 do not"),
        ([None], "is the simulator's"),
    ],
)
def test_a_limit_of_memory_is_of_certain_simulators(versions: list[str | None], text: str) -> None:
    assert text in (limits_of_simulation("capacity", "linux-x64", versions) or "")


@pytest.mark.parametrize("claim", CLAIMS)
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
