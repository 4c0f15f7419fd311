"""The cost of inspecting 4 GiB and of copying out of them, beside `cp`, all in one run."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.core.local_file import copy_range
from tests.unit.containers.made import CONTEXT, Pte, wrapped

GIB = 1 << 30
LARGE = (4 * GIB - (4 << 20)) // 3 // 4096 * 4096
MOST_BYTES = 200e6
AIM = 0.8
SLACK = 2  # other programs run here, too

pytestmark = pytest.mark.benchmark


def timed(command: Sequence[object], result: int = 0) -> tuple[float, int, str]:
    """Seconds, largest resident memory in bytes, and what was printed."""
    begin = time.monotonic()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == result
    return time.monotonic() - begin, usage.ru_maxrss * 1024, output


def test_a_large_pte(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    path, out = tmp_path / "large.pte", tmp_path / "out"
    sizes = [256 + len(CONTEXT)] + [256 + LARGE] * 3
    blobs = [wrapped(CONTEXT), *[wrapped(CONTEXT, size=LARGE)] * 3]
    methods = {"forward": [("QnnBackend", number) for number in range(4)]}
    Pte(methods, blobs, sizes=sizes).write(path)
    assert path.stat().st_size > 3.99 * GIB

    command = [sys.executable, "-m", "harness.cli.main", "contexts"]
    seconds, memory, output = timed([*command, "inspect", path, "--json"])
    contexts = json.loads(output)["contexts"]
    assert [context["size"] for context in contexts] == [len(CONTEXT), LARGE, LARGE, LARGE]
    assert contexts[0]["build_id"].startswith("v2.22.0")
    show_figures("inspecting 4 GiB", s=round(seconds, 1), mb=memory // 10**6)
    assert memory < MOST_BYTES

    seconds, memory, _ = timed([*command, "extract", path, "--output", out])
    assert sorted(path.stat().st_size for path in out.glob("*.bin")) == sorted(
        context["size"] for context in contexts
    )
    # cp as well would see nothing but holes; what it takes for that many bytes is what counts
    copied = timed(["cp", "--sparse=never", path, tmp_path / "copy"])[0]
    (tmp_path / "copy").unlink()
    figures = {"s": round(seconds, 1), "cp_s": round(copied, 1), "mb": memory // 10**6}
    show_figures("extracting 4 GiB", **figures, speed_of_cp=round(copied / seconds, 2))
    assert memory < MOST_BYTES
    assert seconds < copied / AIM * SLACK


def test_bytes_without_holes(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    source = tmp_path / "source"
    part = random.Random(0).randbytes(16 << 20)
    with source.open("wb") as file:
        for _ in range(64):
            file.write(part)
    speeds = []
    for _ in range(3):
        copied = timed(["cp", source, tmp_path / "copy"])[0]
        (tmp_path / "copy").unlink()
        begin = time.monotonic()
        with source.open("rb") as read, (tmp_path / "copy").open("xb") as write:
            copy_range(read, 4096, GIB - 4096, write)
        speeds.append(copied / (time.monotonic() - begin))
        (tmp_path / "copy").unlink()
    speed = statistics.median(speeds)
    show_figures("copying 1 GiB", speed_of_cp=round(speed, 2))
    assert speed > AIM / SLACK
