"""The wheels of qai-appbuilder: which there are, which files of them count, when they are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.ground.errors import ConfigError
from harness.libraries.runtimes.appbuilder import (
    APPBUILDER_RULES,
    APPBUILDER_TARGET,
    APPBUILDER_WHEELS,
    appbuilder_versions,
    appbuilder_wheel,
)
from harness.libraries.runtimes.catalog import Catalog, source_at
from harness.libraries.runtimes.local_sources import FolderSource
from harness.libraries.runtimes.pypi import all_versions, use_of
from harness.libraries.runtimes.wheels import known_sha256

BOARD = APPBUILDER_TARGET
BY_NAME = ["appbuilder:2.40.0", "appbuilder:2.48.40", "appbuilder:2.51.40"]


@pytest.mark.parametrize("version", APPBUILDER_WHEELS)
def test_every_wheel_is_known_by_its_hash(version: str) -> None:
    assert appbuilder_wheel(version, BOARD).file_name in known_sha256()


def test_versions_come_oldest_first() -> None:
    assert appbuilder_versions() == ["2.40.0", "2.48.40", "2.51.40"]


@pytest.mark.parametrize(
    ("version", "target", "told"),
    [
        ("2.51.40", "linux-x64", "no QNN libraries for target 'linux-x64' (valid: linux-arm64)"),
        ("2.51.0", BOARD, "unknown QNN version '2.51.0' (valid: 2.40.0, 2.48.40, 2.51.40)"),
    ],
)
def test_what_there_is_no_wheel_of(version: str, target: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        appbuilder_wheel(version, target)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("qai_appbuilder/libs/libQnnHtp.so", "device"),
        ("qai_appbuilder/libs/libQnnCpu.so", "device"),
        ("qai_appbuilder/libs/libQnnGpu.so", "device"),
        ("qai_appbuilder/libs/libQnnSystem.so", "device"),
        ("qai_appbuilder/libs/libQnnHtpV81Skel.so", "device"),
        ("qai_appbuilder/libs/libQnnHtpPrepare.so", "host"),
        ("qai_appbuilder/libs/libQnnHtpNetRunExtensions.so", "none"),
        ("qai_appbuilder/libs/__init__.py", "none"),
        ("qai_appbuilder/libGenie.so", "none"),
        ("qai_appbuilder/libappbuilder.so", "none"),
        ("qai_appbuilder.libs/libappbuilder-bbdb44b1.so", "none"),
        ("qai_appbuilder-2.51.40.dist-info/licenses/LICENSE", "none"),
    ],
)
def test_files_of_a_wheel(name: str, use: str) -> None:
    assert use_of(name, APPBUILDER_RULES) == use


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("latest", ["2.51.0"]),
        ("all", all_versions()),
        ("2.48.40", ["2.48.40"]),
        ("2.48", ["2.48.40"]),
        ("2.51", ["2.51.0"]),
        (">=2.51", ["2.51.0"]),
        ("2.51.40", BY_NAME[2:]),
        ("2.40", BY_NAME[:1]),
        (">2.51.0", BY_NAME[2:]),
        ("<2.47", BY_NAME[:1]),
        ("appbuilder:2.48", BY_NAME[1:2]),
        ("appbuilder:latest", BY_NAME[2:]),
        ("appbuilder:all", BY_NAME),
        ("2.51.40,latest", [BY_NAME[2], "2.51.0"]),
    ],
)
def test_it_is_asked_last(spec: str, expected: list[str], tmp_path: Path) -> None:
    assert Catalog(tmp_path).resolve(spec, BOARD) == expected


@pytest.mark.parametrize("spec", ["2.51.40", "appbuilder:latest", "appbuilder:2.48"])
def test_other_targets_have_nothing_of_it(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown QNN|has no QNN libraries for linux-x64"):
        Catalog(tmp_path).resolve(spec, "linux-x64")


@pytest.mark.parametrize("spec", ["2.99.0", ">=2.99"])
def test_what_nobody_has_is_told_with_all_there_is(spec: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        Catalog(tmp_path).resolve(spec, BOARD, field="--qnn")
    assert list(error.value.choices or ()) == [*all_versions(), "latest", "all", *BY_NAME]
    assert error.value.field == "--qnn"


def test_several_that_fit_are_no_reason_to_ask_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fits several"):
        Catalog(tmp_path).resolve("2", BOARD)


def test_its_version_alone_names_it_too(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    assert not catalog.is_cached("2.51.40", BOARD)
    assert not catalog.is_kept("appbuilder:2.51.40", BOARD)
    assert catalog.is_same("appbuilder:2.51.40", "2.51.40", [BOARD])
    assert not catalog.is_same("appbuilder:2.48.40", "2.48.40", [BOARD])
    with pytest.raises(ConfigError, match=r"unknown QNN version '2\.99\.0'.*appbuilder:2\.51\.40"):
        catalog.runtime("2.99.0", BOARD)


@pytest.mark.parametrize(
    ("name", "compiler"), [("appbuilder:2.51.40", "2.51.0"), ("appbuilder:2.48.40", "2.48.40")]
)
def test_what_compiles_for_it(name: str, compiler: str, tmp_path: Path) -> None:
    assert Catalog(tmp_path).compiler_for(name, BOARD) == compiler


def test_nothing_compiles_for_the_oldest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no compiler is as old as QNN 2\.40\.0"):
        Catalog(tmp_path).compiler_for("appbuilder:2.40.0", BOARD)


def test_a_folder_of_its_name_is_another_source(tmp_path: Path) -> None:
    (tmp_path / "appbuilder").mkdir()
    source = source_at(tmp_path / "appbuilder", [], tmp_path / "cache")
    assert isinstance(source, FolderSource)
    assert source.name == "appbuilder-2"
