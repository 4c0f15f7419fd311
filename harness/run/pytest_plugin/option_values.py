"""What may stand behind an option; argparse says of anything else what is wrong with it."""

from __future__ import annotations

import argparse


def named(text: str) -> str:
    """A path; not an empty text, as of a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file or a folder")
    return text


def drift_steps(text: str) -> int:
    """The STEPS of `--fail-on drift:STEPS`."""
    from harness.verdict.results.drift import steps_of

    steps = steps_of(text)
    if steps is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not drift:STEPS, as in drift:1")
    return steps
