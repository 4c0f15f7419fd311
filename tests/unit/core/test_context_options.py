"""The table of context options: names, values, and the fields of a plan that they become."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.context_options import (
    CONTEXT_OPTIONS,
    checked_options,
    option_fields,
    parsed_options,
)
from harness.core.errors import ConfigError
from harness.probe.plan import LIMITS


def test_an_option_has_one_number_and_what_it_needs_exists() -> None:
    numbers = {(option.kind, option.number) for option in CONTEXT_OPTIONS.values()}
    assert len(numbers) == len(CONTEXT_OPTIONS)
    for option in CONTEXT_OPTIONS.values():
        assert option.number < LIMITS["CONTEXT_OPTIONS_MAX"]
        assert option.needs in {"", *CONTEXT_OPTIONS}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["reused_io_limit_mb=64"], {"reused_io_limit_mb": 64}),
        (["init_acceleration=0", "init_acceleration=0"], {"init_acceleration": 0}),
        (["binary_compatibility=strict"], {"binary_compatibility": "strict"}),
        (
            ["memory_limit_hint_mb=1048576", "persistent_binary=1"],
            {"memory_limit_hint_mb": 1048576, "persistent_binary": 1},
        ),
        ([], {}),
    ],
)
def test_options_are_parsed(texts: list[str], expected: dict[str, object]) -> None:
    assert parsed_options(texts, "--context-option") == expected
    assert checked_options(expected) == expected, "what was checked is valid"


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["reused_io=64"], r"unknown context option 'reused_io' \(valid: weight_sharing, "),
        (["reused_io_limit_mb"], r"'reused_io_limit_mb' is not of the form NAME=VALUE"),
        (["reused_io_limit_mb=1048577"], r"valid: reused_io_limit_mb=N, 0 to 1048576 \(MB\)"),
        (["spill_fill_group=0"], r"valid: spill_fill_group=N, 1 to \d+ \(bytes\)"),
        (["reused_io_limit_mb=-1"], r"'-1' is not a value of reused_io_limit_mb"),
        (["reused_io_limit_mb=\u0663"], "is not a value"),
        (["init_acceleration=yes"], r"valid: init_acceleration=0, init_acceleration=1"),
        (["init_acceleration=0", "init_acceleration=1"], "init_acceleration has two values: 0, 1"),
        (["memory_limit_hint_mb=5"], r"no effect without persistent_binary; add persistent_bin"),
        (["memory_limit_hint_mb=5", "persistent_binary=0"], "no effect without"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_valid(texts: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"--context-option: .*{problem}"):
        parsed_options(texts, "--context-option")


@pytest.mark.parametrize("options", [["reused_io_limit_mb"], {17: 64}])
def test_a_suite_that_gives_no_options_by_name_is_told_so(options: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"options: (must be a mapping|unknown context option '17')"
    ):
        checked_options(options)


def test_options_become_fields_of_a_step() -> None:
    options = {"reused_io_limit_mb": 64, "persistent_binary": True}
    assert option_fields(options) == {"custom.17": "64", "standard.7": "1"}
    assert option_fields({"binary_compatibility": "strict"}) == {"standard.8": "1"}
    assert option_fields(None) == {}


def test_the_first_context_begins_a_group_and_others_join_it() -> None:
    assert option_fields({"spill_fill_group": 9}) == {"max_spill_fill": "9"}
    assert option_fields({"spill_fill_group": 9}, 3) == {"max_spill_fill": "9", "group": "0"}
    concurrent = option_fields({"concurrent_group": 9}, 1)
    assert concurrent == {"max_spill_fill": "9", "group": "0", "concurrent": "1"}
