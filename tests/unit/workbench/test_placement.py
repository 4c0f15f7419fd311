"""Where a case may run: on what its name has, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workbench import Placement
from harness.workbench.placement import shared

NAMES = st.sampled_from("abcdef")


@given(devices=st.lists(NAMES, min_size=1, unique=True), pooled=st.sets(NAMES), asked=NAMES)
def test_a_case_runs_on_a_device_that_its_name_has_or_shares_and_on_no_other(
    devices: list[str], pooled: set[str], asked: str
) -> None:
    found = shared(
        [Placement(device, "htp", "2.51.0", None) for device in devices],
        dict.fromkeys(pooled, "pool"),
    )
    assert found
    for one in found:
        may = {*devices} & pooled if one.where == "pool" else {one.where}
        if asked in may:
            assert (one.on(asked).device, str(one.on(asked))) == (asked, str(one))
        else:
            with pytest.raises(ValueError, match=f"^a case of {one.where} was to run on {asked}$"):
                one.on(asked)
