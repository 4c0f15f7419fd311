"""Order, prefixes and ranges of QNN versions."""

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.core.versions import QNN_WHEELS, QnnVersion, VersionRange

V = QnnVersion.parse
versions = st.lists(st.integers(0, 300000), min_size=1, max_size=4).map(
    lambda parts: QnnVersion(tuple(parts))
)
OPERATORS = ["==", "!=", ">=", "<=", ">", "<"]
OPPOSITE = {"==": "!=", "!=": "==", ">=": "<", "<": ">=", "<=": ">", ">": "<="}


def test_order_of_builds() -> None:
    ordered = ["2.14.1", "2.28", "2.28.0.241029", "2.28.2.241116", "2.47.0", "2.48.40", "2.51.0"]
    assert sorted(set(ordered), key=V) == ordered
    assert V("2.28.2.241116") > V("2.28.0.241029")


@pytest.mark.parametrize("text", ["", "latest", "2.", ".2", "2..1", "2.51rc1", "2 51", "-1", "٢.١"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a version"):
        V(text)


def test_a_short_form_is_a_prefix_by_numbers_and_not_by_characters() -> None:
    assert V("v2.28.2.241116").matches(V("2.28"))
    assert not V("2.28.2").matches(V("2.2"))
    assert not V("2.28").matches(V("2.28.2"))


@pytest.mark.parametrize(
    ("version", "spec", "inside"),
    [
        ("2.50.40", ">=2.47,<2.51", True),
        ("2.51.0", ">=2.47,<2.51", False),
        ("2.51.0", ">2.51", False),
        ("2.28.2.241116", "2.28.2", True),
        ("2.28.2.241116", "!=2.28", False),
        ("1.24.4", ">=1.24, <1.32", True),
        ("2.51.0", "==v2.51.0", True),
    ],
)
def test_ranges(version: str, spec: str, inside: bool) -> None:
    assert (V(version) in VersionRange.parse(spec)) is inside


@pytest.mark.parametrize("text", ["", ">=", ">=2.47,", "~=2.47", "new", ">=2 <3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        VersionRange.parse(text)


@given(versions, versions, st.sampled_from(OPERATORS))
def test_an_operator_and_its_opposite_divide_all_versions(
    version: QnnVersion, bound: QnnVersion, operator: str
) -> None:
    spec = VersionRange(((operator, bound),))
    opposite = VersionRange(((OPPOSITE[operator], bound),))
    assert (version in spec) is not (version in opposite)
    assert VersionRange.parse(str(spec)) == spec


def test_the_table_of_wheels_holds_versions_in_the_same_order() -> None:
    assert [V(wheel) for wheel in QNN_WHEELS.values()] == sorted(map(V, QNN_WHEELS.values()))
    assert list(map(V, QNN_WHEELS)) == sorted(map(V, QNN_WHEELS))
