"""The table of axes, beside what stands for one elsewhere."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.core.axes import AXES, IN_AXES, LISTED, VERSIONS, AxisName
from harness.results.known_issues import Conditions
from harness.results.record import PlacementRecord


def test_versions_are_searched_in_their_order() -> None:
    assert VERSIONS == ("qnn", "ort", "compiler")
    assert ("backend", *VERSIONS) == IN_AXES


def test_known_issues_may_ask_for_each_axis_and_placements_have_all_that_do_not_follow() -> None:
    assert Conditions.model_fields.keys() >= AXES.keys()
    assert PlacementRecord.model_fields.keys() == {axis.name for axis in LISTED} | {"engine"}


def test_a_model_takes_the_name_of_an_axis_that_is_searched_and_no_other() -> None:
    read = TypeAdapter[str](AxisName)
    assert [read.validate_python(axis) for axis in VERSIONS] == list(VERSIONS)
    for other in ("device", "bakend"):
        with pytest.raises(ValidationError, match="'qnn', 'ort' or 'compiler'"):
            read.validate_python(other)
