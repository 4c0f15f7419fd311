"""Options that commands share: the lab, the libraries of this computer, and times."""

from pathlib import Path
from typing import Any

import pytest
from click import command, echo
from click.testing import CliRunner

from harness.cli.bisect import bisect
from harness.cli.common_options import DEFAULT_LAB
from harness.cli.lab_options import device_argument, host_runtime, lab_or_simulated
from harness.core.durations import parse_duration
from harness.core.errors import ConfigError, NoLabError
from harness.core.socs import HOST_TARGET
from harness.lab.inventory import SIMULATED_LAB
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions


class CatalogWithoutDownloads(Catalog):
    """Tells what would be had instead of having it."""

    def runtime(self, *requests: Any, **more: Any) -> Any:
        assert not more
        return requests


@pytest.mark.parametrize("named", [(), ("--lab", "devices.yaml")])
def test_a_bisection_without_a_lab_is_on_a_simulated_device(
    named: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`history` prints its lines with the lab of the run, which may be the simulated one."""
    monkeypatch.chdir(tmp_path)
    words = ["--case", "x", "--axis", "qnn", "--good", "2.51.0", "--bad", "2.47.0", *named]
    completed = CliRunner().invoke(bisect, words)
    assert "sim-v73" in completed.output
    assert not isinstance(completed.exception, NoLabError)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (None, all_versions()[-1]),
        ("latest", all_versions()[-1]),
        ("2.48", "2.48.40"),
        ("<2.48", "2.47.0"),
    ],
)
def test_the_version_that_is_asked_for_is_taken_or_else_the_newest(
    tmp_path: Path, spec: str | None, version: str
) -> None:
    runtime: Any = host_runtime(CatalogWithoutDownloads(tmp_path), spec)
    assert runtime == (version, HOST_TARGET)


@pytest.mark.parametrize("spec", ["2.47.0,2.48.40", "<=2.48.40", "all", "1.0"])
def test_none_of_several_versions_or_of_none_is_chosen(tmp_path: Path, spec: str) -> None:
    with pytest.raises(ConfigError, match=r"^--qnn: "):
        host_runtime(CatalogWithoutDownloads(tmp_path), spec)


def test_without_a_lab_the_simulated_devices_are_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = Path("other.yaml")
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73"]) == SIMULATED_LAB
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73", "phone"]) == DEFAULT_LAB
    assert lab_or_simulated(other, ["sim-v73"]) == other
    with pytest.raises(ConfigError):
        lab_or_simulated(DEFAULT_LAB, ["sim-v70"])
    DEFAULT_LAB.write_text("schema: 1")
    assert lab_or_simulated(DEFAULT_LAB, ["sim-v73"]) == DEFAULT_LAB


@pytest.mark.parametrize(
    ("words", "serial", "printed"),
    [
        ("-s a,b --device c", "x", "a b c"),
        ("a b", "x", "a b"),
        ("", "x", "x"),
        ("-s a b", "x", "Name devices either as DEVICE or with -s."),
        ("", "", "Missing argument 'DEVICE'."),
    ],
)
def test_devices_are_named_as_for_adb(words: str, serial: str, printed: str) -> None:
    @command
    @device_argument("names", nargs=-1, required=True, metavar="DEVICE")
    def several(names: tuple[str, ...]) -> None:
        echo(" ".join(names))

    @command
    @device_argument("name", metavar="DEVICE")
    def single(name: str) -> None:
        echo(name)

    environment = {"ANDROID_SERIAL": serial}
    completed = CliRunner().invoke(several, words, env=environment)
    assert completed.output.splitlines()[-1].removeprefix("Error: ") == printed
    completed = CliRunner().invoke(single, words, env=environment)
    printed = {"a b c": "c", "a b": "Got unexpected extra argument (b)"}.get(printed, printed)
    assert completed.output.splitlines()[-1].removeprefix("Error: ") == printed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1s", 1),
        (" 2m ", 120),
        ("168h", 604800),
        ("0s", 0),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "1m1h", "-1h", "168h1s", "4 h", "nan", "１h"])
def test_wrong_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write |is longer than 168h"):
        parse_duration(text)
