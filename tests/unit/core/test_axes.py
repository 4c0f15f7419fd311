"""The table of axes, beside what stands for one elsewhere."""

from __future__ import annotations

from dataclasses import fields

import pytest
from pydantic import TypeAdapter, ValidationError

from harness.bench.placement import Placement
from harness.core.axes import AXES, IN_AXES, VERSIONS, AxisName
from harness.results.known_issues import Conditions


def test_versions_are_searched_in_their_order() -> None:
    assert VERSIONS == ("qnn", "ort", "compiler")
    assert ("backend", *VERSIONS) == IN_AXES


def test_known_issues_may_ask_for_each_axis_and_placements_have_all_that_do_not_follow() -> None:
    assert Conditions.model_fields.keys() >= AXES.keys()
    chosen = {axis.name for axis in AXES.values() if axis.option is not None}
    assert {field.name for field in fields(Placement)} >= chosen


def test_a_model_takes_the_name_of_an_axis_that_is_searched_and_no_other() -> None:
    read = TypeAdapter[str](AxisName)
    assert [read.validate_python(axis) for axis in VERSIONS] == list(VERSIONS)
    for other in ("device", "bakend"):
        with pytest.raises(ValidationError, match="'qnn', 'ort' or 'compiler'"):
            read.validate_python(other)
