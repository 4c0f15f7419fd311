"""Rounds that `--contexts-rounds` and `--contexts-warmup` come to."""

from __future__ import annotations

import argparse

import pytest

from harness.plugin.options import rounds, rounds_option, warmup
from harness.probe.plan import ONCE, Rounds


def test_what_is_asked() -> None:
    assert rounds_option(1, None) == ONCE, "as ever"
    assert rounds_option("auto", None) == Rounds(1000, 2, 2000)
    assert rounds_option("auto", 0).warmup == 0
    # however many there are to be, the case must not hang over it
    assert rounds_option(5000, 3) == Rounds(5000, 3, 200_000)


def test_words() -> None:
    assert (rounds("auto"), rounds("7"), warmup("0")) == ("auto", 7, 0)
    for read, text in ((rounds, "0"), (rounds, "x"), (warmup, "-1"), (rounds, "100000")):
        with pytest.raises(argparse.ArgumentTypeError, match="is no number of rounds"):
            read(text)


def test_steps_share_the_time_and_two_steps_the_rounds() -> None:
    assert Rounds(9, 2, 2000).shared(4) == Rounds(9, 2, 500)
    assert Rounds(9, 2, 2).shared(100).budget_ms == 1
    assert Rounds(9, 2).shared(4) == Rounds(9, 2)
    assert Rounds(9, 2, 501).halves() == (Rounds(5, 2, 250), Rounds(4, 0, 250))
    assert ONCE.halves() == (ONCE, ONCE)
