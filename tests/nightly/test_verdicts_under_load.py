"""The suites' own verdicts beside busy loops and a busy disk: the same as on a quiet computer.

Each run is one of the cases that compare times or memory with a threshold, on the simulated device.
QNN_HARNESS_LOADED_RUNS says how many runs there are of each kind of load (5).
"""

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.experiments.test_suites import sessions_that_leave, verdicts

RUNS = int(os.environ.get("QNN_HARNESS_LOADED_RUNS", "5"))
LOOPS = 3
THRESHOLDS = "create_and_destroy or mem_type_pairing or spill_fill or limit"
# What stays within its tolerance is `undecided` at worst, and what does not is always found.
JUST_TOO_MUCH, MUCH = 80_000, 2_000_000

_SPIN = "while True: pass"
_WRITE = """
import os, sys
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(200):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
"""

pytestmark = pytest.mark.nightly


@contextlib.contextmanager
def loaded(kind: str, folder: Path) -> Iterator[None]:
    """Busy loops on more cores than there are, and for `disk` someone who writes all the time."""
    programs = [[_SPIN]] * max(LOOPS, (os.cpu_count() or 1) + 1)
    programs += [[_WRITE, str(folder / "written")]] * (kind == "disk")
    started = [subprocess.Popen([sys.executable, "-c", *program]) for program in programs]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@pytest.mark.parametrize("kind", ["loops", "disk"])
def test_one_verdict(tmp_path: Path, kind: str, show_figures: Callable[..., None]) -> None:
    lab = DeviceRuns(tmp_path)
    counts: Counter[tuple[str, str]] = Counter()
    checks: Counter[str] = Counter()
    looked_twice = 0
    with loaded(kind, tmp_path):
        for _ in range(RUNS):
            completed = lab.run("-k", THRESHOLDS, code=0)
            for case in completed.cases:
                counts[case["case"], case["outcome"]] += 1
                checks.update(check["verdict"] for check in case["checks"])
                looked_twice += "first_look" in case["measurements"]
    assert len({case for case, _ in counts}) >= 10
    assert set(counts.values()) == {RUNS}, counts
    show_figures(
        f"{RUNS} runs beside {kind}", **checks, longer_looks=looked_twice, cases=len(counts)
    )


@pytest.mark.parametrize("kind", ["loops", "disk"])
@pytest.mark.parametrize("leak", [0, JUST_TOO_MUCH, MUCH])
def test_a_leak_is_found(
    tmp_path: Path, kind: str, leak: int, show_figures: Callable[..., None]
) -> None:
    lab = DeviceRuns(tmp_path)
    memory = []
    with loaded(kind, tmp_path):
        for _ in range(max(1, RUNS // 10)):
            case = sessions_that_leave(lab, tmp_path, f"leak_bytes={leak}")
            assert case["outcome"] == ("failed" if leak else "passed"), case["checks"]
            verdict = verdicts(case)
            assert (verdict["memory_left_by_each"] == "broken") == bool(leak), case["checks"]
            if leak != JUST_TOO_MUCH:  # with what a library allocates once it may be either
                assert (verdict["memory_left_by_all"] == "broken") == bool(leak), case["checks"]
            memory.append(case["checks"][0]["figures"]["left_bytes"])
    show_figures(f"{leak} bytes leaked beside {kind}", told_bytes=memory)
