"""Chains of the real libQnnHtp.so 2.51.0 for arm64, each explained by what was made to fail.

It ran over a scripted libcdsprpc, and over the real skel of v73 in an emulator
(tests/integration/dsp/chains.py).
"""

import pytest

from tests.integration.dsp.chains import HANGS, MADE, SCRIPTED, WITH_SKEL, recorded
from tests.unit.diagnosis.failure_rows import answer_to

# The library takes the death of one domain for a restart of the DSP, and says so.
RESTARTED = {
    "the domain dies as it maps a graph's memory",
    "the domain dies as it makes the context",
    "the domain dies as memory is mapped",
    "the DSP does not come back",
}
DSP = {
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


def expected_of_dsp(label: str) -> str | None:
    if label in RESTARTED:
        return "dsp-restarted known"
    return "pd-died likely" if label.startswith("the domain dies") else DSP[label]


def expected_of_fastrpc(label: str) -> str | None:
    kind, _, name = label.partition(": ")
    if label in OTHERS:
        return OTHERS[label]
    if kind.startswith("crash"):
        return None
    return "no-unsigned-pd likely" if kind == "unsigned" else OPENING.get(name, UNSAID)


RECORDED = [
    (chain.label, chain.lines, expected(chain.label))
    for file, expected in ((WITH_SKEL, expected_of_dsp), (SCRIPTED, expected_of_fastrpc))
    for chain in recorded(file)
]


@pytest.mark.parametrize(
    ("lines", "expected"), [row[1:] for row in RECORDED], ids=[row[0] for row in RECORDED]
)
def test_a_chain_is_explained_by_what_was_made_to_fail(
    lines: tuple[str, ...], expected: str | None
) -> None:
    assert answer_to("\n".join(lines)) == expected


def test_all_labels_are_recorded_and_none_looks_like_success() -> None:
    dsp = recorded(WITH_SKEL)
    assert [chain.label for chain in dsp] == list(MADE)
    assert all(chain.ended == HANGS or int(chain.ended) > 0 for chain in dsp)
    assert all(chain.lines or chain.ended == HANGS for chain in dsp)
