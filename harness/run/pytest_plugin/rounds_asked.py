"""How often graphs of a user's file are executed, as options say."""

from __future__ import annotations

import argparse
from typing import Final, Literal

from harness.probe.plan import Rounds

_AUTO: Final = "auto"
_AUTO_MS: Final = 2000
_AUTO_WARMUP: Final = 2
_AUTO_MOST: Final = 1000
_LONGEST_MS: Final = 200_000
_MOST: Final = 99999


def rounds(text: str) -> int | Literal["auto"]:
    """The N of `--contexts-rounds`."""
    return _AUTO if text == _AUTO else _number(text, 1, f"{_AUTO}, or ")


def warmup(text: str) -> int:
    """The M of `--contexts-warmup`."""
    return _number(text, 0)


def rounds_asked(most: int | Literal["auto"], warmup: int | None) -> Rounds:
    """What both come to. However many rounds there are to be, they end before their case must."""
    if most == _AUTO:
        return Rounds(_AUTO_MOST, _AUTO_WARMUP if warmup is None else warmup, _AUTO_MS)
    before = warmup or 0
    return Rounds(most, before, _LONGEST_MS if most + before > 1 else None)


def _number(text: str, least: int, other: str = "") -> int:
    if not (text.isdecimal() and len(text) <= len(str(_MOST)) and int(text) >= least):
        told = f"{text[:40]!r} is no number of rounds: {other}{least} to {_MOST}"
        raise argparse.ArgumentTypeError(told)
    return int(text)
