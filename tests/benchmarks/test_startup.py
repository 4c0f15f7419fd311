"""The time before anything happens, beside programs that do nothing of their own."""

from __future__ import annotations

import os
import resource
import statistics
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
    ours = [sys.executable, "-m", "harness.cli.main", "--help"]
    our_s, plain_s, times = ratio(ours, [sys.executable, "-c", "import click"], tmp_path)
    show_figures("--help", s=round(our_s, 3), import_click_s=round(plain_s, 3), ratio=times)
    assert times < 3


PLAIN = {
    "10 files of plain tests": (10, "def test_a():\n    pass\n\ndef test_b():\n    pass\n", 1.15),
    "20,000 plain cases": (
        1,
        "import pytest\n@pytest.mark.parametrize('number', range(20_000))\n"
        "def test_nothing(number):\n    pass\n",
        1.3,
    ),
}


@pytest.mark.benchmark
@pytest.mark.parametrize(("title", "files", "text", "most"), [(k, *v) for k, v in PLAIN.items()])
def test_collection_of_plain_tests(
    tmp_path: Path,
    show_figures: Callable[..., None],
    title: str,
    files: int,
    text: str,
    most: float,
) -> None:
    """The same tests with the plug-in and without it: medians of three in turn."""
    for number in range(files):
        (tmp_path / f"test_{number}.py").write_text(text)
    plain = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    plain += ["-p", "no:labgrid", "-c", os.devnull, "--rootdir", tmp_path, tmp_path]
    pairs = [
        [processor_s(suite, tmp_path, tmp_path / "bytecode") for suite in (plain, alone)]
        for alone in [[*plain, "-p", "no:qnn_harness"]] * 4
    ][1:]
    our_s, plain_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    figures = {"s": round(our_s, 2), "plain_s": round(plain_s, 2)}
    show_figures(f"collecting {title}", **figures, ratio=round(our_s / plain_s, 2))
    assert our_s / plain_s <= most


FIRST = '''"""A worker says what it has used before its first case."""
import os
import resource

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    used = resource.getrusage(resource.RUSAGE_SELF)
    file = os.environ["TOOK"] + os.environ["PYTEST_XDIST_WORKER"]
    if not os.path.exists(file):
        with open(file, "w") as output:
            output.write(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss * 1024}")
'''


@pytest.mark.benchmark
def test_collection(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    """Of the shipped suites, beside as many empty tests."""
    collect = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    ours = [*collect, "-m", "device", ROOT / "suites"]
    completed = subprocess.run(
        list(map(str, ours)), cwd=ROOT, check=True, capture_output=True, text=True
    )
    cases = sum("::" in line for line in completed.stdout.splitlines())
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
        timings = tmp_path / name
        subprocess.run(
            [*common, *more, f"test_{name}.py"],
            cwd=tmp_path,
            env=os.environ | {"TOOK": str(timings)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # workers whose controller went away complain
            check=True,
        )
        lines = [tuple(map(float, line.split())) for line in timings.read_text().splitlines()]
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


@pytest.mark.benchmark
def test_a_worker_before_its_first_case(
    simulated_lab: Path, tmp_path: Path, show_figures: Callable[..., None]
) -> None:
    """Processor time and memory, beside a worker of pytest-xdist that runs plain tests."""
    (tmp_path / "conftest.py").write_text(FIRST)
    (tmp_path / "test_ours.py").write_text(
        "import pytest\nfrom harness.probe.plan import Plan, Step\n\n"
        "@pytest.mark.device\ndef test_ours(bench):\n"
        "    bench.run(Plan((Step('noop', {}),))).check()\n"
    )
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    pass\n")
    common = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"]
    common += ["-p", "no:labgrid", "-c", os.devnull, "--rootdir", tmp_path]
    ways = {
        "ours": ["--lab", simulated_lab, "--reports", tmp_path / "reports", "test_ours.py"],
        "plain": ["-p", "no:qnn_harness", "test_plain.py"],
    }
    used: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for round_ in range(4):
        for name, more in ways.items():
            timings = tmp_path / f"{name}{round_}"
            environment = os.environ | {"TOOK": str(timings)}
            subprocess.run(
                list(map(str, [*common, *more])),
                cwd=tmp_path,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            (file,) = tmp_path.glob(f"{name}{round_}gw*")
            used[name].append(tuple(map(float, file.read_text().split())))
    (our_s, our_bytes), (plain_s, plain_bytes) = (
        [statistics.median(column) for column in zip(*rounds[1:], strict=True)]
        for rounds in used.values()
    )
    show_figures(
        "a worker before its first case",
        processor_s=round(our_s, 2),
        plain_s=round(plain_s, 2),
        mb=round(our_bytes / 1e6),
        plain_mb=round(plain_bytes / 1e6),
    )
    assert our_s / plain_s < 4
    assert our_bytes < 70e6
