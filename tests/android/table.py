"""Where the tests run, as docs/android-tests.md says it.

`pytest --collect-only -q tests | python -m tests.android.table JUNIT...`: results of days and
nights; of a test that is in several files the last one counts. What was collected and is in none
counts as there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

HOST, BOARD, X64, ARM64 = "this computer", "arm64 board", "Android x86-64", "Android arm64"
PLACES: Final = (HOST, BOARD, X64, ARM64)
_TITLE: Final = """\
# Where the tests run

For whoever asks which tests ran on Android, on boards, and on this computer.

Made by `python -m tests.android.table`; do not edit. Counted are the results that it was given;
`there` are tests that these results do not have, but `make test` or `make nightly`.

- *This computer* has the real adb server, adbd, and QNN libraries for x86-64.
- An *arm64 board* is a simulated one, whose programs run under qemu.
- *Android x86-64* is the shell, the programs and the C library of Android 11, behind the real adbd.
- *Android arm64* is the same with programs for arm64 under qemu, or the arm64 C library alone.

Kernel, processor and DSP are not a phone's, and there is no QNN library for Android: a stand-in
built for its C library takes its place."""
# Folders without tests there: why. The longest name that fits counts.
_NO_LIBRARIES: Final = "it takes real QNN libraries, and there are none for Android here"
_SAME_SHELL: Final = (
    "its arm64 shell takes 0.3 s a process under qemu: the store's short path is tried with it, in "
    "unit/store; the x86-64 one is as new"
)
_ARM64_ALONE: Final = "its programs are for arm64, as a phone's; its shell is the x86-64 one"
_WHY_NOT_ON_ANDROID: Final = {
    "tests/unit": "functions of this computer's side; nothing of them runs on a device",
    "tests/unit/device/store": _SAME_SHELL,
    "tests/benchmarks": "times and sizes on this computer, side by side",
    "tests/faults": _ARM64_ALONE,
    "tests/nightly": "long runs of what is tried once elsewhere",
    "tests/integration": "this computer's side, or the simulated device itself",
    "tests/integration/device/adb": _SAME_SHELL,
    "tests/integration/tools/cli": _ARM64_ALONE,
    "tests/integration/search/bisect": f"{_NO_LIBRARIES}; over stand-ins in pytest_plugin",
    "tests/integration/contexts/sources": _NO_LIBRARIES,
    "tests/integration/damaged": _NO_LIBRARIES,
    "tests/integration/run/experiments": _NO_LIBRARIES,
    "tests/integration/contexts/capacity": _NO_LIBRARIES,
    "tests/integration/device/lab": _ARM64_ALONE,
    "tests/integration/search/minimize": _NO_LIBRARIES,
    "tests/integration/run/pytest_plugin": _ARM64_ALONE,
    "tests/integration/device/store": _SAME_SHELL,
}
_ON_ANDROID: Final = (
    "tests/integration/device/adb",
    "tests/integration/tools/cli",
    "tests/integration/device/store",
    "tests/unit/device/store",
)
_PHONE: Final = ("test_android_phone", "test_first_day", "test_phone")
_BOARDS: Final = ("test_board", "test_boards", "test_board_runs", "test_emulation")


def place_of(package: str, name: str) -> str:
    """Where a test runs, by the names that these tests have."""
    module = package.rpartition(".")[2]
    parameters = set(re.split(r"[\[\]]|-(?!x64|arm64)", name)[1:])
    android_faults = folder_of(package) == "tests/faults" and "android" in parameters
    if module in _PHONE or parameters & {"bionic-arm64", "android arm64"} or android_faults:
        return ARM64
    on_android = folder_of(package) in _ON_ANDROID and "android" in parameters
    if "bionic-x64" in parameters or on_android:
        return X64
    return BOARD if module in _BOARDS else HOST


def folder_of(package: str) -> str:
    """The folder of a test's module, `tests.unit.device.adb.test_x`, at most three deep."""
    return "/".join(package.split(".")[:-1][:3])


def _cell(ends: Counter[str]) -> str:
    passed = ends["passed"]
    rest = [f"{count} {end}" for end, count in sorted(ends.items()) if end != "passed" and count]
    return ", ".join([*([f"{passed} passed"] if passed or not rest else []), *rest])


def collected(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The tests that `--collect-only -q` lists, as JUnit calls them."""
    for line in lines:
        file, found, name = line.strip().partition(".py::")
        if found:
            yield file.replace("/", "."), name.replace("::", ".")


def table(files: Iterable[Path], there: Iterable[tuple[str, str]] = ()) -> str:
    """The page, of the results in these files and the tests that there are."""
    ends: dict[tuple[str, str], str] = dict.fromkeys(there, "there")
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            test = (case.get("classname", ""), case.get("name", ""))
            left_out = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            ends[test] = "failed" if failed else "passed" if left_out is None else "left out"
            if left_out is not None:
                place = place_of(*test)
                why = reasons.setdefault((folder_of(test[0]), place), Counter())
                why[left_out.get("message", "").removeprefix("Skipped: ")] += 1
    found: dict[str, dict[str, Counter[str]]] = {}
    for (package, name), end in ends.items():
        places = found.setdefault(folder_of(package), {})
        places.setdefault(place_of(package, name), Counter())[end] += 1
    rows = [f"| folder | {' | '.join(PLACES)} |", f"|---{'|---' * len(PLACES)}|"]
    for folder in sorted(found):
        cells = [_cell(found[folder][one]) if one in found[folder] else "-" for one in PLACES]
        rows.append(f"| {folder} | {' | '.join(cells)} |")
    why_not: dict[str, None] = {}
    for folder in sorted(found):
        lacking = [one for one in (X64, ARM64) if one not in found[folder]]
        if lacking:
            near = max((one for one in _WHY_NOT_ON_ANDROID if folder.startswith(one)), key=len)
            why = _WHY_NOT_ON_ANDROID[near]
            why_not[f"- {near}, {' and '.join(lacking)}: {why}."] = None
    said = [
        f"- {folder}, {place}: {why} ({count})."
        for (folder, place), several in sorted(reasons.items())
        for why, count in sorted(several.items())
    ]
    parts = [_TITLE, "\n".join(rows), "## Not on Android, and why", "\n".join(why_not)]
    return "\n\n".join([*parts, "## Left out", "\n".join(said) or "Nothing."]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(map(Path, sys.argv[1:]), collected(sys.stdin)))
