"""What ONNX Runtime says when a call fails, taken apart: its own code, QNN's inside it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.ground.facts.codes import describe, symbol_table

# OrtErrorCode in onnxruntime_c_api.h, by number.
ORT_CODES: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            (
                "ORT_OK",
                "ORT_FAIL",
                "ORT_INVALID_ARGUMENT",
                "ORT_NO_SUCHFILE",
                "ORT_NO_MODEL",
                "ORT_ENGINE_ERROR",
                "ORT_RUNTIME_EXCEPTION",
                "ORT_INVALID_PROTOBUF",
                "ORT_MODEL_LOADED",
                "ORT_NOT_IMPLEMENTED",
                "ORT_INVALID_GRAPH",
                "ORT_EP_FAIL",
                "ORT_MODEL_LOAD_CANCELED",
                "ORT_MODEL_REQUIRES_COMPILATION",
                "ORT_NOT_FOUND",
            )
        )
    )
)

MAX_CHAIN: Final = 40
_MAX_LINE_CHARS: Final = 4000
_LEAST_REPEATED: Final = 20
"""A shorter line may be part of another by chance."""

_SYMBOL: Final = re.compile(r"\bQNN_[A-Z0-9_]*ERROR[A-Z0-9_]*\b")
# "Error code: 6999", "with err 1002", "status 0x3ea", "error: 0x80000406", "err=5005"
_NUMBER: Final = re.compile(
    r"\b(?:err(?:or)?|status|ret(?:urned)?|rc|code)"
    r"(?:[ _]?(?:code|no|num(?:ber)?))?\s*(?:is\b|was\b|of\b)?\s*[:=]?\s*"
    r"(?P<number>0x[0-9a-f]{1,16}|[0-9]{3,10})\b(?![.:/\w])",
    re.I,
)
_LEVEL: Final = re.compile(r"^\s*(?:<[EWIVD]>\s*)+")
# Where in the library a line comes from, in front of it, of a part of it, or behind: of no use to
# whoever compares two versions.
_PLACE_BEHIND: Final = re.compile(r"\s*\[[\w./-]+\.(?:cc|cpp|h|hpp):\d+ [^\]]*\]\s*$")
_PLACE_BEFORE: Final = re.compile(
    r"(?:^|(?<=: ))/?(?:[\w.-]+/)*[\w.-]+\.(?:cc|cpp|h):\d+ "
    r"(?:(?:.*?\)(?:::\S+|(?: const)?(?: \[[^\]]*\])?))? ?(?=[A-Z])"
    r"|[^()]*\([^()]*\)(?: const)?(?: \[[^\]]*\])? (?=\S)|\w+(?:::[\w~]+)+ (?=\S))"
)


@dataclass(frozen=True)
class OrtError:
    """A failed call of ORT's.

    `code` and `name` are ORT's own, which tell the kind of call rather than the cause. `qnn_code`
    is the number of QNN's that the texts hold, `qnn_symbol` its name if they hold that. `chain` is
    everything that was said, the first cause first: with ORT the last text is often about
    something else.
    """

    code: int
    name: str
    qnn_code: int | None
    qnn_symbol: str | None
    chain: tuple[str, ...]


def take_apart(code: int, message: str, logged: Iterable[str] = ()) -> OrtError:
    """What a failed call comes to: its OrtErrorCode and message, and the errors logged meanwhile.

    QNN's code is the one in the message; else the one that was logged last.
    """
    chain = chain_of([*logged, message])
    found = next(filter(None, map(qnn_code_in, [message, *reversed(chain)])), None)
    return OrtError(
        code=code,
        name=ORT_CODES.get(code, "unknown"),
        qnn_code=found[0] if found else None,
        qnn_symbol=found[1] if found else None,
        chain=chain,
    )


def chain_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Each text once, without levels and places in source files; none is part of a later one."""
    lines = list(
        dict.fromkeys(line for text in texts for part in text.splitlines() if (line := plain(part)))
    )
    kept = [
        line
        for line in lines
        if len(line) < _LEAST_REPEATED or not any(line in other for other in lines if other != line)
    ]
    most = MAX_CHAIN - 1
    return tuple(kept[:most] + kept[most:][-1:])


def plain(line: str) -> str:
    """A line of ORT's or QNN's log without its level and where in the library it comes from."""
    text = _LEVEL.sub("", line[:_MAX_LINE_CHARS]).strip()
    return _PLACE_BEFORE.sub("", _PLACE_BEHIND.sub("", text)).strip()


def qnn_code_in(text: str) -> tuple[int, str | None] | None:
    """The QNN code in a text of ORT's or QNN's, and its symbol if that is there; None if none is.

    A number counts if a word such as "error" or "status" announces it and it lies in one of QNN's
    ranges. The ends of a range, such as 6999, are included, since libraries do return them.
    """
    for found in _SYMBOL.finditer(text):
        codes = {symbol: code for code, symbols in symbol_table().items() for symbol in symbols}
        if found[0] in codes:
            return codes[found[0]], found[0]
    for found in _NUMBER.finditer(text):
        raw = int(found["number"], 16 if found["number"][:2].lower() == "0x" else 10)
        if describe(raw).component not in ("none", "unknown"):
            # a DSP error keeps its high bits, which tell it from one of QNN's
            return (raw if describe(raw).component == "dsp" else raw & 0xFFFF), None
    return None
