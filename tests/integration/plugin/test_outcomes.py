"""Each way of ending: in the record, on the terminal, in the exit code."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = '''"""One test for each way of ending."""
import pytest

from harness.models.models import Model
from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_assertion(bench):
    assert 1 == 2, "the figures differ"


@pytest.mark.device
def test_bug_of_the_suite(bench):
    raise ValueError("oops")


@pytest.mark.device
def test_wrong_call(bench):
    bench.resident(Model("tiny"), "3").check()


@pytest.mark.device
@pytest.mark.parametrize("call", ["measure", "conclude", "check", "expect"])
def test_wrong_word(bench, call):
    given = {"measure": {"what": object()}}.get(call, {})
    getattr(bench, call)(*([] if given else [5]), **given)


@pytest.mark.device
def test_unknown_fixture(bench, nothing_of_this_name):
    pass


@pytest.mark.device
async def test_async(bench):
    pass


@pytest.mark.device
def test_too_few(bench):
    bench.resident(Model("tiny"), 0).check()


@pytest.mark.device
def test_bug_of_ours(bench):
    bench.case = None
    bench.resident(Model("tiny"), 3).check()


@pytest.mark.device
def test_skip(bench):
    pytest.skip("not today")


@pytest.mark.device
def test_crash(bench):
    bench.run(Plan((Step("crash", {"signal": "11"}),))).check()


@pytest.mark.device
def test_hang(bench):
    bench.run(Plan((Step("hang"),)), timeout_s=2).check()


@pytest.mark.device
def test_garbage(bench):
    plan = Plan((Step("spew", {"bytes": "100000", "to": "events"}), Step("noop")))
    bench.run(plan).check()


@pytest.mark.device
def test_unchecked(bench):
    bench.run(Plan((Step("crash", {"signal": "6"}),)))


@pytest.mark.device
def test_misspelt(bench):
    bench.run_contexts([Model("tiny")], 2, "residnt").check()


@pytest.mark.device
@pytest.mark.xfail(strict=True, reason="it should not")
def test_passes_unexpectedly(bench):
    bench.measure(noted=1)


@pytest.mark.device
@pytest.mark.parametrize(
    "mark",
    [
        pytest.param("bare", marks=pytest.mark.xfail(strict=True, reason="r")),
        pytest.param("named", marks=pytest.mark.xfail(raises=AttributeError)),
    ],
)
def test_marked_mistake(bench, mark):
    bench.resydent()


@pytest.mark.device(htp_arch=75)
def test_other_device(bench):
    pass


@pytest.mark.device
def test_binary(bench):
    bench.run_contexts([Model("tiny")], 2, "resident").check()


MARKS = [(), pytest.mark.timed, pytest.mark.xfail, pytest.mark.xfail(strict=True)]


@pytest.mark.device
@pytest.mark.parametrize("n", [pytest.param(n, marks=mark) for n, mark in enumerate(MARKS)])
def test_nothing(bench, n):
    bench.grid("n", "qnn")
    if not bench.qnn_in(">=2"):
        bench.run(Plan((Step("noop"),))).check()


@pytest.fixture
def looked(bench):
    bench.beside("2.51.0").contexts(Model("tiny"))


@pytest.mark.device
def test_in_a_fixture(bench, looked):
    pass


@pytest.mark.device
def test_shell(bench):
    assert bench.device.transport.shell("true", timeout_s=60).ok


@pytest.mark.device
def test_fine(bench):
    bench.run(Plan((Step("noop"),))).check()
'''


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere" / "test_ends.py"
    path.parent.mkdir()
    path.write_text(SUITE)
    return path


def test_each_end_is_what_it_is(lab: DeviceRuns, suite: Path) -> None:
    completed = lab.run("--qnn", "2.47.0", "--compiler", "2.51.0", suites=suite)
    assert completed.code == 1, completed.output
    ends = {
        case["case"].rpartition("::")[2].partition("[")[0]: (case["outcome"], case["cause"])
        for case in completed.cases
    }
    assert ends == {
        "test_assertion": ("failed", "target"),
        "test_bug_of_the_suite": ("error", "config"),
        "test_wrong_call": ("error", "config"),
        "test_wrong_word": ("error", "config"),
        "test_unknown_fixture": ("error", "config"),
        "test_async": ("error", "config"),
        "test_too_few": ("error", "config"),
        "test_bug_of_ours": ("error", "harness"),
        "test_skip": ("skipped", None),
        "test_crash": ("crashed", "target"),
        "test_hang": ("hung", "target"),
        "test_garbage": ("passed", None),
        "test_unchecked": ("crashed", "target"),
        "test_misspelt": ("error", "config"),
        "test_passes_unexpectedly": ("failed", "target"),
        "test_marked_mistake": ("skipped", None),
        "test_binary": ("failed", "target"),
        "test_other_device": ("unsupported", None),
        "test_nothing": ("error", "config"),
        "test_in_a_fixture": ("passed", None),
        "test_shell": ("passed", None),
        "test_fine": ("passed", None),
    }
    marked = [case for case in completed.cases if "test_marked_mistake" in case["case"]]
    by_mark = {record["axes"]["mark"]: record for record in marked}
    assert (by_mark["bare"]["outcome"], by_mark["bare"]["cause"]) == ("error", "config")
    assert "'Bench' object has no attribute 'resydent'" in by_mark["bare"]["error"]["message"]
    assert "has no attribute 'resydent'" in completed.output
    assert by_mark["named"]["outcome"] == "skipped"
    nothing = [case for case in completed.cases if "test_nothing" in case["case"]]
    assert [(record["outcome"], record["cause"]) for record in nothing] == [("error", "config")] * 4
    line = 1 + SUITE.splitlines().index("def test_nothing(bench, n):") - 2
    messages = f"test_ends.py:{line}: the test ran nothing on its device, so there is no verdict"
    assert all(messages in record["error"]["message"] for record in nothing), nothing
    assert messages in completed.output
    (skipped,) = (case for case in completed.cases if "test_skip" in case["case"])
    assert skipped["measurements"]["skip_reason"] == "not today"
    words = [case for case in completed.cases if "test_wrong_word" in case["case"]]
    assert [(record["outcome"], record["cause"]) for record in words] == [("error", "config")] * 4
    messages = " ".join(record["error"]["message"] for record in words)
    for said in (
        "measure(what=...): JSON cannot hold a value of type object",
        "expected str, got 5",
        "expected Check, got 5",
    ):
        assert said in messages
    (wrong,) = (case for case in completed.cases if "test_wrong_call" in case["case"])
    said = "expected int, got '3'"
    assert re.fullmatch(rf"test_ends\.py:\d+: {re.escape(said)}", wrong["error"]["message"])
    assert re.search(rf"^test_ends\.py:\d+: {re.escape(said)}$", completed.output, re.M)
    assert "def schedule(" not in completed.output  # no traceback of ours stands before it
    (bug,) = (case for case in completed.cases if "test_bug_of_the_suite" in case["case"])
    line = 1 + SUITE.splitlines().index('    raise ValueError("oops")')
    messages = f"test_ends.py:{line}: the test's own mistake: ValueError: oops"
    assert bug["error"]["message"] == messages
    line = 1 + SUITE.splitlines().index("def test_unchecked(bench):")
    (unchecked,) = (case for case in completed.cases if "test_unchecked" in case["case"])
    assert f"at test_ends.py:{line + 1}" in unchecked["error"]["message"]
    assert f"\ntest_ends.py:{line + 1}: crashed in step 0" in completed.output
    (unknown,) = (case for case in completed.cases if "test_unknown" in case["case"])
    assert "fixture 'nothing_of_this_name' not found" in unknown["error"]["message"]
    (binary,) = (case for case in completed.cases if "test_binary" in case["case"])
    assert binary["error"]["code"] == 5000
    assert "Using newer context binary on old SDK" in binary["error"]["message"]
    (crash,) = (case for case in completed.cases if "test_crash" in case["case"])
    assert "SIGSEGV" in crash["error"]["message"]
    assert crash["error"]["step"] == 0
    line = 1 + SUITE.splitlines().index(
        '    bench.run(Plan((Step("crash", {"signal": "11"}),))).check()'
    )
    assert crash["error"]["message"].splitlines()[-1] == f"at test_ends.py:{line}"
    assert f"\ntest_ends.py:{line}: crashed in step 0" in completed.output
    assert "needs htp_arch 75, has 73" in completed.output


def test_a_run_that_stops_at_the_first_failure_is_not_whole(lab: DeviceRuns, suite: Path) -> None:
    completed = lab.run("-x", "-n", "0", "-k", "assertion or skip", suites=suite)
    assert (completed.code, len(completed.cases)) == (1, 1), completed.output
    info = json.loads((lab.reports / "latest/run.json").read_text())
    assert info["problem"] == "not run: 1 of 2 cases"


@pytest.mark.nightly
def test_a_failure_of_a_plain_test_is_not_hidden_by_good_cases(
    lab: DeviceRuns, suite: Path
) -> None:
    plain = (
        "import pytest\n@pytest.mark.device\n@pytest.mark.parametrize('n', [1])\n"
        "def test_plain(bench, n): bench.measure(noted=1)\n"
    )
    suite.write_text(plain)
    other = suite.with_name("test_plain.py")
    other.write_text(
        "import pytest\n@pytest.mark.parametrize('n', [1])\ndef test_n(n): assert n == 2\n"
    )
    command = [word for word in lab.command(suite.parent) if word not in ("-m", "device")]
    command.insert(1, "-m")
    completed = subprocess.run(
        command, env=lab.environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert completed.returncode == 1, completed.stdout
    assert "1 failed, 1 passed" in completed.stdout
