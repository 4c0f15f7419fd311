"""Versions of several sources: which names there are, and what a spec means among them."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError, VersionError
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.runtime import LibrarySource, Runtime, version_key
from harness.runtimes.version_specs import choose, is_path, names
from tests.properties import damaged, reached, reaches
from tests.snapshots import Snapshot

ALL = ["2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0"]


class FixedSource(LibrarySource):
    """A source that has a list of versions, and no libraries."""

    origin = "the test"

    def __init__(self, name: str, versions: dict[str, list[str]]) -> None:
        self.name = name
        self._versions = versions

    def versions(self, target: str) -> list[str]:
        return self._versions.get(target, [])

    def runtime(self, version: str, target: str) -> Runtime:
        return Runtime(version, target, Path(), (), source=self.name)

    def damage(self, version: str, target: str) -> list[str]:
        return []


SDK = FixedSource(
    "sdk", {"android-arm64": ["2.31.0.250130"], "linux-x64": ["2.28.2.241116", "2.51.0"]}
)
MAVEN = FixedSource("maven", {"android-arm64": ["2.34.0", "2.49.0"]})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path, sources=[SDK, MAVEN])


@pytest.mark.parametrize(
    ("spec", "target", "expected"),
    [
        ("latest", "android-arm64", ["maven:2.49.0"]),
        ("all", "android-arm64", ["sdk:2.31.0.250130", "maven:2.34.0", "maven:2.49.0"]),
        ("2.31", "android-arm64", ["sdk:2.31.0.250130"]),
        ("maven:all", "android-arm64", ["maven:2.34.0", "maven:2.49.0"]),
        (">=2.32,<2.40,sdk:latest", "android-arm64", ["maven:2.34.0", "sdk:2.31.0.250130"]),
        ("2.51.0", "linux-x64", ["2.51.0"]),
        ("pypi:2.51", "linux-x64", ["2.51.0"]),
        ("2.28.2", "linux-x64", ["sdk:2.28.2.241116"]),
    ],
)
def test_what_a_spec_means(catalog: Catalog, spec: str, target: str, expected: list[str]) -> None:
    assert catalog.resolve(spec, target) == expected


def test_what_there_is_not(catalog: Catalog, snapshot: Snapshot) -> None:
    texts = []
    for spec in ("2.99", "2.5", "2", "2.51.0.1", "nonsense", "", "2.51.0,"):
        with pytest.raises(ConfigError) as caught:
            resolve_versions(spec, field="--qnn")
        assert caught.value.field == "--qnn"
        assert set(caught.value.choices or ()) == {*ALL, "latest", "all"}
        texts.append(caught.value.problem)
    for spec in (">=3", "sdk:2.49", "nobody:2.49", ">=x"):
        with pytest.raises(ConfigError) as refused:
            catalog.resolve(spec, "android-arm64", field="--qnn")
        texts.append(refused.value.problem)
    assert texts == snapshot


def test_a_source_that_has_nothing_for_a_target(catalog: Catalog, snapshot: Snapshot) -> None:
    texts = set()
    for spec in ("maven:latest", "maven:all", "maven:2.49.0", "maven:"):
        with pytest.raises(VersionError) as caught:
            catalog.resolve(spec, "linux-x64", field="--qnn")
        texts.add(str(caught.value))
    assert texts == snapshot


def test_the_source_of_a_runtime(catalog: Catalog, snapshot: Snapshot) -> None:
    assert catalog.runtime("sdk:2.51.0", "linux-x64").name == "sdk:2.51.0"
    assert catalog.runtime("maven:2.49.0", "android-arm64").source == "maven"
    assert catalog.runtime("2.34.0", "android-arm64").source == "maven"
    with snapshot.raises(ConfigError):
        catalog.runtime("maven:2.49.0", "linux-arm64")


@pytest.mark.parametrize(
    ("name", "target", "compiler"),
    [
        ("2.51.0", "linux-x64", "2.51.0"),
        ("maven:2.49.0", "android-arm64", "2.48.40"),
        ("sdk:2.51.0", "linux-x64", "2.51.0"),
    ],
)
def test_the_compiler_of_a_runtime_is_never_newer(
    catalog: Catalog, name: str, target: str, compiler: str
) -> None:
    assert catalog.compiler_for(name, target) == compiler
    with pytest.raises(ConfigError, match="no compiler of QNN"):
        catalog.compiler_for("sdk:2.31.0.250130", "android-arm64")


@pytest.mark.parametrize(
    ("spec", "versions"),
    [
        ("v2.48", ["2.48.40"]),
        ("all", ALL),
        (" 2.47 , latest ", ["2.47.0", "2.51.0"]),
        ("2.51,>=2.48, <2.50 ,2.47", ["2.51.0", "2.48.40", "2.49.40", "2.47.0"]),
        ("2.47.0,>2.50.40", ["2.47.0", "2.51.0"]),
        ("2.50.40,all", ["2.50.40", "2.47.0", "2.48.40", "2.49.40", "2.51.0"]),
    ],
)
def test_versions_of_pypi(spec: str, versions: list[str]) -> None:
    assert resolve_versions(spec) == versions


def test_a_target_without_a_source(tmp_path: Path, snapshot: Snapshot) -> None:
    catalog = Catalog(tmp_path)
    assert catalog.versions("linux-arm64") == ALL
    assert not catalog.is_cached("2.51.0", "linux-arm64")
    for call in (catalog.versions, lambda target: catalog.resolve("latest", target)):
        with snapshot.raises(ConfigError):
            call("android-arm64")
    with snapshot.raises(ConfigError):
        catalog.runtime("2.99.0", "linux-x64")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("sdk:latest", False),
        (">=2.48,<2.51", False),
        ("/opt/qairt/2.31.0", True),
        ("~/sdk", True),
        ("some/folder", True),
        ("qnn-runtime-2.49.0.aar", True),
    ],
)
def test_paths(spec: str, path: bool) -> None:
    assert is_path(spec) is path


def test_versions_in_order() -> None:
    shuffled = ["2.28.2.241116", "2.9.0", "2.28.0.241029", "odd", "2.28.2.241116104011_103376"]
    assert sorted(shuffled, key=version_key) == [
        "odd",
        "2.9.0",
        "2.28.0.241029",
        "2.28.2.241116",
        "2.28.2.241116104011_103376",
    ]


@reaches(0.02)
@given(
    damaged("2.51.0") | damaged("latest, all"),
    st.lists(st.sampled_from(["2.51.0", "2.50.40", "2.51"]) | st.text(max_size=8), max_size=4),
)
def test_any_spec_is_chosen_or_a_config_error(spec: str, listed: list[str]) -> None:
    known = names({"a": listed, "b": ["2.51.0"]}, "b")
    try:
        chosen = choose(spec, known)
    except ConfigError:
        return
    reached()
    assert set(chosen) <= set(known)


def test_a_name_means_the_same_as_another_wherever_it_means_anything(tmp_path: Path) -> None:
    here = FixedSource("here", {"linux-x64": ["2.51.0", "2.50.40"], "linux-arm64": ["2.51.0"]})
    elsewhere = FixedSource("there", {"linux-arm64": ["2.51.0"]})
    catalog = Catalog(tmp_path, sources=[here, elsewhere])
    both = ("linux-x64", "linux-arm64")
    assert catalog.is_same("here:2.51.0", "here:2.51", both)
    assert not catalog.is_same("here:2.51.0", "here:2.50.40", both)
    assert not catalog.is_same("here:2.51.0", "there:2.51.0", ["linux-arm64"])
    assert catalog.is_same("here:1.0", "here:2.51.0", both), "it means nothing anywhere"
