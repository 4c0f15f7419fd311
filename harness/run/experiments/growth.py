"""Whether what is made and released again and again leaves more behind each time.

The subject of microsoft/onnxruntime#22511.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.contexts.compiler.models import Model
from harness.probe.ort_plan import ort_session_free
from harness.probe.plan import Plan
from harness.run.bench.bench import Bench
from harness.run.experiments.rounds import Disturbed, Rules, settled
from harness.verdict.results.checks import Check, held, undecided
from harness.verdict.results.measurements import Growth, session_growth

# Eight of them are the start; the rest are four threes, or 24 where that was not enough to tell.
_SESSIONS: Final = 20
_MORE_SESSIONS: Final = 80
_MORE_SESSIONS_S: Final = 900.0
BY_EACH: Final = "memory_left_by_each"
BY_ALL: Final = "memory_left_by_all"

LONGER_LOOK: Final[Rules] = dict.fromkeys(
    (BY_EACH, BY_ALL), Disturbed(lambda rounds: rounds[-1], noisy=True)
)


@dataclass(frozen=True)
class GrowthTolerance:
    """What rounds of the same work may leave behind, once the first few are over (bytes).

    `each_bytes`: most of them, each by itself. `all_bytes`: all of them together.
    """

    each_bytes: int
    all_bytes: int


def measure_growth(bench: Bench, model: Model, tolerance: GrowthTolerance) -> None:
    """Makes, runs and releases sessions of a model, and checks what they leave behind.

    Sessions that seem to leave too much, or leave too little to tell it from what comes and goes by
    itself, are made again in a process of its own, four times as many. What these show counts: what
    each session loses, these lose, too, and what happens once does not happen again. Raises
    TargetFailure if a process fails or a check does not hold.
    """
    looks: list[list[Check]] = []

    def measured(before: int) -> list[Check]:
        if before:
            bench.measure(first_look=[check.model_dump() for check in looks[0]])
            plan = _sessions(bench, model, _MORE_SESSIONS)
            observation = bench.run(plan, timeout_s=_MORE_SESSIONS_S)
        else:
            observation = bench.run(_sessions(bench, model, _SESSIONS))
        observation.check()
        growth = session_growth(observation.run.transcript.steps)
        looks.append(judge_growth(growth, tolerance))
        return looks[-1]

    bench.expect(*settled(measured, LONGER_LOOK))


def _sessions(bench: Bench, model: Model, number: int) -> Plan:
    ort, deployed = bench.ort(), bench.model(model)
    once = (*ort.session(0, deployed.file), ort.run(0, deployed), ort_session_free(0))
    return ort.plan(once * number, sessions=1)


def judge_growth(growth: Growth | None, tolerance: GrowthTolerance) -> list[Check]:
    """The checks of a process that made and released sessions.

    Undecided if the device does not tell the memory of a process (None), or if what comes and goes
    would hide a leak.
    """
    if growth is None:
        why = "there are no samples of the process's memory, or too few"
        return [undecided(name, why) for name in (BY_EACH, BY_ALL)]
    return [
        _left(BY_EACH, growth.per_round, growth.noise, tolerance.each_bytes),
        _left(BY_ALL, growth.in_all, growth.came_back, tolerance.all_bytes),
    ]


def _left(name: str, left: int, noise: int, most: int) -> Check:
    reason = f"{left} bytes are left, {most} are tolerated"
    told = {"left_bytes": left, "noise_bytes": noise, "tolerance_bytes": most}
    if left - noise > most:
        return held(name, False, reason, **told)
    if left > most or noise > most:
        return undecided(name, f"{reason}; {noise} bytes come and go: too noisy to tell", **told)
    return held(name, True, reason, **told)
