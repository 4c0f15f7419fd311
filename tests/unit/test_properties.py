"""Every property test can fail: what counts its examples, and where it has to stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings, strategies as st

from tests.properties import damaged, reached, reaches

TESTS = Path(__file__).parents[1]


def checked(body: Sequence[ast.stmt]) -> bool:
    """Whether every example comes to an assertion: in no branch or loop, behind no return."""
    for one in body:
        if isinstance(one, ast.Assert):
            return True
        if isinstance(one, ast.With) and "suppress" not in ast.unparse(one.items[0]):
            if "raises" in ast.unparse(one.items[0]) or checked(one.body):
                return True
        elif isinstance(one, ast.If) and one.orelse and checked(one.body) and checked(one.orelse):
            return True
        own = not isinstance(one, ast.FunctionDef)
        if own and any(isinstance(part, ast.Return) for part in ast.walk(one)):
            return False
    return False


def property_tests() -> Iterator[tuple[str, ast.FunctionDef, list[str]]]:
    texts = {path: path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    for path in (path for path, text in texts.items() if "@given(" in text):
        for one in ast.walk(ast.parse(texts[path])):
            if isinstance(one, ast.FunctionDef):
                said = [ast.unparse(decorator) for decorator in one.decorator_list]
                if any(text.startswith("given(") for text in said):
                    yield f"{path.relative_to(TESTS)}::{one.name}", one, said


def test_whose_examples_may_come_to_nothing_are_counted() -> None:
    uncounted = [
        name
        for name, one, said in property_tests()
        if not any(text.startswith("reaches(") for text in said)
        and (not checked(one.body) or "assume(" in ast.unparse(one))
    ]
    assert uncounted == [], "tests.properties.reaches counts how many get to what is asserted"


def test_who_counts_stands_above_what_it_counts() -> None:
    """Settings that stand above it would be of the test that counts, and do nothing."""
    wrong = [
        name
        for name, _, said in property_tests()
        for at, text in enumerate(said)
        if text.startswith("reaches(") and any(one.startswith("settings(") for one in said[:at])
    ]
    assert wrong == []


@pytest.mark.parametrize(("share", "enough"), [(0.2, True), (0.9, False)])
def test_too_few_examples_that_get_there_fail_a_test(share: float, enough: bool) -> None:
    @reaches(share)
    @given(st.integers(0, 99))
    def half(number: int) -> None:
        if number % 2:
            reached()

    if enough:
        half()
    else:
        with pytest.raises(AssertionError, match="got to what is asserted, and 90% should"):
            half()


def test_what_is_turned_away_counts_and_a_failure_stays_one() -> None:
    @reaches(1.0)
    @given(st.integers(0, 99))
    def turned_away(number: int) -> None:
        assume(number % 2)
        reached()

    with pytest.raises(AssertionError, match="100% should"):
        turned_away()

    @reaches(0.0)
    @settings(max_examples=10)
    @given(st.integers())
    def failing(number: int) -> None:
        reached()
        assert number > number

    with pytest.raises(AssertionError, match="assert 0 > 0"):
        failing()


@reaches(0.3)
@given(damaged("one: two"))
def test_a_damaged_text_is_another_one_and_near(text: str) -> None:
    if text != "one: two":
        reached()
    assert len(text) <= len("one: two") + 2 * 9
