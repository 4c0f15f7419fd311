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
    ours = [sys.executable, "-m", "harness.cli.main", "--help"]
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
