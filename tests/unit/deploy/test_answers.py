"""Inputs and answers of the scripts, line by line, without a device (layout.py)."""

import time
from dataclasses import replace
from typing import Any

import pytest

from harness.deploy.layout import (
    StoreAnswerError,
    StoreView,
    entry_name,
    is_safe_name,
    parse_install,
    parse_look,
    stored_at,
)
from tests.unit.deploy.store_device import a_set, stored_file

A, B = "a" * 64, "b" * 64
LISTED = {"sets": {"set-1.7": {}}}


def read(*lines: str) -> StoreView:
    return parse_look("".join(f"@qnn-harness:{line}\n" for line in (*lines, "done")))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["listed set-1.7"], LISTED),
        (["listed -rf"], {}),
        (["listed set-1.7", "file 5|9|sets/set-1.7/a"], {"sets": {"set-1.7": {"a": (5, 9)}}}),
        (
            ["listed set-1.7", "file 5|9|sets/set-1.7/lib/a", "untimed"],
            {"sets": {"set-1.7": {"lib/a": (5, None)}}},
        ),
        (["listed set-1.7", "file 5|9|else/set-1.7/a"], LISTED),
        (["listed set-1.7", "file 5|9|sets/set-1.7", "file 5|sets/set-1.7/a"], LISTED),
        (["file 5|9|sets/set-2.7/a"], {}),
        ([f"file 5|9|store/{A}.1"], {"entries": {A: [(f"{A}.1", 5, 9)]}}),
        (
            [f"file 5|9|store/{A}-x.1", "untimed", f"file 6|9|store/{A}-x.2"],
            {"entries": {f"{A}-x": [(f"{A}-x.1", 5, None), (f"{A}-x.2", 6, None)]}},
        ),
        ([f"file 5|9|store/more/{A}.1", "file 5|9|store/a"], {}),
        (
            [f"file 5|9|store/.incoming/x-1.77/{A}.3", "file 6|9|store/.incoming/x-1.77/ready/b"],
            {"incoming": {"x-1.77": 11}},
        ),
        (["file 5|9|store/.incoming/-rf/b", "file 5|9|store/.incoming/b"], {}),
        (["links hard"], {"links": "hard"}),
        (["links soft"], {"links": "soft"}),
        (["links hard", "links odd"], {"links": "hard"}),
        ([f"boot {'x' * 200}"], {"boot": "x" * 100}),
        (["claim a-1", "claim b-2", "claim ../c"], {"claims": frozenset({"a-1", "b-2"})}),
        (["df /dev/x 9 5 4 60% /"], {"free_bytes": 4096}),
        (["unhashed"], {"hashing": False}),
        ([], {}),
    ],
)
def test_each_line_tells_one_thing_and_nothing_that_leads_elsewhere(
    lines: list[str], expected: dict[str, Any]
) -> None:
    assert read(*lines) == StoreView(**expected)
    assert read(*(f"odd {line.partition(' ')[2]}" for line in lines)) == StoreView()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (f"damaged {A} {B}", {A: B}),
        (f"damaged {A} {'c' * 90}", {A: "c" * 64}),
        (f"damaged {A}", {}),
        (f"absent {A}", {A: ""}),
        ("absent", {}),
        (f"odd {A} {B}", {}),
    ],
)
def test_why_no_set_was_made(line: str, wrong: dict[str, str]) -> None:
    assert parse_install(f"@qnn-harness:{line}\n@qnn-harness:done\n") == wrong


def test_why_a_script_failed_is_told_at_no_great_length() -> None:
    with pytest.raises(StoreAnswerError) as caught:
        parse_install(f"@qnn-harness:fail {'x' * 999}\n@qnn-harness:done\n")
    assert str(caught.value) == "x" * 300


BOOT = "b00t"
NOW = stored_at(BOOT)


@pytest.mark.parametrize(
    ("size", "modified", "good", "unchecked"),
    [
        (5, NOW, True, False),
        (5, None, True, False),
        (6, NOW, False, False),
        (5, NOW - 1, False, True),
        # a time that no boot gives is that of somebody who wrote to it
        (5, 946684799, False, False),
        (5, 946684800, False, True),
        (5, 946684800 + (1 << 26) - 1, False, True),
        (5, 946684800 + (1 << 26), False, False),
    ],
)
def test_size_and_time_tell_that_a_file_is_what_its_name_says(
    size: int, modified: int | None, good: bool, unchecked: bool
) -> None:
    view = StoreView(boot=BOOT, entries={A: [("other", 9, NOW), ("file", size, modified)]})
    assert view.find_entry(A, 5) == ("file" if good else None)
    assert view.unchecked_entry(A, 5) == ("file" if unchecked else None)
    assert (view.find_entry(B, 5), view.unchecked_entry(B, 5)) == (None, None)
    file_set = a_set("set-1", "lib/one.so")
    view.sets = {"set-1.8": {}, "set-1.7": {"lib/one.so": (size, modified)}, "set-2.7": {}}
    assert view.find_set(file_set) == ("set-1.7" if good else None)
    assert view.instances(file_set) == ["set-1.7", "set-1.8"]
    assert view.store_bytes == 9 + size


def test_what_is_stored_in_a_boot_carries_a_time_of_the_year_2000() -> None:
    assert stored_at("") == 946684800
    assert StoreView().stored_at_touch == "200001010000.00"
    stored_time = time.strptime(f"{StoreView(boot=BOOT).stored_at_touch} UTC", "%Y%m%d%H%M.%S %Z")
    assert stored_time[:6] == time.gmtime(NOW)[:6]


def test_what_anybody_may_execute_is_an_entry_of_its_own() -> None:
    file = stored_file("probe", b"x")
    for mode in (0o744, 0o654, 0o645, 0o111):
        assert entry_name(replace(file, mode=mode)) == f"{file.sha256}-x"
    assert entry_name(replace(file, mode=0o666)) == file.sha256


def test_names_that_can_be_told_back_to_a_device() -> None:
    for name in ("a" * 255, "_x-1.77"):
        assert is_safe_name(name)
    for name in ("a" * 256, "", ".x"):
        assert not is_safe_name(name)
