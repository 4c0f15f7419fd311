"""How many contexts fit, and what kind of limit that is (pure: the trials are the caller's).

Separates the three explanations offered in pytorch/executorch#14985: a count of contexts, an
amount of memory (the address space of a protection domain), or memory that is not given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

LimitKind = Literal["bytes", "count", "leak", "none", "mixed"]


@dataclass(frozen=True)
class Trial:
    """One fresh process that tried to keep a number of contexts loaded.

    `loaded` is how many it got to; `ok` whether that was all of them.
    """

    ok: bool
    loaded: int


@dataclass(frozen=True)
class Fit:
    """The largest number that fits, and the smallest seen refused (None: nothing was refused)."""

    fits: int
    refused_at: int | None
    trials: int


def largest_that_fits(attempt: Callable[[int], Trial], cap: int) -> Fit:
    """Finds the largest number in 1..cap for which `attempt` succeeds, by doubling and bisecting.

    Each call of `attempt` is expected to use a process of its own. Where a refused trial says how
    far it got, that number and the next are tried first, so that an honest device needs two trials
    instead of log2(n); a device whose answers contradict its hints is bisected as usual.

    Raises ValueError for a cap below 1.
    """
    if cap < 1:
        raise ValueError(f"cap must be at least 1, not {cap}")
    fits, refused, number, trials = 0, cap + 1, 1, 0
    hints: list[int] = []
    while refused - fits > 1:
        trial = attempt(number)
        trials += 1
        if trial.ok:
            fits = number
        else:
            if refused == cap + 1:
                hints = [trial.loaded, trial.loaded + 1]
            refused = number
        if refused == cap + 1:
            number = min(2 * number, cap)
            continue
        hints = [hint for hint in hints if fits < hint < refused]
        number = hints.pop(0) if hints else (fits + refused) // 2
    return Fit(fits=fits, refused_at=refused if refused <= cap else None, trials=trials)


@dataclass(frozen=True)
class SizePoint:
    """What contexts of one size showed.

    `bytes_per_context` is what the device accounts for one of them: the estimate that the library
    names when it refuses (`estimate_source` "library"), else I/O, constants and spill-fill from
    the binary's metadata ("metadata"). `sequential_loads` is how many were loaded and freed in
    turn in one process before the first was refused; `sequential_tried` how many were tried.
    """

    label: str
    bytes_per_context: int
    estimate_source: Literal["library", "metadata"]
    fits: int
    refused_at: int | None
    sequential_loads: int
    sequential_tried: int

    @property
    def leaks(self) -> bool:
        """Whether loading and freeing in turn was refused, as if nothing were given back."""
        return self.sequential_loads < self.sequential_tried


@dataclass(frozen=True)
class Limit:
    """The conclusion, with the range the budget must lie in (bytes; None where it is not bytes)."""

    kind: LimitKind
    reason: str
    budget_low_bytes: int | None = None
    budget_high_bytes: int | None = None
    count: int | None = None

    def __str__(self) -> str:
        if self.budget_bytes is None or self.uncertainty_bytes is None:
            return f"{self.kind}: {self.reason}"
        budget = f"{self.budget_bytes / 1e9:.3f} GB +/- {self.uncertainty_bytes / 1e9:.3f} GB"
        return f"{self.kind}, {budget}: {self.reason}"

    @property
    def budget_bytes(self) -> int | None:
        """The middle of the range."""
        if self.budget_low_bytes is None or self.budget_high_bytes is None:
            return None
        return (self.budget_low_bytes + self.budget_high_bytes) // 2

    @property
    def uncertainty_bytes(self) -> int | None:
        """Half the width of the range: the budget is `budget_bytes` plus or minus this."""
        if self.budget_low_bytes is None or self.budget_high_bytes is None:
            return None
        return (self.budget_high_bytes - self.budget_low_bytes + 1) // 2


def conclude(points: Sequence[SizePoint]) -> Limit:
    """Says what kind of limit the points show.

    A budget of B bytes lets n contexts of e bytes load exactly when n*e <= B < (n+1)*e, so every
    size that was refused confines B to an interval and every size that was not gives a lower
    bound; if these have a common range the limit is bytes. If instead the same number fits
    whatever the size, it is a count. If contexts freed again still use it up, it is a leak.

    Raises ValueError with fewer than two sizes: one size cannot tell bytes from a count.
    """
    if len({point.bytes_per_context for point in points}) < 2:
        raise ValueError("at least two sizes of context are needed to tell what the limit is")
    leaking = [point for point in points if point.leaks]
    if leaking:
        worst = leaking[0]
        return Limit(
            kind="leak",
            reason=f"{worst.label}: loading and freeing in turn was refused after "
            f"{worst.sequential_loads} of {worst.sequential_tried}",
            count=worst.sequential_loads,
        )
    refused = [point for point in points if point.refused_at is not None]
    if not refused:
        most = max(points, key=lambda point: point.fits * point.bytes_per_context)
        return Limit(
            kind="none",
            reason=f"nothing was refused: {most.fits} contexts of {most.bytes_per_context} bytes "
            "were loaded together",
        )
    low = max(point.fits * point.bytes_per_context for point in points)
    high = min((point.fits + 1) * point.bytes_per_context - 1 for point in refused)
    figures = ", ".join(
        f"{point.fits} x {point.bytes_per_context}"
        + (" fit" if point.refused_at is not None else " fit and more might")
        for point in points
    )
    counts = {point.fits for point in refused}
    same_count = len(counts) == 1 and all(point.fits <= max(counts) for point in points)
    if low <= high and not (same_count and len(refused) > 1):
        return Limit(
            kind="bytes",
            reason=f"one amount of memory explains every size: {figures}",
            budget_low_bytes=low,
            budget_high_bytes=high,
        )
    if same_count:
        return Limit(
            kind="count",
            reason=f"the same number fits whatever the size: {figures}",
            count=max(counts),
        )
    return Limit(kind="mixed", reason=f"neither one budget nor one count explains: {figures}")
