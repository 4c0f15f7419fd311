"""The steps of a recovery, on a device that is not there."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.lab.recovery import Recovery


def test_nothing_is_waited_for_once_the_run_is_over() -> None:
    attempts = []

    def reconnect(within_s: float) -> None:
        attempts.append(within_s)
        raise InfraError("it is not there")

    device: Any = SimpleNamespace(
        recovery_rules=None, release=lambda: None, reconnect=reconnect, name="phone"
    )
    recovery = Recovery(device, Deadline(3600), is_over=lambda: len(attempts) == 2)
    with pytest.raises(InfraError, match="not there"):
        recovery.run("reconnect")
    assert len(attempts) == 2
