"""Chains that the real library logs when FastRPC fails, each explained by what was made to fail.

They were recorded from libQnnHtp.so 2.51.0 for arm64 over a scripted libcdsprpc
(tests/integration/probe/scripted_fastrpc.py).
"""

from __future__ import annotations

import pytest

from harness.diagnosis.explanation import explain
from tests.integration.probe.scripted_fastrpc import Chain, recorded, scripts
from tests.unit.diagnosis.test_field_logs import lines_of

# What opening the skel came to, and what that is taken for; of all else nothing says why.
OPENING = {
    "AEE_EUNABLETOLOAD": "skel-not-found likely",
    "AEE_ENOSUCHMOD": "skel-not-found possible",
    "AEE_ENOSUCHFILE": "skel-not-found possible",
    "AEE_ERPC": "skel-not-found possible",
    "AEE_ERESOURCENOTFOUND": "domain-refused likely",
    "AEE_EBADSTATE": "pd-died likely",
    "AEE_ENOSUCHSYMBOL": "mixed-libraries likely",
    "AEE_EINVALIDSIGNATURE": "skel-refused possible",
    "AEE_ENOROOTOFTRUST": "skel-refused possible",
    "AEE_EUNSIGNEDMOD": "skel-refused possible",
    "AEE_EINVALIDHASH": "skel-refused possible",
    "AEE_EUNSUPPORTED": "npu-driver possible",
    "AEE_EUNSUPPORTEDAPI": "npu-driver possible",
    "AEE_EQURTBADASID": "no-dsp-session possible",
    "AEE_EITEMBUSY": "npu-busy possible",
    "AEE_EBUSY": "npu-busy possible",
    "AEE_ENOMEMORY": "dsp-memory possible",
    "AEE_EHEAP": "dsp-memory possible",
    "AEE_EIONALLOC": "dsp-memory possible",
    "AEE_ENORPCMEMORY": "dsp-memory possible",
    "AEE_EOUTOFHANDLES": "no-dma-handles possible",
    "AEE_ESTUBSKELVERMISMATCH": "mixed-libraries possible",
}
OTHERS = {
    "the stub is not there": "stub-missing known",
    "libcdsprpc.so is not there": "no-fastrpc known",
    "open: errno 0x68": "pd-died likely",
    "open: errno 0x72": "fastrpc-denied possible",
    "open: errno 0xffffffff": "fastrpc-denied likely",
    "the skel answers nothing that the stub expects": "mixed-libraries likely",
    "that, and the DSP tells nothing of itself": "mixed-libraries likely",
    "that, after a delay": "mixed-libraries likely",
    "crash in the second call of the skel": "mixed-libraries likely",
    # the skel was opened: nothing says that it was not found
    "invoke: AEE_ENOSUCHSYMBOL": "invalid-config possible",
    "invoke: AEE_EUNABLETOLOAD": "skel-not-found possible",
    "invoke: AEE_ERPC": "no-dsp-session possible",
}
UNSAID = "invalid-config possible"


def expected(label: str) -> str | None:
    kind, _, name = label.partition(": ")
    if label in OTHERS:
        return OTHERS[label]
    if kind.startswith("crash"):
        return None
    if kind == "unsigned":
        return "no-unsigned-pd likely"
    return OPENING.get(name, UNSAID)


@pytest.mark.parametrize("chain", recorded(), ids=lambda chain: chain.label)
def test_a_chain_is_explained_by_what_was_made_to_fail(chain: Chain) -> None:
    causes = explain(lines_of("\n".join(chain.lines))).diagnoses
    text = f"{causes[0].id} {causes[0].confidence}" if causes else None
    assert text == expected(chain.label)


def test_all_labels_are_recorded_and_at_least_60_differ() -> None:
    assert [(chain.label, chain.script) for chain in recorded()] == list(scripts().items())
    assert len({(chain.ended, chain.lines) for chain in recorded()}) >= 60
