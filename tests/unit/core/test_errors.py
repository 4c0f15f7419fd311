"""The codes of the harness's errors, by which programs tell them apart."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from harness.core.errors import HarnessError
from tests.snapshots import Snapshot

ROOT = Path(__file__).parents[3]
HARNESS = ROOT / "harness"
RESULTS = ROOT / "docs" / "results.md"


def kinds_of(kind: type[HarnessError]) -> Iterator[type[HarnessError]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("harness."):
            yield subclass
            yield from kinds_of(subclass)


def test_the_codes_of_errors_are_stable_and_in_the_page_of_results(snapshot: Snapshot) -> None:
    for file in sorted(HARNESS.rglob("*.py")):
        if re.search(r"^class \w+\(.*(?:Error|NotOffered|Device\w+)\b", file.read_text(), re.M):
            importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    kinds = {kind.__name__: kind for kind in kinds_of(HarnessError)}
    assert (
        sorted(
            f"{name}: {kind.code}, {kind.cause}, exit {kind.exit_code}"
            for name, kind in kinds.items()
        )
        == snapshot
    )
    _, _, section = RESULTS.read_text().partition("`symbol` is the code of its error")
    named = re.findall("`([a-z-]+)`", section.partition("\n\nThe code that")[0])
    assert sorted(named) == sorted({kind.code for kind in kinds.values()})
