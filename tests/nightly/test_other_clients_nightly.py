"""What of the table of other clients takes long."""

from __future__ import annotations

import pytest

from tests.integration.device.simulator.other_clients import Target
from tests.integration.device.simulator.test_other_clients import (
    BY_NIGHT,
    Row,
    check,
    daemon,
    target,
)

__all__ = ["daemon", "target"]
pytestmark = [pytest.mark.nightly, pytest.mark.needs("QNN_HARNESS_ADB29")]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in BY_NIGHT])
def test_other_clients(row: Row, daemon: str, target: Target) -> None:
    check(row, daemon, target)
