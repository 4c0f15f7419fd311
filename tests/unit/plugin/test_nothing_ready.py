"""A run that can prepare nothing: it ends, or tries all its cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from harness.bench.placement import Placement
from harness.bench.workbench import Workbench
from harness.core.errors import DeviceLost, DeviceRefused, HarnessError, InfraError, VersionError
from harness.plugin.device_run import Run
from harness.plugin.options import Options

PLACEMENT = Placement(device="phone", backend="htp", qnn="2.51.0", compiler="2.51.0")
INDEX = InfraError("the package index does not answer")
LOST = DeviceLost("the connection ended early", serial="R5CX1234")
FULL = DeviceRefused("No space left on device", serial="R5CX1234")
VERSION = VersionError("there is no such version")


@pytest.mark.parametrize(
    ("errors", "is_offline", "raised"),
    [
        ([VERSION, VERSION], False, VERSION),
        ([INDEX], False, INDEX),
        ([VERSION, INDEX], False, INDEX),
        ([FULL], False, FULL),
        ([LOST], False, None),
        ([FULL, LOST], False, None),
        ([VERSION, LOST], False, None),
        ([LOST], True, None),
        ([InfraError("device phone is in quarantine")], True, None),
    ],
)
def test_only_where_a_device_is_to_blame_cases_are_tried(
    errors: list[HarnessError], is_offline: bool, raised: HarnessError | None
) -> None:
    run = Run(cast(Options, None))
    lab = SimpleNamespace(device=lambda name: SimpleNamespace(is_offline=is_offline))
    run._workbench = cast(Workbench, SimpleNamespace(lab=lab))
    if raised is None:
        run._nothing_ready([PLACEMENT], errors)
        return
    with pytest.raises(HarnessError) as caught:
        run._nothing_ready([PLACEMENT], errors)
    assert caught.value is raised
