"""What all tests share: a simulated lab of their own, and honesty about missing tools."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine makes everything slow, and that is no fault of what is tested.
settings.register_profile(
    "harness",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("harness")

ROOT = Path(__file__).parents[1]
_NEEDS = "needs "

ONE_DEVICE = """schema: 1
devices:
  - name: {name}
    simulated: true
    soc: QCS8550
"""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        tool: str = marker.args[0]
        if os.environ.get(tool) if tool.isupper() else shutil.which(tool):
            continue
        if os.environ.get("QNN_HARNESS_INSIST"):
            kind = "not set" if tool.isupper() else "missing"
            pytest.fail(f"{tool} is {kind} and every test is insisted on", pytrace=False)
        pytest.skip(f"{_NEEDS}{tool}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out: dict[str, Counter[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, here, tool = reason.partition(_NEEDS)
        if here:
            left_out.setdefault(tool, Counter())[report.nodeid.partition("[")[0]] += 1
    for tool, tests in left_out.items():
        terminalreporter.write_line(f"left out for want of {tool}: {tests.total()} tests")
        for test, count in tests.items():
            terminalreporter.write_line(f"    {test}" + (f" ({count})" if count > 1 else ""))


@pytest.fixture
def simulated_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A devices.yaml with one simulated device whose storage is this test's own."""
    monkeypatch.setenv("QNN_HARNESS_SIMULATED", str(tmp_path / "simulated"))
    monkeypatch.setenv("QNN_HARNESS_QUARANTINE", str(tmp_path / "quarantine"))
    monkeypatch.setenv("QNN_HARNESS_LEASES", str(tmp_path / "leases"))
    lab = tmp_path / "devices.yaml"
    lab.write_text(ONE_DEVICE.format(name="sim-test"))
    return lab


@pytest.fixture
def show_figures(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., None]]:
    """Prints measured figures even when output is captured."""

    def show(title: str, **figures: object) -> None:
        with capsys.disabled():
            print(f"\n{title}: " + ", ".join(f"{k} {v}" for k, v in figures.items()))

    return show
