"""Coordinates, lists of versions, POMs and checksums, whatever a repository serves."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.runtimes.maven_repository import (
    Coordinates,
    checksum,
    metadata_versions,
    pom_dependencies,
)
from tests.properties import reached, reaches

METADATA = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<metadata><groupId>com.qualcomm.qti</groupId><artifactId>qnn-runtime</artifactId>
<versioning><latest>2.49.0</latest><versions><version>2.34.0</version><version>2.49.0</version>
<version>../../etc</version><version>2.49.0</version></versions></versioning></metadata>
"""

POM = b"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<dependencyManagement><dependencies><dependency><groupId>a</groupId><artifactId>b</artifactId>
<version>1</version></dependency></dependencies></dependencyManagement><dependencies>
<dependency><groupId>com.qualcomm.qti</groupId><artifactId>qnn-runtime</artifactId>
<version>[2.42.0]</version><scope>compile</scope></dependency>
<dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4</version>
<scope>test</scope></dependency>
<dependency><groupId>x</groupId><artifactId>y</artifactId><version>${z}</version></dependency>
</dependencies></project>"""

BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
<metadata><versioning><versions><version>&b;</version></versions></versioning></metadata>"""


def test_coordinates() -> None:
    coordinates = Coordinates.parse("com.qualcomm.qti:qnn-runtime:2.49.0")
    assert coordinates.folder == "com/qualcomm/qti/qnn-runtime"
    assert coordinates.file("aar") == "com/qualcomm/qti/qnn-runtime/2.49.0/qnn-runtime-2.49.0.aar"
    assert str(coordinates) == "com.qualcomm.qti:qnn-runtime:2.49.0"
    assert Coordinates.parse("a:b").version is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:",
        "a:b:c:d",
        "a/b:c",
        "a:..",
        "a:b:..",
        "a:b:1/../2",
        ".a:b",
        "a:b c",
        "a.:b",
        "a.-b:c",
    ],
)
def test_what_are_no_coordinates(text: str) -> None:
    with pytest.raises(ConfigError, match="are no coordinates"):
        Coordinates.parse(text)


def test_versions_of_a_list() -> None:
    assert metadata_versions(METADATA) == ["2.34.0", "2.49.0"]


def test_what_a_pom_depends_on() -> None:
    assert pom_dependencies(POM) == [Coordinates("com.qualcomm.qti", "qnn-runtime", "2.42.0")]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"<a>", BOMB, b"\xff\xfe", METADATA[:-9]])
def test_damaged_files(content: bytes) -> None:
    for read in (metadata_versions, pom_dependencies):
        with pytest.raises(ValueError):
            read(content)


@reaches(0.01)
@given(st.binary(max_size=200), st.integers(0, len(POM)))
def test_any_bytes_are_survived(noise: bytes, position: int) -> None:
    for whole in (METADATA, POM):
        for read in (metadata_versions, pom_dependencies):
            try:
                parsed = read(whole[:position] + noise + whole[position + len(noise) :])
            except ValueError:
                continue
            reached()
            assert len(parsed) <= 9


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "sha1",
            "da39a3ee" + "5e6b4b0d3255bfef95601890afd80709",
        ),
        (
            "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709  a.aar\n",
            "sha1",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        ),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "sha256", None),
        ("<html>", "sha1", None),
        ("", "sha256", None),
    ],
)
def test_checksums(text: str, kind: str, expected: str | None) -> None:
    assert checksum(text, kind) == expected
