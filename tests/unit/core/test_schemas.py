"""Messages about files of another schema, or whose schema is damaged."""

from __future__ import annotations

import pytest

from harness.core.bounded_json import OTHER_SCHEMA, other_schema

NEWER = ": a newer qnn-harness wrote it, so update this one"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (7, f"is of schema 7; this version reads schema 1{NEWER}"),
        (0, "is of schema 0; this version reads schema 1"),
        (10**40, f"is of schema 1{'0' * 19}; this version reads schema 1{NEWER}"),
        *(
            (said, f"is damaged: its schema is {shown}, which is no number; this version")
            for said, shown in (
                ("2", "'2'"),
                (True, "True"),
                (2.5, "2.5"),
                (None, "None"),
                ([2], "[2]"),
                ("2" * 99, f"'{'2' * 12}...{'2' * 13}'"),
            )
        ),
    ],
)
def test_what_is_said(value: object, told: str) -> None:
    text = other_schema(value, 1)
    assert text.startswith(told)
    assert text.startswith(OTHER_SCHEMA) is (type(value) is int)
    assert len(text) < 120
