"""Backends that do not open: each is asked once, and its answer holds for the cases that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from harness.probe.plan import Plan
from harness.probe.plan_runner import ProbeRun
from harness.verdict.failure.verdict import Verdict

_OPENING: Final = frozenset(
    {"backend-load", "system-load", "log-create", "backend-create", "device-create"}
    | {"ort-load", "ort-env", "ort-register-ep"}
)
"""Verbs of what comes before anything that a case is about."""


@dataclass(frozen=True)
class Refusal:
    """How a process ended that could not open a backend."""

    run: ProbeRun
    verdict: Verdict


class Refusals:
    """What a device that a run holds said that it does not open.

    Only an answer counts that makes a case `unsupported`, and that was given to a step by which
    backends are opened. It holds for plans that begin with the very steps that led to it, with
    equal libraries and environment. What failed in any other way, or hung or crashed, is never
    remembered.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Refusal] = {}

    def note(
        self, environment: Mapping[str, str], plan: Plan, refusal: Refusal, where: str
    ) -> None:
        """Remembers an answer if it counts; `where` says what gave it."""
        error = refusal.verdict.error
        if refusal.verdict.outcome != "unsupported" or error is None or error.step is None:
            return
        steps = plan.steps[: error.step + 1]
        if any(step.verb not in _OPENING for step in steps):
            return
        again = error.with_line(f"It was not asked again: {where} has this answer.")
        opening = (*_told(environment), *(step.line() for step in steps))
        self._known[opening] = replace(refusal, verdict=replace(refusal.verdict, error=again))

    def find(self, environment: Mapping[str, str], plan: Plan) -> Refusal | None:
        """What the device answers to a plan, if that was said before."""
        if not self._known:
            return None
        asked = (*_told(environment), *(step.line() for step in plan.steps[: len(_OPENING)]))
        return next((self._known[o] for o in self._known if asked[: len(o)] == o), None)


def _told(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in sorted(environment.items()))
