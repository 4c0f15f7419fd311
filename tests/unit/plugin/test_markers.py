"""Mistakes in the markers of tests, and their messages."""

from __future__ import annotations

from typing import Any

import pytest

from harness.plugin.collection import misuse

OURS = ("bench", "placement")
BENCH: dict[str, Any] = {"marked": False, "fixtures": OURS}
PLAIN: dict[str, Any] = {"marked": False, "fixtures": ()}


@pytest.mark.parametrize(
    "name",
    ["devcie", "devices", "Device", "DEVICE", "devic", "dvice", "devise", "edvice", "decive"],
)
def test_a_slip_of_device_is_a_mistake_of_any_test(name: str) -> None:
    for test in (BENCH, PLAIN):
        problem = misuse([name], **test)
        assert problem is not None
        assert f"the unknown marker {name!r}, did you mean 'device'?" in problem


@pytest.mark.parametrize("name", ["service", "advice", "device_farm", "timer", "slow", "", "d"])
def test_a_name_of_somebody_else_is_none(name: str) -> None:
    assert misuse([name], **PLAIN) is None
    assert misuse([], **PLAIN) is None


@pytest.mark.parametrize(("name", "meant"), [("timd", "timed"), ("takes_context", "takes_con")])
def test_a_device_test_has_all_of_our_markers(name: str, meant: str) -> None:
    problem = misuse([name], marked=True, fixtures=OURS)
    assert problem is not None
    assert f"did you mean '{meant}" in problem
    assert misuse([name], **PLAIN) is None, "a plain test has none but `device` in its stead"


@pytest.mark.parametrize("unknown", [[], ["slow"]])
def test_who_takes_a_bench_is_marked(unknown: list[str]) -> None:
    problem = misuse(unknown, **BENCH)
    assert problem == "takes the fixture `bench`: mark it with @pytest.mark.device"
    assert misuse(unknown, marked=True, fixtures=OURS) is None


def test_what_is_further_off_is_guessed_where_a_marker_is_missing() -> None:
    problem = misuse(["slow", "on_device"], **BENCH)
    assert problem is not None
    assert "has the unknown marker 'on_device', did you mean 'device'?" in problem


def test_who_is_marked_takes_a_bench() -> None:
    problem = misuse([], marked=True, fixtures=())
    assert problem == "is marked `device` and must take the fixture `bench`"


@pytest.mark.parametrize(
    ("fixtures", "message"),
    [([], "`bench`"), (["request", "bnech"], "`bench`, not 'bnech'"), (["bank"], "`bench`")],
)
def test_a_slip_of_bench_is_named(fixtures: list[str], message: str) -> None:
    problem = misuse([], marked=True, fixtures=fixtures)
    assert problem == f"is marked `device` and must take the fixture {message}"
