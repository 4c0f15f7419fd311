"""Chains with the DSP's half in them, each explained by what was made to fail.

They were recorded from libQnnHtp.so 2.51.0 for arm64 over the real skel of v73 in an emulator
(tests/integration/dsp/chains.py).
"""

from __future__ import annotations

import pytest

from harness.diagnosis.explanation import explain
from tests.integration.dsp.chains import HANGS, MADE, DspChain, recorded
from tests.unit.diagnosis.test_field_logs import lines_of

# The library takes the death of one domain for a restart of the DSP, and says so.
RESTARTED = {
    "the domain dies as it maps a graph's memory",
    "the domain dies as it makes the context",
    "the domain dies as memory is mapped",
    "the DSP does not come back",
}
EXPECTED = {
    "the DSP is gone as a domain is asked for its state": "pd-died likely",
    "no memory is mapped": "not-mapped known",
    "little can be mapped": "not-mapped known",
    "the skel is not there": "skel-not-found likely",
    "the skel is another arch's": "skel-not-found likely",
    "the skel is the CPU's": "skel-not-found likely",
    "the skel is another version's": "mixed-libraries likely",
    "no session is left": "fastrpc-denied possible",
    "no unsigned domain is given": "no-unsigned-pd possible",
    "no memory as the skel is asked for its build": "invalid-config possible",
    "no queue is made": "no-channel likely",
    "memory without a file": "no-channel likely",
    # the session is refused before a skel is looked for
    "the skel is not there, and no unsigned domain is given": "no-unsigned-pd possible",
    # nothing tells why
    "an execution is never answered": None,
    "the skel never opens": None,
}


def expected(label: str) -> str | None:
    if label in RESTARTED:
        return "dsp-restarted known"
    return "pd-died likely" if label.startswith("the domain dies") else EXPECTED[label]


@pytest.mark.parametrize("chain", recorded(), ids=lambda chain: chain.label)
def test_a_chain_is_explained_by_what_was_made_to_fail(chain: DspChain) -> None:
    causes = explain(lines_of("\n".join(chain.lines))).diagnoses
    assert (f"{causes[0].id} {causes[0].confidence}" if causes else None) == expected(chain.label)


def test_all_labels_are_recorded_and_none_looks_like_success() -> None:
    assert [chain.label for chain in recorded()] == list(MADE)
    assert all(chain.ended == HANGS or int(chain.ended) > 0 for chain in recorded())
    assert all(chain.lines or chain.ended == HANGS for chain in recorded())
