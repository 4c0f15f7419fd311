"""Known issues in whole runs: expected, fixed, strict, and failing otherwise."""

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = """
import pytest
from harness.probe.plan import Plan, Step

@pytest.mark.device
@pytest.mark.parametrize("name", ["good", "bad"])
def test_case(bench, name):
    step = Step("noop") if name == "good" else Step("crash", {"signal": "11"})
    bench.run(Plan((step,)), timeout_s=60).check()
"""
ISSUE = """schema: 1
known_issues:
  - id: shaky
    link: https://example.com/1
    signature: {outcome: crashed, api: crash, code: null, message: SIGSEGV}
    conditions: {suite: shaky, axes: {name: "*"}}
    until: 2099-01-01
"""


@pytest.mark.slow
def test_what_passes_is_named_and_fails_a_strict_run(lab: DeviceRuns) -> None:
    suite = lab.write_suite(SUITE, "test_shaky.py")
    (lab.folder / "issues.yaml").write_text(ISSUE)
    known = f"--known-issues={lab.folder / 'issues.yaml'}"
    completed = lab.run(known, suites=suite, code=0)
    assert completed.case(name="bad")["expected"] == {"known_issue": "shaky"}
    good = completed.case(name="good")
    assert good["fixed"] == {"known_issues": ["shaky"], "fails": False}
    assert "known issue shaky: 1 case passed under its conditions, 1 failed" in completed.output
    assert "1 passed, 1 xfailed" in completed.output

    completed = lab.run(known, "-o", "qnn_strict_known=true", "-n", "1", suites=suite, code=1)
    good = completed.case(name="good")
    assert (good["outcome"], good["fixed"]["fails"]) == ("passed", True)
    assert "1 failed, 1 xfailed" in completed.output
    assert 'message="fixed? shaky"' in (completed.folder / "latest/junit.xml").read_text()


MARKED = """
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
    "test_passes_strict": ("failed", "target", None),
    "test_lab": ("error", "infra", None),
    "test_mistake": ("error", "config", None),
}


@pytest.mark.slow
def test_what_the_device_did_is_recorded(lab: DeviceRuns) -> None:
    completed = lab.run("-o", "qnn_retries=0", suites=lab.write_suite(MARKED))
    assert {
        name: (case["outcome"], case["cause"], case["expected"])
        for name, (case,) in completed.by_test.items()
    } == ENDS
    # a pass that must not be, and a lab that no mark expects to fail
    assert completed.code == 1, completed.output
