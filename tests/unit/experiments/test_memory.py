"""Several looks at one thing: what only some of them found wrong may have been noise."""

from __future__ import annotations

import pytest

from harness.experiments.memory import over_looks
from harness.results.checks import Check, held, undecided


def check(name: str, verdict: str, look: int) -> Check:
    if verdict == "unseen":
        return undecided(name, f"look {look}")
    return held(name, verdict == "held", f"look {look}", left_bytes=look)


@pytest.mark.parametrize(
    ("verdicts", "measured", "exact"),
    [
        (("held",), "held", "held"),
        (("unseen",), "unseen", "unseen"),
        (("broken",), "broken", "broken"),
        (("broken", "broken"), "broken", "broken"),
        (("broken", "unseen"), "broken", "broken"),
        (("unseen", "held"), "held", "held"),
        (("broken", "held"), "unseen", "broken"),
        (("held", "broken", "broken"), "unseen", "broken"),
    ],
)
def test_what_looks_say_together(verdicts: tuple[str, ...], measured: str, exact: str) -> None:
    looks = [
        [check("memory", verdict, look), check("outputs", verdict, look)]
        for look, verdict in enumerate(verdicts)
    ]
    memory, outputs = over_looks(looks, ["memory"])
    assert (memory.name, memory.verdict) == ("memory", measured)
    assert (outputs.name, outputs.verdict) == ("outputs", exact)
    if "broken" in verdicts:  # the figures of what was wrong stay
        assert memory.figures == outputs.figures
        assert memory.reason.startswith("look ")
