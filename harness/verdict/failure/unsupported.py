"""Answers that mean "this target cannot do that", as opposed to "this failed" (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.device.dsp.dsp import Said
from harness.device.lab.facts import Coprocessors
from harness.ground.facts.codes import same_code
from harness.verdict.failure.error import ErrorRecord


@dataclass(frozen=True)
class UnsupportedRule:
    """An answer that a target gives to what it cannot do.

    `api` and `text` are regular expressions: the first must match the whole name, the second be
    found in the message. With `lacks` the answer counts only on a device that shows nothing of that
    processor. On any other device the words tell of a failure. `source` says who saw it.
    """

    api: str
    code: int | None
    text: str
    source: str
    lacks: Literal["dsp", "gpu"] | None = None


EMULATORS: Final = "no phone lacks that; docs/dsp.md says what each emulator lacks"
_CONVERSIONS: Final = {
    0xA6E01A10: "of halves whose scale the earlier result limits, as of a float convolution with "
    "Sigmoid or Tanh",
    0xA6E01910: "of 16-bit operands that the earlier result limits",
    0xA6E01710: "of bytes with bias words that bend the sum",
}
"""HMX's conversions, some operands of which no emulator has, by what is fixed in their words."""
_FIXED: Final = 0xFFE03F3F
_HMX: Final = re.compile(r"HMX instruction ([0-9a-f]{8})\b")

_SETTING_UP = r"Qnn(?:Log|Backend|Device)_create|QnnContext_create\w*"

UNSUPPORTED: Final = (
    UnsupportedRule(
        r"QnnMem_\w+", 1000, "", "libQnnHtp.so for x86-64: `QnnMem API is not supported`"
    ),
    UnsupportedRule(
        r"QnnContext_(getProperty|setConfig)",
        1000,
        "",
        "libQnnHtp.so for x86-64: custom context properties",
    ),
    UnsupportedRule(
        r"QnnContext_createFromBinary",
        5010,
        r"HTP Config option: 2 not supported",
        "libQnnHtp.so for x86-64: registering a group of contexts",
    ),
    UnsupportedRule(
        r"QnnContext_createFromBinaryListAsync",
        1000,
        "",
        "libQnnHtp.so for x86-64: `Backend does not support QnnContext_createFromBinaryListAsync`",
    ),
    UnsupportedRule(
        r"QnnBackend_create|CreateSession",
        4000,
        r"TuningMode must be enabled on x86_64-linux-clang",
        "libQnnGpu.so for x86-64, with or without an OpenCL driver",
    ),
    UnsupportedRule(
        rf"{_SETTING_UP}|CreateSession",
        4000,
        r"No Snapdragon SOC detected",
        "libQnnHtp.so for arm64 on a board that is none of Qualcomm's",
        lacks="dsp",
    ),
    UnsupportedRule(
        rf"{_SETTING_UP}|CreateSession",
        14001,
        r"Failed to load skel",
        "libQnnHtp.so for arm64 on a board without libcdsprpc and fastrpc nodes",
        lacks="dsp",
    ),
    UnsupportedRule(
        r"GetEpDevices",
        None,
        r"offers no device of QNNExecutionProvider",
        "ONNX Runtime with the QNN plug-in on a board where it finds no NPU",
        lacks="dsp",
    ),
    UnsupportedRule(
        r"QnnBackend_create|CreateSession",
        1006,
        r"Invalid OpenCL driver path",
        "libQnnGpu.so for arm64 on a board without an OpenCL driver",
        lacks="gpu",
    ),
)


def emulator_lacks(said: Sequence[Said], error: ErrorRecord | None) -> ErrorRecord | None:
    """What the emulator of a simulated DSP could not do in a process; None if it could do all.

    `error` is what came of it, which says where in the plan that was: a dead DSP fails calls,
    crashes its client or keeps it waiting.
    """
    lacking = [one for one in said if one.kind == "emulator"]
    if not lacking:
        return None
    lines = [
        f"the emulator cannot execute {one.words} ({one.call}: {one.answer}){_meaning(one.words)}"
        for one in lacking
    ]
    found = ErrorRecord.of(message="\n".join([*lines, EMULATORS]))
    if error is None:
        return found
    where = {"api": error.api, "step": error.step, "context": error.context}
    return found.model_copy(update=where).with_line(f"what came of it: {error.message}")


def _meaning(words: str) -> str:
    found = _HMX.search(words)
    kind = _CONVERSIONS.get(int(found[1], 16) & _FIXED) if found is not None else None
    return f": a conversion {kind}" if kind is not None else ""


def is_unsupported(
    error: ErrorRecord,
    coprocessors: Coprocessors | None,
    rules: Sequence[UnsupportedRule] = UNSUPPORTED,
) -> bool:
    """Whether a target said with this error that it cannot do what was asked.

    `coprocessors` is what the device shows of its DSP and GPU, None if that is not known.
    """
    return any(_applies(rule, error, coprocessors) for rule in rules)


def _applies(rule: UnsupportedRule, error: ErrorRecord, coprocessors: Coprocessors | None) -> bool:
    if rule.lacks is not None and (coprocessors is None or getattr(coprocessors, rule.lacks)):
        return False
    return (
        same_code(error.code, rule.code)
        and re.fullmatch(rule.api, error.api or "") is not None
        and re.search(rule.text, error.message) is not None
    )
