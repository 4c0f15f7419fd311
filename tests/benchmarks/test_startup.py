"""How long one waits before anything happens, beside programs that do nothing of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT

ROUNDS = 5


def processor_s(command: list[object], folder: Path, bytecode: Path) -> float:
    """Processor time of a command, in seconds: it depends little on who else works here."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ratio(ours: list[object], plain: list[object], folder: Path) -> tuple[float, float, float]:
    """The best of some rounds in turn, the first of which warms the bytecode."""
    warm = folder / "bytecode"
    pairs = [
        (processor_s(ours, ROOT, warm), processor_s(plain, folder, warm)) for _ in range(1 + ROUNDS)
    ][1:]
    our_s, plain_s = (min(times) for times in zip(*pairs, strict=True))
    return our_s, plain_s, our_s / plain_s


@pytest.mark.benchmark
def test_help(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    ours = [sys.executable, "-m", "harness.tools.cli.main", "--help"]
    our_s, plain_s, times = ratio(ours, [sys.executable, "-c", "import click"], tmp_path)
    show_figures("--help", s=round(our_s, 3), import_click_s=round(plain_s, 3), ratio=times)
    assert times < 3


@pytest.mark.benchmark
def test_collection(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    """Of the shipped suites, beside as many empty tests."""
    collect = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    ours = [*collect, "-m", "device", ROOT / "suites"]
    done = subprocess.run(
        list(map(str, ours)), cwd=ROOT, check=True, capture_output=True, text=True
    )
    cases = sum("::" in line for line in done.stdout.splitlines())
    (tmp_path / "test_empty.py").write_text(
        f"import pytest\n@pytest.mark.parametrize('number', range({cases}))\n"
        "def test_nothing(number):\n    pass\n"
    )
    plain = [*collect, "-c", os.devnull, "--rootdir", tmp_path, "test_empty.py"]
    our_s, plain_s, times = ratio(ours, plain, tmp_path)
    figures = {"s": round(our_s, 3), "empty_s": round(plain_s, 3), "ratio": round(times, 2)}
    show_figures(f"collecting {cases} cases", **figures)
    assert times < 2


MANY, WORKERS = 100_000, 8
COLLECTED = f'''"""A run ends when its workers have collected, and says what that took."""
import os
import resource

import pytest

FILE = os.environ["TOOK"]


def say():
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open(FILE, "a") as file:
        file.write(f"{{used.ru_utime + used.ru_stime}} {{used.ru_maxrss * 1024}}\\n")


class Controller:
    left = {WORKERS}

    @pytest.hookimpl(trylast=True)
    def pytest_xdist_node_collection_finished(self):
        self.left -= 1
        if not self.left:
            say()
            os._exit(0)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    if hasattr(session.config, "workerinput"):
        say()


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller())
'''


@pytest.mark.benchmark
def test_collection_of_many_cases_by_workers(
    tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    """Processor time and memory of all processes, beside as many tests with two parameters."""
    (tmp_path / "conftest.py").write_text(COLLECTED)
    (tmp_path / "devices.yaml").write_text(
        "schema: 1\ndevices:\n  - {name: sim, simulated: true, soc: QCS8550}\n"
    )
    test = f"@pytest.mark.parametrize('number', range({MANY}))\ndef test_nothing"
    (tmp_path / "test_ours.py").write_text(
        f"import pytest\n@pytest.mark.device\n{test}(bench, number):\n    pass\n"
    )
    (tmp_path / "test_plain.py").write_text(
        "import pytest\n@pytest.fixture(scope='session')\ndef place(request):\n    pass\n"
        "@pytest.fixture\ndef bench(place):\n    pass\n"
        f"@pytest.mark.parametrize('place', ['sim-htp-2.51.0'], indirect=True)\n"
        f"{test}(bench, place, number):\n    pass\n"
    )
    common = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(WORKERS)]
    figures = {}
    for name, more in (("ours", ["-m", "device"]), ("plain", ["-p", "no:qnn_harness"])):
        took = tmp_path / name
        subprocess.run(
            [*common, *more, f"test_{name}.py"],
            cwd=tmp_path,
            env=os.environ | {"TOOK": str(took)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # workers whose controller went away complain
            check=True,
        )
        lines = [tuple(map(float, line.split())) for line in took.read_text().splitlines()]
        assert len(lines) == WORKERS + 1, name
        figures[name] = [sum(column) for column in zip(*lines, strict=True)]
    (our_s, our_bytes), (plain_s, plain_bytes) = figures["ours"], figures["plain"]
    show_figures(
        f"collecting {MANY} cases in {WORKERS} workers",
        processor_s=round(our_s, 1),
        plain_s=round(plain_s, 1),
        time=round(our_s / plain_s, 2),
        memory=round(our_bytes / plain_bytes, 2),
    )
    assert our_s / plain_s < 1.3
    assert our_bytes / plain_bytes < 1.3
