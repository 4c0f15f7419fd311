"""Whether a pairing of memory types behaved as documented: one check for each behaviour (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.contexts.mem_pairing import DOCUMENTED, Pairing
from harness.probe.transcript import StepResult, Transcript
from harness.results.checks import Check, held, unseen
from harness.results.judge_latency import Latency, LatencyTolerance, same_latency
from harness.results.memory_figures import MemorySamples, memory_samples

_COPY: Final = re.compile(r"\bcop(y|ies|ied)\b", re.I)
_COUNT_UNIT: Final = 4
LATENCY: Final = "steady_latency_same"


@dataclass(frozen=True)
class Tolerances:
    """How far a figure may be from what is expected of it.

    Memory: a part of the I/O's size; what has less than that part counts as nothing.
    """

    memory_part: float = 0.25
    latency: LatencyTolerance = field(default_factory=LatencyTolerance)


@dataclass(frozen=True)
class PairingFigures:
    """What one process with a pairing showed; `copies` is None where its profile shows none.

    `first_us` is the first inference, `steady_us` are those behind ten of them.
    """

    io_bytes: int
    other_bytes: int
    samples: MemorySamples
    first_us: int | None
    steady_us: tuple[int, ...]
    copies: int | None
    digests: tuple[int, ...]

    @property
    def steady(self) -> Latency:
        """The latency of the steady inferences."""
        return Latency(self.steady_us)

    def record(self) -> dict[str, object]:
        """The figures as they stand in a record's measurements."""
        return self.samples.record() | {
            "io_bytes": self.io_bytes,
            "first_inference_us": self.first_us,
            "steady_us": list(self.steady_us),
            "steady_median_us": self.steady.median_us,
            "steady_spread_us": self.steady.spread_us,
            "copies_shown": self.copies,
        }


def pairing_figures(
    transcript: Transcript, metadata: Mapping[str, Any], memory_bytes: int
) -> PairingFigures:
    """Takes the figures out of a process that ran `pairing_plan`.

    `memory_bytes` is all that the metadata says a device needs for the context.
    """
    io_bytes = sum(
        int(tensor.get("bytes", 0))
        for graph in metadata.get("graphs", [])
        for kind in ("inputs", "outputs")
        for tensor in graph.get(kind, [])
    )
    runs = [step for step in transcript.steps if step.verb == "io-run" and step.ok]
    timed = [_numbers(step.data.get("run_us")) for step in runs]
    digests = _numbers(runs[-1].data.get("digests")) if runs else []
    return PairingFigures(
        io_bytes=io_bytes,
        other_bytes=max(0, memory_bytes - io_bytes),
        samples=memory_samples(transcript),
        first_us=timed[0][0] if timed and timed[0] else None,
        steady_us=tuple(timed[2]) if len(timed) > 2 else (),
        copies=_copies(runs),
        digests=tuple(digests),
    )


def judge_pairing(
    pairing: Pairing,
    figures: PairingFigures,
    twin: PairingFigures | None,
    base: PairingFigures | None,
    tolerances: Tolerances,
) -> list[Check]:
    """The checks of a process that came to a good end.

    `twin` is the pairing that is executed alike and prepared the other way: the documentation says
    that it is as fast. `base` is raw memory prepared and executed, the twin where this is `base`
    itself. None for one that this target does not give.
    """
    documented = DOCUMENTED[pairing]
    processes = (figures, twin, base)
    # where any of them shows buffers of the backend's, those that the others lack are not there
    visible = any(one is not None and one.samples.visible for one in processes)
    growth = _Growth(figures, visible, tolerances.memory_part * figures.io_bytes)
    return [
        growth.expected("io_allocated_at_load", "before", "loaded", documented.at_load),
        growth.expected(
            "io_allocated_at_first_inference", "bound", "first", documented.at_first_inference
        ),
        growth.none("io_settled_by_tenth", "first", "tenth"),
        growth.none("io_given_back", "before", "freed"),
        _copied(documented.copied, figures, base),
        same_latency(
            LATENCY,
            figures.steady,
            None if twin is None else twin.steady,
            str(pairing.twin),
            tolerances.latency,
        ),
        _same_outputs(figures, base),
    ]


@dataclass(frozen=True)
class _Growth:
    """What a process's shared buffers grew by; `slack` bytes count as nothing."""

    figures: PairingFigures
    visible: bool
    slack: float

    def expected(self, name: str, start: str, end: str, expected: bool) -> Check:
        """Whether they grew by the I/O's size, or by nothing, as expected.

        With I/O at load, what the context needs besides (weights, spill-fill) may come, too.
        """
        growth, io_bytes = self.figures.samples.growth(start, end), self.figures.io_bytes
        if growth is None or not self.visible:
            return self._blind(name, start, end)
        beside = self.figures.other_bytes if start == "before" else 0
        if expected:
            fits = io_bytes - self.slack <= growth <= io_bytes + beside + self.slack
            wanted = f"the I/O's {io_bytes} bytes"
        else:
            fits, wanted = growth <= beside + self.slack, "nothing"
        return held(
            name,
            fits,
            f"expected {wanted}, shared buffers grew by {growth} bytes from {start} to {end}",
            growth_bytes=growth,
            expected_bytes=io_bytes if expected else 0,
            tolerance_bytes=round(self.slack),
        )

    def none(self, name: str, start: str, end: str) -> Check:
        """Whether they did not grow, whatever is allocated when."""
        growth = self.figures.samples.growth(start, end)
        if growth is None or not self.visible:
            return self._blind(name, start, end)
        reason = f"expected no growth from {start} to {end}, shared buffers grew by {growth} bytes"
        tolerance = round(self.slack)
        return held(
            name, growth <= self.slack, reason, growth_bytes=growth, tolerance_bytes=tolerance
        )

    def _blind(self, name: str, start: str, end: str) -> Check:
        samples = self.figures.samples
        if samples.growth(start, end) is None:
            return unseen(name, f"there is no sample {start} or {end}")
        rss = samples.rss_bytes.get(end, 0) - samples.rss_bytes.get(start, 0)
        why = f"the backend shares no buffers with a DSP here; RSS changed by {rss} bytes"
        return unseen(name, why, rss_growth_bytes=rss)


def _copied(expected: bool, figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "copies_per_inference"
    shows = figures.copies is not None or (base is not None and base.copies is not None)
    if not shows:
        return unseen(name, "no event of the profile tells of copies")
    copies = figures.copies or 0
    wanted = "copies" if expected else "no copies"
    reason = f"expected {wanted}, the profile shows {copies} per inference"
    return held(name, (copies > 0) == expected, reason, copies=copies)


def _same_outputs(figures: PairingFigures, base: PairingFigures | None) -> Check:
    name = "outputs_equal"
    if base is None:
        return unseen(name, "no other pairing gave outputs to compare with")
    same = bool(figures.digests) and figures.digests == base.digests
    return held(
        name, same, f"outputs {'equal' if same else 'differ from'} those of another pairing"
    )


def _copies(runs: Sequence[StepResult]) -> int | None:
    """How many copies the last profile tells of; None if no event of it is about copies."""
    events = [event for step in runs for event in step.data.get("profile_events") or ()]
    found = [
        event
        for event in events
        if isinstance(event, dict) and _COPY.search(str(event.get("name", "")))
    ]
    if not found:
        return None
    values = [(event.get("unit"), event.get("value")) for event in found]
    return sum(
        (value if unit == _COUNT_UNIT else 1)
        for unit, value in values
        if type(value) is int and value > 0
    )


def _numbers(value: object) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, list) else []
