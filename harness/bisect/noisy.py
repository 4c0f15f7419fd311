"""The next step on one axis when answers may be wrong (pure)."""

from __future__ import annotations

from harness.bisect.findings import Finding
from harness.bisect.history import REGRESSION, Histories
from harness.bisect.line import Ask, Line


def decide(line: Line) -> Ask | Finding:
    """What to run next, or what was found.

    The ends once each, then always the run that is expected to tell most about where the change
    is, per second of its cost, until one history is sure enough. When the bound is reached, the
    range that holds the change with the wanted confidence is all that can be said.
    """
    limit = line.bound.limit(wasted=line.evidence.wasted())
    number = len(line.names)
    if number < 2:
        which = f"only {line.names[0]}" if number else "no candidate"
        return line.finding(Finding("undecided", notes=(f"{which} can be tested",)))
    weighed = line.histories()
    way, k, chance = weighed.best()
    sure = 1 - weighed.error(way, k)
    unseen = [i for i in line.ends() if not line.tallies[i].told]
    if line.evidence.runs < limit and unseen:
        said = line.said[unseen[0]]
        why = f"confirm that it is {said}" if said else "an end, to begin with"
        return Ask(unseen[0], why)
    if not weighed.one_change:
        return _more_than_one_change(line, weighed)
    if sure >= line.spec.confidence:
        return _sure(line, way, k, sure)
    if line.evidence.runs >= limit:
        return _range(line, weighed)

    def worth(i: int) -> float:
        return round(float(weighed.gains[i]) * line.weights[i], 12)

    best = max(range(number), key=lambda i: (worth(i), i))
    return Ask(best, f"tells most; the likeliest answer stands at {chance:.1%}")


def _sure(line: Line, way: int, k: int, sure: float) -> Finding:
    if way == REGRESSION and k in (0, len(line.names)):
        verdict = "good" if k else "bad"
        notes = [
            f"{name} was said to be {said}"
            for name, said in zip(line.names, line.said, strict=True)
            if said not in (None, verdict)
        ]
        return line.finding(
            Finding(
                "no-change",
                verdict="good" if k else "bad",
                confidence=sure,
                notes=tuple(notes),
            )
        )
    return _change(line, way, k - 1, k, sure, ())


def _range(line: Line, weighed: Histories) -> Finding:
    """At the bound: the change lies in the range of the likeliest histories, if they have one."""
    taken, sure = weighed.most(line.spec.confidence)
    ways = {way for way, _ in taken}
    ks = [k for _, k in taken]
    note = f"{line.evidence.runs} runs did not suffice to be surer"
    if len(ways) > 1 or min(ks) < 1 or max(ks) >= len(line.names):
        way, k, best = weighed.best()
        if way == REGRESSION and k in (0, len(line.names)):
            likeliest = f"all are {'good' if k else 'bad'}"
        else:
            likeliest = f"a change with {line.names[k]}"
        text = f"{note}; the likeliest ({best:.0%}): {likeliest}"
        return line.finding(Finding("undecided", notes=(text,)))
    return _change(line, ways.pop(), min(ks) - 1, max(ks), sure, (note,))


def _change(
    line: Line, way: int, left: int, right: int, sure: float, notes: tuple[str, ...]
) -> Finding:
    between = line.between(left, right)
    return line.finding(
        Finding(
            kind="range" if between else "change",
            direction="regression" if way == REGRESSION else "fix",
            before=line.names[left],
            after=line.names[right],
            between=between,
            confidence=sure,
            notes=notes,
        )
    )


def _more_than_one_change(line: Line, weighed: Histories) -> Finding:
    way, k, _ = weighed.best()
    text = "the answers fit no single change"
    if 0 < k < len(line.names):
        what = "regression" if way == REGRESSION else "fix"
        text += f"; the one that fits best is a {what} with {line.names[k]}"
    return line.finding(Finding("undecided", one_change=False, notes=(text,)))
