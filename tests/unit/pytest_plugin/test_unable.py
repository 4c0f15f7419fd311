"""What one device says it cannot do is asked of others, but not of its like."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.pytest_plugin.device_run import Run
from harness.workbench import Placement

KINDS = {"old-a": "v68", "old-b": "v68", "new-a": "v75", "new-b": "v75"}


class RunOfFakeDevices(Run):
    """The devices are names with a kind; `out` are not used, `taken` are another process's."""

    def __init__(self, out: str = "", taken: str = "", worker: bool = False) -> None:
        fake: Any = self
        fake.asked = self
        fake.kinds = KINDS
        fake.records = self
        fake.is_worker = worker
        self._gone, self._held = out.split(), taken.split()

    def device(self, placement: Placement) -> Any:
        name = placement.device
        return SimpleNamespace(is_out=name in self._gone, is_taken=name in self._held)


@pytest.mark.parametrize(
    ("run", "tried", "alike"),
    [
        (RunOfFakeDevices(), ["old-a"], ["old-a", "old-b"]),
        (RunOfFakeDevices(), ["old-a", "new-a"], ["old-a", "old-b"]),
        # there is none left that could say otherwise
        (RunOfFakeDevices(), ["old-a", "new-a", "new-b"], []),
        (RunOfFakeDevices(out="new-a new-b"), ["old-a"], []),
        (RunOfFakeDevices(out="new-a", taken="new-b"), ["old-a"], ["old-a", "old-b"]),
        (RunOfFakeDevices(out="old-b"), ["old-a"], ["old-a", "old-b"]),
        # the controller says where a worker's case goes on
        (RunOfFakeDevices(worker=True), ["old-a"], []),
    ],
)
def test_the_like_of_a_device_that_cannot_are_not_asked(
    run: RunOfFakeDevices, tried: list[str], alike: list[str]
) -> None:
    placement = Placement("old-a", "htp", "2.51.0", None, among=tuple(KINDS), pool="farm")
    assert run.unable_alike(placement, tried) == alike


def test_a_case_of_one_device_alone_is_asked_of_no_other() -> None:
    assert RunOfFakeDevices().unable_alike(Placement("old-a", "htp", "2.51.0", None), []) == []
