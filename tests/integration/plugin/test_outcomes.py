"""Each way of ending: in the record, on the terminal, in the exit code."""

import json
import re
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = '''"""One test for each way of ending."""
import pytest

from harness.models.builtin_models import Model
from harness.probe.plan import Plan, Step


@pytest.mark.device
def test_assertion(bench):
    bench.run(Plan((Step("crash", {"signal": "9"}),)))
    assert 1 == 2, "the figures differ"


@pytest.mark.device
def test_bug_of_the_suite(bench):
    raise ValueError("oops")


@pytest.mark.device
def test_wrong_call(bench):
    bench.resident(Model("tiny"), "3").check()


@pytest.mark.device
def test_unknown_fixture(bench, nothing_of_this_name):
    pass


@pytest.mark.device
async def test_async(bench):
    pass


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


@pytest.mark.device(htp_arch=75)
def test_other_device(bench):
    pass


@pytest.mark.device(htp_arch="v75")
def test_slip(bench):
    pass


@pytest.mark.device
def test_binary(bench):
    bench.run_contexts([Model("tiny")], 2, "resident").check()


MARKS = [(), pytest.mark.wait_until_idle, pytest.mark.xfail, pytest.mark.xfail(strict=True)]


@pytest.mark.device
@pytest.mark.parametrize("n", [pytest.param(n, marks=mark) for n, mark in enumerate(MARKS)])
def test_nothing(bench, n):
    bench.grid("n", "qnn")
    if not bench.qnn_in(">=2"):
        bench.run(Plan((Step("noop"),))).check()


@pytest.fixture
def looked(bench):
    bench.with_qnn("2.51.0").contexts(Model("tiny"))


@pytest.mark.device
def test_in_a_fixture(bench, looked):
    pass


@pytest.mark.device
def test_shell(bench):
    assert bench.device.transport.shell("true", timeout_s=60).ok


@pytest.mark.device
def test_says_no(bench):
    bench.device.transport.shell("log -t QnnDsp of this case", timeout_s=60)
    bench.device.transport.shell("log -t adsprpc SSR Detected for domain 3", timeout_s=60)
    assert False, "it must not"
'''


LINES = {
    "test_bug_of_the_suite": "raise ValueError",
    "test_wrong_call": 'bench.resident(Model("tiny"), "3")',
    "test_crash": '"signal": "11"',
    "test_unchecked": '"signal": "6"',
    "test_nothing": "@pytest.mark.device",
}
"""What stands in the line that the message of a case names."""


@pytest.fixture
def suite(lab: DeviceRuns) -> Path:
    return lab.write_suite(SUITE, "test_ends.py")


@pytest.mark.slow
def test_each_end_is_what_it_is(lab: DeviceRuns, suite: Path) -> None:
    completed = lab.run("--qnn", "2.47.0", "--compiler", "2.51.0", suites=suite, code=1)
    by_test = completed.by_test
    ends = {name: (cases[-1]["outcome"], cases[-1]["cause"]) for name, cases in by_test.items()}
    assert ends == {
        "test_assertion": ("failed", "target"),
        "test_bug_of_the_suite": ("error", "config"),
        "test_wrong_call": ("error", "config"),
        "test_unknown_fixture": ("error", "config"),
        "test_async": ("error", "config"),
        "test_bug_of_ours": ("error", "harness"),
        "test_skip": ("skipped", None),
        "test_crash": ("crashed", "target"),
        "test_hang": ("hung", "target"),
        "test_garbage": ("passed", None),
        "test_unchecked": ("crashed", "target"),
        "test_binary": ("failed", "target"),
        "test_other_device": ("unsupported", None),
        "test_nothing": ("error", "config"),
        "test_in_a_fixture": ("passed", None),
        "test_shell": ("passed", None),
        "test_says_no": ("failed", "target"),
    }
    for name, text in LINES.items():
        # its line is that of the mistake, and is told on the terminal, too
        line = re.search(r"test_ends\.py:(\d+)", by_test[name][0]["error"]["message"])
        assert text in SUITE.splitlines()[int(line[1]) - 1], line
        assert line[0] in completed.output
    info = json.loads((lab.reports / "latest/run.json").read_text())
    assert info["problem"] is None
    (why,) = info["not_started"]
    assert re.match(r".*test_ends.py:\d+: htp_arch in the marker", why)
    for text in (completed.output, (lab.reports / "latest/report.html").read_text()):
        assert "1 test could not start: " in text
        assert not re.search("cut short", text.partition("<script")[0], re.IGNORECASE)
    assert {case["outcome"] for case in by_test["test_nothing"]} == {"error"}
    assert by_test["test_skip"][0]["measurements"]["skip_reason"] == "not today"
    assert "def schedule(" not in completed.output  # no traceback of ours stands before it
    errors = {name: cases[0]["error"] for name, cases in by_test.items() if cases[0]["error"]}
    assert errors["test_binary"]["code"] == 5000
    assert "SIGSEGV" in errors["test_crash"]["message"]
    assert errors["test_crash"]["step"] == 0
    assert completed.output.count("- failed earlier on the device") == 1
    assert "SIGKILL" in errors["test_assertion"]["message"]
    # evidence of what went wrong, from its own time
    logs = {
        name: {Path(path).name: completed.folder / "latest" / path for path in cases[0]["logs"]}
        for name, cases in by_test.items()
    }
    assert all(path.is_file() for paths in logs.values() for path in paths.values())
    assert "evidence.json" not in logs["test_garbage"]
    assert {"evidence.json", "probe.jsonl"} <= logs["test_crash"].keys()
    assert {"evidence.json", "process-threads.txt"} <= logs["test_hang"].keys()
    assert "of this case" in logs["test_says_no"]["logcat.txt"].read_text()
    assert "of this case" not in logs["test_crash"]["logcat.txt"].read_text()
    assert json.loads(logs["test_says_no"]["evidence.json"].read_text())["lost"] is None
    assert errors["test_says_no"]["diagnosis"]["id"] == "dsp-restarted"
    assert errors["test_crash"]["diagnosis"] is None


def test_a_run_that_stops_at_the_first_failure_is_not_whole(lab: DeviceRuns, suite: Path) -> None:
    completed = lab.run("-x", "-n", "0", "-k", "assertion or skip", suites=suite)
    assert (completed.code, len(completed.cases)) == (1, 1), completed.output
    info = json.loads((lab.reports / "latest/run.json").read_text())
    assert info["problem"] == "not run: 1 of 2 cases"


@pytest.mark.slow
def test_what_is_not_run_any_more_is_not_in_the_run(lab: DeviceRuns) -> None:
    text = """import pytest
@pytest.mark.device
@pytest.mark.parametrize("number", range({}))
def test_it(bench, number):
    assert number > 2
"""
    suite = lab.write_suite(text.format(3))
    lab.run("-n", "0", suites=suite, code=1)
    suite.write_text(text.format(1))
    completed = lab.run("-n", "0", suites=suite, code=1)
    assert ": 1 still failing, 2 not in this run\n" in completed.output
