"""Messages that tell of a cause, and the diagnosis of each of them alone."""

from __future__ import annotations

import re

import pytest

from harness.diagnosis.chain import message_table, read_messages
from harness.diagnosis.rules import own_rules
from tests.messages.binaries import messages_in, origin_of
from tests.messages.corpus import corpus, wrong_answers
from tests.messages.patterns import pattern_of, sample_of

RULES = own_rules()

MESSAGES = corpus()


_GRAPH = {
    *("op-unsupported", "float-unsupported", "graph-prepare-failed", "nodes-not-taken"),
    *("no-such-graph", "tensor-mismatch", "tensor-refused", "stale-handle", "invalid-config"),
}
_CONTEXT = {
    *("damaged-binary", "newer-context", "older-libraries", "other-htp-arch", "other-vtcm-size"),
    *("unknown-soc", "unknown-dsp-arch", "epcontext-incomplete", "skel-refused-context"),
}
_MEMORY = {
    "not-mapped",
    "no-memory",
    "dsp-memory",
    "pd-exhausted",
    "no-channel",
    "vtcm-overflow",
} | {
    *("registered-twice", "spill-fill-too-small"),
}
_SESSION = {
    *("no-fastrpc", "fastrpc-denied", "no-dsp-session", "no-unsigned-pd", "no-further-pd"),
    *("skel-refused", "skel-not-found", "stub-not-loaded", "pd-died", "dsp-restarted", "npu-busy"),
    *("two-copies", "no-channel", "not-mapped", "dsp-library-missing", "adsp-path-colons"),
}
_LIBRARIES = {
    *("library-not-loaded", "backend-not-loaded", "symbol-missing", "page-size", "stub-missing"),
    *("mixed-libraries", "mixed-frameworks", "linker-namespace", "older-libraries", "no-fastrpc"),
}
_LITERT = {"dispatch-missing", "compiler-plugin", "litert-version", "cpu-fallback"}
# What somebody's messages can be about at all: a linker knows no op, a graph's validator no driver.
LABELS = {
    "bionic": _LIBRARIES,
    "glibc": _LIBRARIES,
    "windows": _LIBRARIES,
    "kernel-fastrpc": _SESSION,
    "kernel-glink": _SESSION,
    "kernel-remoteproc": _SESSION,
    "kernel-oom": {"killed-for-memory"},
    "fastrpc": _SESSION,
    "ggml-hexagon": _SESSION | _MEMORY | {"op-unsupported", "mixed-libraries", "npu-driver"},
    "stub": _SESSION | _MEMORY | {"mixed-libraries"},
    "skel": _GRAPH | _CONTEXT | _MEMORY | {"npu-busy", "mixed-libraries", "dsp-restarted"},
    "htp": _GRAPH | _CONTEXT | _MEMORY | _SESSION | {"mixed-libraries"},
    "gpu": _GRAPH
    | {"opencl-driver", "opencl-program", "opencl-call", "gpu-memory", "gpu-offline"}
    | {"damaged-binary", "dsp-restarted", "not-mapped"},
    "cpu": _GRAPH | {"dsp-restarted"},
    "system": _GRAPH | _CONTEXT | {"dsp-restarted", "fastrpc-denied"},
    "genie": _GRAPH | _CONTEXT | _LIBRARIES | {"genie-config", "prompt-too-long"},
    "executorch": _GRAPH
    | _CONTEXT
    | _MEMORY
    | _LIBRARIES
    | {"dlc-fallback", "second-load", "prompt-too-long"},
    "executorch-core": _CONTEXT | _LIBRARIES,
    "litert": _GRAPH | _CONTEXT | _MEMORY | _LIBRARIES | _LITERT,
    "litert-core": _GRAPH | _CONTEXT | _LIBRARIES | _LITERT,
    "ort-qnn": _GRAPH
    | _CONTEXT
    | _MEMORY
    | _LIBRARIES
    | {"no-qnn-provider", "fallback-wanted", "cpu-fallback", "dsp-restarted", "arch-not-set"},
}


def test_no_message_is_answered_by_what_its_origin_cannot_mean() -> None:
    """The labels are of the origins, and were not made of the answers."""
    assert [
        f"{message.cause}: [{message.origin}] {message.pattern}"
        for message in MESSAGES
        if message.cause
        and not any(message.cause in LABELS[origin] for origin in message.origin.split("+"))
    ] == []


def test_every_pattern_of_the_table_of_messages_is_said_by_somebody() -> None:
    message = "\n".join(row.sample for row in MESSAGES)
    idle = [
        pattern
        for patterns in message_table().values()
        for pattern in patterns
        if not re.search(".{0,80}?".join(map(re.escape, pattern.split("*"))), message)
    ]
    assert idle == []
    causes = {rule.id for rule in RULES}
    assert {cause for _, cause in message_table() if cause} <= causes


@pytest.mark.parametrize("row", ["a pattern\tknown", "x\tsure\tno-memory", "x\tknown\ta\tb", ""])
def test_a_row_that_cannot_be_read_is_named(row: str) -> None:
    with pytest.raises(ValueError, match=r"messages\.tsv:3: "):
        read_messages(f"pattern\trole\tcause\nx\tbenign\t\n{row}\n")


def test_causes_of_the_table_are_those_of_rules() -> None:
    assert len({message.pattern for message in MESSAGES}) == len(MESSAGES)
    assert {message.role for message in MESSAGES} == {"known", "consequence", "benign"}
    assert all(bool(message.cause) == (message.role != "benign") for message in MESSAGES)
    assert {message.cause for message in MESSAGES if message.cause} <= {rule.id for rule in RULES}


def test_each_message_is_answered_with_its_cause() -> None:
    assert wrong_answers(MESSAGES) == []


@pytest.mark.parametrize(
    ("text", "pattern", "sample"),
    [
        ("fd %d, %5.2f, 0x%08llx %%", "fd %d, %d, 0x%x %", "fd 7, 7, 0x2f0 %"),
        ("no {} in $0 of {:>4}\n", "no %s in %s of %s", "no some in some of some"),
        ("x" * 100, "x" * 72, "x" * 72),
    ],
)
def test_what_is_put_in_has_a_place_in_a_pattern(text: str, pattern: str, sample: str) -> None:
    assert pattern_of(text) == pattern
    assert sample_of(pattern) == sample


def test_of_a_librarys_strings_those_that_complain_are_taken() -> None:
    data = b"\0".join(
        (
            b"<E> Failed to find PD %u of it",
            b"<I> Failed to find what is not said",
            b"%s:12::ERROR:too many of them",
            b"_ZN4fail3errorEv a b c",
            b"Failed to say a level",
            b"",
        )
    )
    assert list(messages_in(data, levelled=True)) == [
        "Failed to find PD %d of it",
        "too many of them",
    ]
    assert "Failed to say a level" in list(messages_in(data, levelled=False))
    assert origin_of("libQnnHtpV73Skel.so") == ("skel", True)
    assert origin_of("libm.so") is None
