"""Three cases, the second of which is there to be ended."""

import os

import pytest

from harness.bench.bench import Bench
from harness.probe.plan import Plan, Step


@pytest.mark.device
@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_case(bench: Bench, name: str) -> None:
    here = name == "second" and os.environ.get("QNN_FAULT_PHASE") == "case"
    bench.run(Plan((Step("hang" if here else "noop"),)), timeout_s=60).check()
