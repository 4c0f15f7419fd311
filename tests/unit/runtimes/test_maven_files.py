"""Coordinates and lists of versions, whatever a repository serves."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.runtimes.maven_repository import Coordinates, metadata_versions
from tests.properties import reached, reaches

METADATA = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<metadata><groupId>com.qualcomm.qti</groupId><artifactId>qnn-runtime</artifactId>
<versioning><latest>2.49.0</latest><versions><version>2.34.0</version><version>2.49.0</version>
<version>../../etc</version><version>2.49.0</version></versions></versioning></metadata>
"""

BOMB = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>
<metadata><versioning><versions><version>&b;</version></versions></versioning></metadata>"""


def test_coordinates() -> None:
    coordinates = Coordinates.parse("com.qualcomm.qti:qnn-runtime:2.49.0")
    assert coordinates.folder == "com/qualcomm/qti/qnn-runtime"
    assert coordinates.aar() == "com/qualcomm/qti/qnn-runtime/2.49.0/qnn-runtime-2.49.0.aar"
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


@pytest.mark.parametrize("content", [b"", b"nonsense", b"<a>", BOMB, b"\xff\xfe", METADATA[:-9]])
def test_damaged_files(content: bytes) -> None:
    with pytest.raises(ValueError):
        metadata_versions(content)


@reaches(0.01)
@given(st.binary(max_size=200), st.integers(0, len(METADATA)))
def test_any_bytes_are_survived(noise: bytes, position: int) -> None:
    try:
        parsed = metadata_versions(METADATA[:position] + noise + METADATA[position + len(noise) :])
    except ValueError:
        return
    reached()
    assert len(parsed) <= 9
