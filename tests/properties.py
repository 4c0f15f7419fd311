"""Counts of the examples of a property test that reach its assertion.

An example that is filtered away, is empty, or makes the test return early shows nothing. Where most
of them do, the test cannot fail, and nobody sees it.
"""

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

_got_there = [False]


def reached() -> None:
    """Stands before what a property test asserts of an example."""
    _got_there[0] = True


def reaches(share: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The test fails if a smaller share of its examples comes to `reached`.

    The share stands well below what was seen: examples differ with whatever else was imported,
    since hypothesis takes numbers and words from there, too.

    It stands before `@settings` and `@given`. What `assume` turns away counts as an example, too.
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        inner = test.hypothesis.inner_test  # type: ignore[attr-defined]
        count = {"all": 0, "there": 0}

        @functools.wraps(inner)
        def counted(*args: Any, **values: Any) -> None:
            count["all"] += 1
            _got_there[0] = False
            try:
                inner(*args, **values)
            finally:
                count["there"] += _got_there[0]

        @functools.wraps(test)
        def judged(*args: Any, **values: Any) -> None:
            count.update(all=0, there=0)
            test(*args, **values)
            assert count["there"] >= share * count["all"], (
                f"{count['there']} of {count['all']} examples got to what is asserted, and "
                f"{share:.0%} should"
            )

        test.hypothesis.inner_test = counted  # type: ignore[attr-defined]
        return judged

    return decorate


def damaged(text: str) -> st.SearchStrategy[str]:
    """`text`, and it with a few places cut out, overwritten, doubled or filled with anything.

    Of texts at random a reader takes next to none; of these it takes many, and wrong ones.
    """
    put_in = st.text(sorted(set(text)), max_size=2) | st.text(max_size=9)
    edit = st.tuples(st.integers(0, len(text)), st.integers(0, 3) | st.just(9), put_in)

    def made(edits: list[tuple[int, int, str]]) -> str:
        damaged_text = text
        for place, length, put_in in edits:
            damaged_text = damaged_text[:place] + put_in + damaged_text[place + length :]
        return damaged_text

    return st.lists(edit, max_size=2).map(made)
