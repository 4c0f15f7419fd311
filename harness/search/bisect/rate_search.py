"""The search on one axis for where the rate of failures changes: no answer is believed (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from harness.ground.errors.outgoing_text import counted
from harness.search.bisect.answers import GoodOrBad, Question
from harness.search.bisect.axis_state import AxisState
from harness.search.bisect.findings import AxisFinding, Direction, points
from harness.search.bisect.rates import REGRESSION, ChangePlace, Rates, Side

# While nothing seems to change, one run of so many goes to what was run least, not to an end.
_ELSEWHERE: Final = 4
# What is likelier than that counts as likely enough not to look for a change further.
_UNCHANGED: Final = 0.6
# Odds, as a logarithm, at which a version that fits no single change is run again.
_STANDS_OUT: Final = math.log(30)
_TARGETS: Final = (0.5, 0.25, 0.1, 0.05)
_TARGETS_TOLD: Final = 2
_NAMED: Final = 5


def rate_step(state: AxisState, least: float) -> Question | AxisFinding:
    """What to run next, or what was found.

    Each end is run once. While it is likeliest that nothing changed, the ends are run in turn,
    since they tell that soonest. Then comes a version that stands out alone, so that nothing that
    was seen is denied. Else comes the run that is expected to tell most about the place of the
    change, per second of its cost. That goes on until one change is sure enough, or no change by
    `least` or more is left.
    """
    limit = state.spec.bound().limit(wasted=state.evidence.wasted())
    spent = state.evidence.runs >= limit
    number = len(state.names)
    if number < 2:
        return _too_few(state, least)
    undecided = [i for i in state.ends() if not state.tallies[i].told]
    if undecided and not spent:
        said = state.said[undecided[0]]
        why = f"confirm that it is {said}" if said else "an end, to begin with"
        return state.ask(undecided[0], why)
    rates = Rates.of(state.tallies, state.gaps, state.said)
    if not rates.one_change:
        return _more_than_one_change(state, rates, least)
    likeliest, confidence = rates.likeliest(), state.spec.confidence
    error = rates.error(likeliest)
    if error <= 1 - confidence:
        return _change(state, rates, likeliest, 1 - error, least)
    unchanged = rates.no_change > _UNCHANGED
    alone = int(rates.odds_alone.argmax())
    if rates.odds_alone[alone] > _STANDS_OUT and not spent:
        return state.ask(alone, "it stands out from those on both sides of it")
    if unchanged and (error := rates.error_of_none(least)) <= 1 - confidence:
        return _no_change(state, rates, 1 - error, least)
    if spent:
        return _range(state, rates, least)
    if unchanged:
        return _at_the_ends(state)

    def worth(i: int) -> float:
        return round(float(rates.gains[i]) * state.weights[i], 12)

    best = max(range(number), key=lambda i: (worth(i), i))
    chance = rates.chances.max()
    return state.ask(best, f"tells most; the likeliest change stands at {chance:.1%}")


def _at_the_ends(state: AxisState) -> Question:
    told = [tally.told for tally in state.tallies]
    if sum(told) % _ELSEWHERE == _ELSEWHERE - 1:
        least = [i for i, runs in enumerate(told) if runs == min(told)]
        others = [i for i, runs in enumerate(told) if runs > min(told)]
        farthest = max(least, key=lambda i: (min((abs(i - j) for j in others), default=0), i))
        return state.ask(farthest, "run least so far")
    older = told[0] < told[-1]
    return state.ask(0 if older else len(told) - 1, "whether the ends fail equally often")


def _too_few(state: AxisState, least: float) -> AxisFinding:
    which = "no candidate can be tested"
    if state.names:
        which = f"there is only {state.names[0]}, and nothing to compare its failures with"
    notes = (which, *_failures(state))
    return state.finding("undecided", least=least, failed=_failed(state), notes=notes)


def _change(
    state: AxisState, rates: Rates, history: ChangePlace, sure: float, least: float
) -> AxisFinding:
    at = history[1]
    older, newer = rates.sides(at, state.spec.confidence)
    names = state.names
    notes = [
        f"{_share(older)} up to {names[at - 1]}, {_share(newer)} from {names[at]} on "
        f"({_percent(state.spec.confidence)} together)",
        *_failures(state),
    ]
    if older.failed and newer.failed:
        notes.append("versions on both sides fail: good are those that fail less often")
    return state.change(
        state.between(_direction(history), at - 1, at),
        (),
        confidence=sure,
        least=least,
        failed=_failed(state),
        rates=(older, newer),
        notes=tuple(notes),
    )


def _direction(history: ChangePlace) -> Direction:
    return "regression" if history[0] == REGRESSION else "fix"


def _no_change(state: AxisState, rates: Rates, sure: float, least: float) -> AxisFinding:
    """It only holds if there is one change: between two changes versions were hardly run."""
    whole = rates.throughout(state.spec.confidence)
    verdict: GoodOrBad | None = None
    if whole.failed in (0, whole.runs):
        verdict = "bad" if whole.failed else "good"
    return state.finding(
        "no-change",
        verdict=verdict,
        confidence=sure,
        least=least,
        excluded=rates.excluded(state.spec.confidence),
        failed=_failed(state),
        rates=(whole,),
        notes=(*_told(state, rates), *_not_looked_for(state)),
    )


def _not_looked_for(state: AxisState) -> Iterator[str]:
    """What could hide between two ends that are alike."""
    told = [tally.told for tally in state.tallies[1:-1]]
    if told:
        yield (
            f"what came and went between the ends might not show: {len(told) - told.count(0)} of "
            f"{counted(len(told), 'version')} there were run, in {counted(sum(told), 'run')}"
        )


def _range(state: AxisState, rates: Rates, least: float) -> AxisFinding:
    """At the bound: the change lies in the range of the likeliest histories, if they have one."""
    taken, sure = rates.most(state.spec.confidence)
    ways = {way for way, _ in taken}
    notes = [f"{counted(state.evidence.runs, 'run')} did not suffice to be surer"]
    told: dict[str, Any] = {"least": least, "failed": _failed(state)}
    if len(ways) == 1:
        first, last = min(taken), max(taken)
        notes += _told(state, rates)
        found = state.between(_direction(first), first[1] - 1, last[1])
        return state.change(found, (), confidence=sure, notes=tuple(notes), **told)
    changes, chance = 1 - rates.no_change, float(rates.chances.max())
    likeliest = f"that nothing changes is {rates.no_change:.0%} likely"
    if changes >= 0.5:
        likeliest = f"that it changes is {changes:.0%} likely"
        if chance > changes / 2:
            likeliest += f", mostly with {state.names[rates.likeliest()[1]]} ({chance:.0%})"
    notes.append(likeliest)
    notes += _told(state, rates)
    excluded = rates.excluded(state.spec.confidence)
    return state.finding("undecided", excluded=excluded, notes=tuple(notes), **told)


def _more_than_one_change(state: AxisState, rates: Rates, least: float) -> AxisFinding:
    likeliest = rates.likeliest()
    text = (
        "the answers fit no single change of the rate of failures; the one that fits best is a "
        f"{_direction(likeliest)} with {state.names[likeliest[1]]}"
    )
    notes = (text, *_failures(state))
    failed = _failed(state)
    return state.finding("undecided", one_change=False, least=least, failed=failed, notes=notes)


def _failed(state: AxisState) -> dict[str, tuple[int, int]]:
    """How many runs of a version failed, of how many, also if it can no longer be tested."""
    tallies = {name: state.evidence.of((name,)) for name in state.spec.searched()}
    return {name: (one.bad, one.bad + one.good) for name, one in tallies.items() if one.told}


def _told(state: AxisState, rates: Rates) -> Iterator[str]:
    """Which failures there were, which changes are excluded, and what more runs would tell."""
    yield from _failures(state)
    confidence = state.spec.confidence
    excluded = rates.excluded(confidence)
    if excluded is not None:
        sure = _percent(confidence)
        yield f"excluded ({sure}): that the share that fails changes by {points(excluded)} or more"
    if rates.no_change < 0.5:
        more = rates.more_runs(None, confidence)
        if more:
            yield f"some {more} more runs like these would tell whether it changes at all"
        return
    smaller = [one for one in _TARGETS if excluded is None or one < excluded]
    wanted = [(one, rates.more_runs(one, confidence)) for one in smaller[:_TARGETS_TOLD]]
    said = [
        f"by {points(one)} some {more} more runs ({_with(state, one, more)})"
        for one, more in wanted
        if more is not None
    ]
    if said:
        yield f"to exclude a change {', '.join(said)}"


def _with(state: AxisState, least: float, more: int) -> str:
    """The search that makes so many more runs, if it makes so many."""
    repeat = f"rate:{100 * least:.0f}%"
    most = state.spec.model_copy(update={"repeat": repeat, "max_runs": None}).bound().runs
    few = f"more than the {most} of " if state.evidence.runs + more > most else ""
    return f"{few}--repeat {repeat}"


def _failures(state: AxisState) -> Iterator[str]:
    """The versions of which runs failed, those that fail most in front."""
    failed = {name: told for name, told in _failed(state).items() if told[0]}
    if not failed:
        yield "no run failed" if _failed(state) else "no run passed or failed"
        return
    order = sorted(failed, key=lambda name: -failed[name][0] / failed[name][1])
    parts = [f"{name} in {failed[name][0]} of {failed[name][1]}" for name in order[:_NAMED]]
    more = f", and {len(order) - _NAMED} more versions" if len(order) > _NAMED else ""
    never = [runs for bad, runs in _failed(state).values() if not bad]
    others = f"; of others none, in {counted(sum(never), 'run')}" if never else ""
    yield f"failed: {', '.join(parts)}{more}{others}"


def _share(side: Side) -> str:
    """Rounded outwards: the rate lies between what is said, too."""
    low, high = math.floor(100 * side.low), math.ceil(100 * side.high)
    return f"{side.failed} of {side.runs} runs failed ({low}% to {high}%)"


def _percent(confidence: float) -> str:
    return f"{100 * confidence:.4g} %"
