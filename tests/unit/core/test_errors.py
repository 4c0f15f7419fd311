"""The codes of the harness's errors, by which programs tell them apart."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, DeviceLost, HarnessError, InfraError, plugin_faults
from tests.snapshots import Snapshot

HERE = Path(__file__)
ROOT = HERE.parents[3]
HARNESS = ROOT / "harness"
RESULTS = ROOT / "docs" / "reference" / "files.md"


def kinds_of(kind: type[HarnessError]) -> Iterator[type[HarnessError]]:
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("harness."):
            yield subclass
            yield from kinds_of(subclass)


def test_the_codes_of_errors_are_stable_and_in_the_reference(snapshot: Snapshot) -> None:
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
    _, _, section = RESULTS.read_text().partition("it is one of these:\n")
    named = re.findall("`([a-z-]+)`", section.partition("\n\nBesides")[0])
    assert sorted(named) == sorted({kind.code for kind in kinds.values()})


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InfraError("the rack is off")])
def test_an_error_of_a_plug_in_names_its_method_unless_it_is_one_of_ours(
    snapshot: Snapshot, error: Exception
) -> None:
    with (
        snapshot.raises(HarnessError),
        plugin_faults(HERE, "find", file=Path("devices.yaml"), field="rack"),
    ):
        raise error


def test_the_data_of_an_error() -> None:
    mistake = ConfigError("unknown value", file=HERE, line=3, field="devices.0.soc", choices=[1, 2])
    assert mistake.data == {
        "problem": "unknown value",
        "file": HERE,
        "line": 3,
        "field": "devices.0.soc",
        "choices": ["1", "2"],
        "more": (),
    }
    lost = DeviceLost("closed", serial="1a2b", command="true", output=b"x")
    assert lost.data == {"problem": "closed", "serial": "1a2b", "command": "true", "output": b"x"}
