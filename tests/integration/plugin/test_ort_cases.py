"""Cases that use ORT, as a user runs them: their records, and what they leave on the device."""

from typing import Any

import pytest

from tests.integration.device_runs import DeviceRuns

SUITE = """
import pytest
from harness.models.builtin_models import Model
from harness.bench.ort_on_device import OrtOnDevice
from harness.probe.ort_plan import dump_options, ort_session_free

pytestmark = pytest.mark.device(backend="htp", engine="ort")
TINY = Model("tiny")


def test_dump(bench):
    ort, model = bench.ort(), bench.model(TINY)
    with bench.scratch() as folder:
        dump = f"{folder}/it is here.onnx"
        steps = (
            *ort.session(0, model.file, options=dump_options(dump, embed=False)),
            ort_session_free(0),
            *ort.session(1, dump),
            OrtOnDevice.run(1, model),
        )
        bench.run(ort.plan(steps, sessions=2, causes=False)).check()


@pytest.mark.device(backend="htp", engine="qnn")
def test_unmarked(bench):
    bench.ort()


def test_scratch_goes_after_a_failure(bench):
    with bench.scratch():
        raise AssertionError("on purpose")


def test_what_is_left(bench):
    folder = f"{bench.device.workdir}/scratch"
    listed = bench.device.transport.shell(f"cd '{folder}' && ls -A", timeout_s=60)
    assert listed.ok
    bench.measure(left=listed.stdout.decode().split())
"""


@pytest.fixture(scope="module")
def cases(
    module_lab: DeviceRuns, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    suite = tmp_path_factory.mktemp("suite") / "test_ort.py"
    suite.write_text(SUITE)
    completed = module_lab.run("--ort", "1.24.1,1.31.1", suites=suite, code=1)
    last = {name: cases[-1] for name, cases in completed.by_test.items()}
    return last | {case["axes"]["ort"]: case for case in completed.by_test["test_dump"]}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.24.1", "1.31.1"])
def test_a_case_with_ort_has_its_figures(cases: dict[str, dict[str, Any]], version: str) -> None:
    case = cases[version]
    assert (case["outcome"], case["error"]) == ("passed", None)
    figures = case["measurements"]
    assert figures["ort_version"] == version
    assert (figures["sessions"], figures["runs"], figures["released"]) == (2, 1, 2)
    assert figures["placement"] == {"QNNExecutionProvider": 1}
    assert figures["outputs"]["beyond_tolerance"] == 0
    assert len(figures["create_us"]) == 2


def test_a_test_that_does_not_say_that_it_uses_ort(cases: dict[str, dict[str, Any]]) -> None:
    case = cases["test_unmarked"]
    assert (case["outcome"], case["cause"], case["axes"]["ort"]) == ("error", "config", None)


def test_nothing_of_what_cases_wrote_stays(cases: dict[str, dict[str, Any]]) -> None:
    assert cases["test_scratch_goes_after_a_failure"]["outcome"] == "failed"
    assert cases["test_what_is_left"]["measurements"]["left"] == []
