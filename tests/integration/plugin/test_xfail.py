"""Cases with pytest's own mark for an expected failure."""

from __future__ import annotations

from pathlib import Path

from tests.integration.device_runs import DeviceRuns

SUITE = """
import pytest
from harness import Plan
from harness.core.errors import InfraError
from harness.probe.plan import Step

pytestmark = pytest.mark.device
CRASH = Plan((Step("crash", {"signal": "6"}),))
FINE = Plan((Step("noop"),))


@pytest.mark.xfail(reason="not yet")
def test_fails(bench):
    bench.run(CRASH).check()


@pytest.mark.xfail
def test_asserts(bench):
    bench.run(FINE).check()
    assert not bench


@pytest.mark.xfail(reason="not yet")
def test_unchecked(bench):
    bench.run(CRASH)


@pytest.mark.xfail(reason="not yet", strict=True)
def test_unchecked_strict(bench):
    bench.run(CRASH)


@pytest.mark.xfail
def test_passes(bench):
    bench.run(FINE).check()


@pytest.mark.xfail(raises=ValueError)
def test_raises(bench):
    raise ValueError("not about the device")


def test_says_so(bench):
    pytest.xfail("own")
"""
BESIDE = """

@pytest.mark.xfail(reason="not yet", strict=True)
def test_passes_strict(bench):
    bench.run(FINE).check()


@pytest.mark.xfail
def test_lab(bench):
    raise InfraError("the cable")


@pytest.mark.xfail
def test_mistake(bench):
    raise ValueError("of the test's own")
"""
NOT_YET = {"known_issue": "xfail: not yet"}
ENDS = {
    "test_fails": ("crashed", "target", NOT_YET),
    "test_asserts": ("failed", "target", {"known_issue": "xfail"}),
    "test_unchecked": ("crashed", "target", NOT_YET),
    "test_unchecked_strict": ("crashed", "target", NOT_YET),
    "test_passes": ("passed", None, None),
    "test_raises": ("skipped", None, None),
    "test_says_so": ("skipped", None, None),
}


def ends(lab: DeviceRuns, path: Path, text: str) -> tuple[int, str, dict[str, object]]:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    completed = lab.run("--retries=0", suites=path)
    outcomes = {
        case["case"].rpartition("::")[2].partition("[")[0]: (
            case["outcome"],
            case["cause"],
            case["expected"],
        )
        for case in completed.cases
    }
    return completed.code, completed.output, outcomes


def test_what_the_device_did_is_recorded(lab: DeviceRuns, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "test_marked.py"
    code, output, outcomes = ends(lab, suite, SUITE)
    assert outcomes == ENDS
    assert code == 0, output
    assert "5 of 7 cases have a verdict, 2 skipped: 1 passed, 4 expected" in output
    assert "6 xfailed, 1 xpassed" in output
    # a pass that must not be, and a lab that no mark expects to fail
    code, output, outcomes = ends(lab, suite, SUITE + BESIDE)
    assert outcomes == ENDS | {
        "test_passes_strict": ("failed", "target", None),
        "test_lab": ("error", "infra", None),
        "test_mistake": ("error", "config", None),
    }
    assert code == 1, output
