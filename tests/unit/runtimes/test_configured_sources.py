"""From paths, devices.yaml and the environment to sources; and which device gets what."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.core.errors import ConfigError, VersionError
from harness.lab.config_fields import RuntimeSource
from harness.lab.inventory import load_lab
from harness.runtimes.aar import AarSource
from harness.runtimes.catalog import Catalog, choose_runtimes, source_at
from harness.runtimes.local_sources import FolderSource, SdkSource
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file

LIBRARY = elf_file(needed=["libc.so.6"], content=b"\0v2.49.0.260701120000\0")


def written(path: Path, content: bytes = LIBRARY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def places(tmp_path: Path) -> Path:
    written(tmp_path / "qairt/lib/aarch64-android/libQnnHtp.so")
    written(tmp_path / "sdks/2.31.0/lib/x86_64-linux-clang/libQnnHtp.so")
    written(tmp_path / "Mine, all mine!/libQnnHtp.so")
    written(tmp_path / "App.aar")
    written(tmp_path / "notes.txt")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("qairt", SdkSource, "qairt"),
        ("sdks", SdkSource, "sdks"),
        ("Mine, all mine!", FolderSource, "mine-all-mine"),
        ("App.aar", AarSource, "app"),
    ],
)
def test_a_path_is_the_source_that_lies_there(
    path: str, kind: type, name: str, places: Path
) -> None:
    source = source_at(places / path, [], places / "cache")
    assert isinstance(source, kind)
    assert source.name == name
    again = source_at(places / path, [name], places / "cache")
    assert again.name == f"{name}-2"


def test_a_path_as_version(tmp_path: Path, places: Path, snapshot: Snapshot) -> None:
    for path in ("notes.txt", "x/y"):
        with snapshot.raises(ConfigError):
            source_at(places / path, [], places / "cache")
    catalog = Catalog(places / "cache")
    spec = str(places / "Mine, all mine!")
    with snapshot.raises(ConfigError):
        catalog.resolve(spec, "linux-arm64", field="--qnn")  # a comma ends a spec
    (places / "Mine, all mine!").rename(places / "mine")
    spec = str(places / "mine")
    assert catalog.resolve(spec, "linux-arm64") == ["mine:2.49.0.260701"]
    assert catalog.resolve(spec, "linux-arm64") == ["mine:2.49.0.260701"]
    assert catalog.compiler_for("mine:2.49.0.260701", "linux-arm64") == "2.48.40"
    with snapshot.raises(ConfigError):
        catalog.resolve(spec, "linux-x64", field="--qnn")


def test_the_environment_names_an_sdk(places: Path) -> None:
    lab_file = places / "devices.yaml"
    lab_file.write_text("schema: 1\ndevices:\n  - {name: a, serial: b}\n")
    environment = {"QNN_SDK_ROOT": str(places / "sdks"), "QAIRT_SDK_ROOT": str(places / "qairt")}
    catalog = Catalog.of(load_lab(lab_file), environment, places / "cache")
    assert [source.name for source in catalog.sources] == ["sdk", "qairt", "pypi"]
    assert catalog.sources[0].origin == str(places / "qairt")
    lab_file.write_text(
        lab_file.read_text() + "runtimes:\n  - {name: sdk, kind: qairt, path: sdks}\n"
    )
    catalog = Catalog.of(load_lab(lab_file), environment, places / "cache")
    assert catalog.sources[0].origin == str(places / "sdks")


def test_any_whole_version_of_qualcomm_can_be_named_unless_devices_yaml_has_another_qairt(
    places: Path, snapshot: Snapshot
) -> None:
    lab_file = places / "devices.yaml"
    lab_file.write_text(devices := "schema: 1\ndevices:\n  - {name: a, serial: b}\n")
    catalog = Catalog.of(load_lab(lab_file), {}, places / "cache")
    name = "qairt:2.44.0.260225"
    assert catalog.resolve(f"{name},qairt:2.47.0.260601", "android-arm64")[0] == name
    assert not catalog.is_cached(name, "android-arm64")
    assert catalog.compiler_for("qairt:2.47.0.260601", "android-arm64") == "2.47.0"
    for spec in ("qairt:2.44", "qairt:latest"):
        with snapshot.raises(VersionError):
            catalog.resolve(spec, "android-arm64", field="--qnn")
    pinned = f"[{{kind: qairt-url, sha256: {{2.44.0.260225: {'f' * 64}}}}}]"
    for sources in (pinned, "[{name: qairt, kind: folder, path: 'Mine, all mine!'}]"):
        lab_file.write_text(f"{devices}runtimes: {sources}\n")
        catalog = Catalog.of(load_lab(lab_file), {}, places / "cache")
        assert [source.name for source in catalog.sources] == ["qairt", "pypi"]
        with snapshot.raises(VersionError):
            catalog.resolve("qairt:2.45", "android-arm64", field="--qnn")


TABLE = {
    ("latest", "a"): ["3"],
    ("latest", "b"): ["2"],
    ("all", "a"): ["1", "3"],
    ("1", "a"): ["1"],
}


def table(spec: str, target: str) -> Sequence[str]:
    if (spec, target) not in TABLE:
        raise ConfigError(f"no {spec}")
    return TABLE[spec, target]


def test_each_target_gets_its_own() -> None:
    runtimes, reasons = choose_runtimes(table, ["1", "latest", "all"], ["a", "b", "a"])
    assert {target: [*names] for target, names in runtimes.items()} == {"a": ["1", "3"], "b": ["2"]}
    assert reasons == {"a": [], "b": ["for b: no 1", "for b: no all"]}


def test_what_no_target_has_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="no 9"):
        choose_runtimes(table, ["latest", "9"], ["a", "b"])


LAB = """schema: 1
devices:
  - {name: a, serial: b}
runtimes:
  - {name: mine, kind: share, drive: Z}
"""


class Share(RuntimeSource):
    kind: Literal["share"]
    drive: str

    def open(self, folder: Path, cache_root: Path) -> object:
        return f"{self.drive}: of {folder}"


class SecondFolder(RuntimeSource):
    kind: Literal["folder"]


class Unnamed(RuntimeSource):
    pass


@pytest.mark.parametrize(
    "kinds",
    [[7], [Path], [Unnamed], [SecondFolder], OSError("no share")],
    ids=["number", "other", "unnamed", "taken", "raises"],
)
def test_a_mistake_of_a_plug_in_is_an_error_that_names_it(
    kinds: Any, add_plug_in: Callable[..., None], tmp_path: Path, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_runtime_sources", kinds)
    with snapshot.raises(ConfigError):
        RuntimeSource.kinds()
    lab_file = tmp_path / "devices.yaml"
    lab_file.write_text(LAB)
    with pytest.raises(ConfigError, match="plug-in acme: "):
        load_lab(lab_file)


def test_a_kind_is_stored_with_its_fields_and_must_open_a_source(
    add_plug_in: Callable[..., None], tmp_path: Path, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_runtime_sources", [Share])
    lab_file = tmp_path / "devices.yaml"
    lab_file.write_text(LAB)
    lab = load_lab(lab_file)
    assert isinstance(lab.runtimes[0], Share)
    (entry,) = lab.model_dump(mode="json")["runtimes"]
    assert entry == {"name": "mine", "kind": "share", "drive": "Z"}
    with snapshot.raises(ConfigError):
        Catalog.of(lab, {}, tmp_path / "cache")
