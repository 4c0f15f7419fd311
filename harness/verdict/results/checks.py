"""Checks: what a case expected of the target, each with a verdict and figures of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field, JsonValue

from harness.verdict.failure.error import Part, RecordText
from harness.verdict.results.json_value import JsonObject

CheckVerdict = Literal["held", "broken", "unseen"]


class Check(Part):
    """One expectation and what came of it.

    `unseen` means that nothing this target shows could tell. `reason` is a sentence with the
    figures that decided; `figures` has them as numbers, with units in the names.
    """

    name: RecordText
    verdict: CheckVerdict
    reason: RecordText
    figures: JsonObject = Field(default={})


def held(name: str, holds: bool, reason: str, **figures: JsonValue) -> Check:
    """A check that could be decided."""
    verdict: CheckVerdict = "held" if holds else "broken"
    return Check(name=name, verdict=verdict, reason=reason, figures=figures)


def undecided(name: str, reason: str, **figures: JsonValue) -> Check:
    """A check that nothing could decide; records call it `unseen`."""
    return Check(name=name, verdict="unseen", reason=reason, figures=figures)


def broken(checks: Iterable[Check]) -> list[Check]:
    """Those that did not hold."""
    return [check for check in checks if check.verdict == "broken"]


def failure_text(checks: Sequence[Check]) -> str:
    """What is wrong, one line for each broken check; empty if none is."""
    return "\n".join(f"{check.name}: {check.reason}" for check in broken(checks))


def conclusion(checks: Sequence[Check]) -> str:
    """All checks in a line: which held, which broke, which could not be seen."""
    groups = []
    for verdict in ("broken", "held", "unseen"):
        names = [check.name for check in checks if check.verdict == verdict]
        groups += [f"{verdict}: {', '.join(names)}"] if names else []
    return "; ".join(groups)
