"""The scheduler of the farm in simulated time: how long a farm would take, and how long it must."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.run.scheduling.scheduling import Scheduler, Waiting

Needs = frozenset[str]
NONE: Needs = frozenset()


def needs_of(one: Waiting) -> Needs:
    """The kinds of devices that a case of a model can run on."""
    assert isinstance(one.needs, frozenset)
    return one.needs


@dataclass(frozen=True)
class Farm:
    """What is simulated: `kinds` has each device's kind, `cases` what to run.

    `seconds` is how long each case really takes, by its number: `Waiting.seconds` is a guess. On a
    device that is among `paces` it takes so many times as long.
    """

    kinds: Mapping[str, str]
    cases: Sequence[Waiting]
    seconds: Sequence[float]
    paces: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def random(
        cls, seed: int, *, devices: int, cases: int, kinds: int, needs: int, guess: float = 0.2
    ) -> Farm:
        """A farm by chance: some kinds are rare, some cases long; guesses are off by `guess`."""
        chance = random.Random(seed)
        names = [f"kind{number}" for number in range(kinds)]
        common = [0.02 + chance.random() ** 2 for _ in names]
        of = names[:devices] + chance.choices(names, common, k=max(0, devices - kinds))
        there = sorted(set(of))
        groups = [
            frozenset(chance.sample(there, chance.randint(1, len(there)))) for _ in range(needs)
        ]
        asked = [0.02 + chance.random() for _ in groups]
        seconds = [2 * chance.lognormvariate(0, 1) for _ in range(cases)]
        waiting = [
            Waiting(
                number,
                chance.choices(groups, asked)[0],
                seconds[number] * chance.lognormvariate(0, guess),
                chance.randrange(40),
            )
            for number in range(cases)
        ]
        return cls({f"device{number}": kind for number, kind in enumerate(of)}, waiting, seconds)


@dataclass
class Trouble:
    """What goes wrong: each attempt fails with some chance, and its device is away for a while."""

    chance: float = 0.0
    away_s: float = 20.0
    random: random.Random = field(default_factory=lambda: random.Random(0))


@dataclass
class Day:
    """What came of it, in seconds.

    `of_case` is how long each case took with all attempts, `present` are the times in which each
    kind had devices, `work` what was really run for each needs, attempts in vain included;
    `decisions` is what each took this computer.
    """

    makespan: float = 0.0
    ran: list[int] = field(default_factory=list)
    work: dict[Needs, float] = field(default_factory=dict)
    of_case: dict[int, float] = field(default_factory=dict)
    present: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    decisions: list[float] = field(default_factory=list)


def simulate(farm: Farm, trouble: Trouble | None = None) -> Day:
    """Runs all cases; a device that fails gives its case back, and joins again later."""
    trouble, day = trouble or Trouble(), Day()
    clock = [0.0]
    scheduler = Scheduler(lambda: clock[0])
    took: dict[str, float] = {}
    events: list[tuple[float, str, Waiting | None, bool]] = []
    idle: dict[str, None] = {}
    since: dict[str, float] = {}

    def ask(device: str, now: float) -> None:
        begin = time.perf_counter()
        one = scheduler.next(device)
        day.decisions.append(time.perf_counter() - begin)
        if one is None:
            idle[device] = None
            return
        idle.pop(device, None)
        takes = farm.seconds[one.case] * farm.paces.get(device, 1.0)
        fails = trouble.random.random() < trouble.chance
        takes *= trouble.random.random() if fails else 1.0
        took[device] = takes
        day.work[needs_of(one)] = day.work.get(needs_of(one), 0.0) + takes
        day.of_case[one.case] = day.of_case.get(one.case, 0.0) + takes
        heapq.heappush(events, (now + takes, device, one, fails))

    def join(device: str, now: float) -> None:
        scheduler.join(device, farm.kinds[device])
        since[device] = now
        ask(device, now)

    for one in farm.cases:
        scheduler.add(one)
    for device in farm.kinds:
        scheduler.join(device, farm.kinds[device])
        since[device] = 0.0
    for device in farm.kinds:
        ask(device, 0.0)
    while events and len(day.ran) < len(farm.cases):
        now, device, case, fails = heapq.heappop(events)
        clock[0] = now
        if case is None:
            join(device, now)
        elif fails:
            scheduler.leave(device)
            day.present.setdefault(farm.kinds[device], []).append((since.pop(device), now))
            heapq.heappush(events, (now + trouble.away_s, device, None, False))
            tried = case.not_on | {device}
            others = any(farm.kinds[name] in needs_of(case) for name in farm.kinds.keys() - tried)
            scheduler.add(replace(case, not_on=tried) if others else replace(case, not_on=NONE))
            for other in list(idle):
                ask(other, now)
        else:
            scheduler.finished(device, case.case, took[device])
            day.ran.append(case.case)
            day.makespan = now
            ask(device, now)
            for other in list(idle) if farm.paces else ():
                ask(other, now)
    for device, begin in since.items():
        day.present.setdefault(farm.kinds[device], []).append((begin, float("inf")))
    return day


def bound(day: Day) -> float:
    """No scheduler whatever could have done this work on these devices in less time (seconds).

    The work of each needs may be cut into any pieces, and all of it is known from the start; but a
    case is not on two devices at once.
    """
    low = max(day.of_case.values(), default=0.0)
    high = max(day.makespan, low)
    if _feasible(day, low):
        return low
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        if _feasible(day, middle):
            high = middle
        else:
            low = middle
    return high


def _feasible(day: Day, end: float) -> bool:
    import numpy as np
    from scipy.optimize import linprog

    kinds = sorted(day.present)
    room = [
        sum(max(0.0, min(until, end) - begin) for begin, until in day.present[kind])
        for kind in kinds
    ]
    groups = list(day.work)
    columns = len(groups) * len(kinds)
    at_most, equal = np.zeros((len(kinds), columns)), np.zeros((len(groups), columns))
    limits = []
    for row, needs in enumerate(groups):
        for column, kind in enumerate(kinds):
            where = row * len(kinds) + column
            equal[row, where] = at_most[column, where] = 1
            limits.append((0, None if kind in needs else 0))
    work = [day.work[needs] for needs in groups]
    found = linprog(
        np.zeros(columns), A_ub=at_most, b_ub=room, A_eq=equal, b_eq=work, bounds=limits
    )
    return bool(found.status == 0)


def figures(sizes: Sequence[tuple[int, int]], seed: int = 1) -> Iterator[dict[str, float]]:
    """Makespan beside its bound, and the 99th percentile of a decision, for (devices, cases)."""
    for devices, cases in sizes:
        for chance in (0.0, 0.02):
            farm = Farm.random(seed, devices=devices, cases=cases, kinds=12, needs=30)
            day = simulate(farm, Trouble(chance, random=random.Random(seed)))
            least = bound(day)
            decided = sorted(day.decisions)
            yield {
                "devices": devices,
                "cases": cases,
                "failing": chance,
                "makespan_s": day.makespan,
                "bound_s": least,
                "ratio": day.makespan / least,
                "decision_p99_ms": 1000 * decided[int(0.99 * (len(decided) - 1))],
            }


def plot(rows: Sequence[dict[str, float]]) -> str:
    """`figures` as SVG: by devices, how much longer than its bound the whole takes, in percent."""
    wide, high, left, low = 640, 300, 56, 250
    most = max(1.0, *(100 * (row["ratio"] - 1) for row in rows))
    top = math.log10(max(row["devices"] for row in rows))

    def at(row: dict[str, float]) -> tuple[float, float]:
        x = left + (wide - left - 70) * math.log10(row["devices"]) / top
        return x, low - (low - 40) * 100 * (row["ratio"] - 1) / most

    colours = {0.0: "#2a6fb0", 0.02: "#b0532a"}
    said = {0.0: "no device fails", 0.02: "2 % of cases lose their device"}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
        f'<path d="M{left} 40V{low}H{wide - 20}" fill="none" stroke="#888"/>',
        f'<text x="{left}" y="22">Makespan above the lower bound (percent), by devices</text>',
    ]
    for part in (0.0, 0.5, 1.0):
        y = low - (low - 40) * part
        lines.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{most * part:.2g}</text>')
    for number, (chance, colour) in enumerate(colours.items()):
        own = [row for row in rows if row["failing"] == chance]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, own))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        for row in own:
            x, y = at(row)
            percent = 100 * (row["ratio"] - 1)
            lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}">')
            lines.append(f"<title>{percent:.2f} %</title></circle>")
            if not chance:
                text = f"{row['devices']:.0f} / {row['cases']:.0f}"
                lines.append(f'<text x="{x:.1f}" y="{low + 18}" text-anchor="middle">{text}</text>')
        y = 44 + 18 * number
        lines.append(f'<text x="{wide - 20}" y="{y}" text-anchor="end" fill="{colour}">')
        lines.append(f"{said[chance]}</text>")
    lines.append(f'<text x="{wide - 20}" y="{high - 8}" text-anchor="end">devices / cases</text>')
    return "\n".join([*lines, "</svg>", ""])
