"""The time before anything happens, beside programs that do nothing of their own."""

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


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
