"""Error codes of QNN and ONNX Runtime; levels of profiles and types of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

# First and last code of each range and its component. Source: the MIN and MAX symbols in
# error-codes.tsv.
_RANGES: Final[tuple[tuple[int, int, str], ...]] = (
    (1000, 1999, "common"),
    (2000, 2999, "property"),
    (3000, 3999, "op_package"),
    (4000, 4999, "backend"),
    (5000, 5999, "context"),
    (6000, 6999, "graph"),
    (7000, 7999, "tensor"),
    (8000, 8999, "mem"),
    (9000, 9999, "signal"),
    (10000, 10999, "error"),
    (11000, 11999, "log"),
    (12000, 12999, "profile"),
    (13000, 13999, "perf_infrastructure"),
    (14000, 14999, "device"),
    (15000, 15999, "global_config"),
    (30000, 49999, "system"),
    (60000, 60999, "interface"),
)
RANGE_ENDS: Final = tuple(last for _, last, _ in _RANGES)
"""The last code of each range, which libraries return although it has no meaning (6999)."""

# Errors of the DSP's runtime arrive as 0x80000400 + n.
DSP_FIRST: Final = 0x80000400
_DSP_LAST: Final = 0x80000FFF

_GPU_FIRST: Final = 10002
_GPU_NAMES: Final = (
    "BAD_ENVIRONMENT_VARIABLE BAD_MEM_ALLOC BAD_MEM_DEALLOC DOES_NOT_EXIST FAILED_CREATION "
    "INSUFFICIENT_SIZE INVALID_ARG INVALID_HANDLE INVALID_NODE INVALID_SIZE INVALID_TYPE "
    "NULL_INSTANCE OPENCL OP_PACKAGE_NOT_FOUND OP_PACKAGE_REGISTRATION_FAILED "
    "OP_PACKAGE_UNSUPPORTED_VERSION UNSUPPORTED ALREADY_EXISTS IMMUTABLE INVALID_VALUE "
    "OP_PACKAGE_MISSING_PARAM OP_PACKAGE_FAILED INCOMPATIBLE_DEVICE INVALID_TENSOR "
    "INSUFFICIENT_BUFFER OVERFLOW INVALID_VERSION UNSUPPORTED_PLATFORM OP_PACKAGE_DUPLICATE_PARAM "
    "UNPRODUCED_TENSOR OPENGL TARGET_SERVER"
)
GPU_ERRORS: Final[Mapping[int, str]] = MappingProxyType(
    {number: f"GPU_ERROR_{name}" for number, name in enumerate(_GPU_NAMES.split(), _GPU_FIRST)}
)
"""The GPU library's own codes, only in its log lines. The names are those in libQnnGpu.so, in that
order; 13 of the codes were seen beside their name (QNN 2.47.0 to 2.51.0, x86-64)."""

_BOUNDARY = re.compile(r"_(?:MIN|MAX)_?ERROR$")
_MAX = re.compile(r"_MAX_?ERROR$")


@dataclass(frozen=True)
class CodeInfo:
    """An error code with its component and names.

    `raw` is the number as returned and `code` its significant part: the low 16 bits, or n of a DSP
    error 0x80000400 + n. `symbols` are all names of the code, `symbol` the one that fits the call;
    `note` says so if the number has no meaning.
    """

    raw: int
    code: int
    component: str
    symbols: tuple[str, ...]
    symbol: str | None
    note: str | None = None

    @property
    def hex(self) -> str:
        return hex(self.raw)


def describe(raw: int, *, api: str | None = None) -> CodeInfo:
    """Explain a code returned by `api` (e.g. QnnContext_createFromBinary).

    Several components share numbers: 1002 is QNN_COMMON_ERROR_MEM_ALLOC and, with the same number,
    QNN_CONTEXT_ERROR_MEM_ALLOC and six more. The component that owns the range wins, as in the
    libraries' own QnnError_getMessage (checked with 2.47.0 and 2.51.0), then that of the API
    called. A symbol in the library's own message is still better: callers that have it keep it.
    """
    if DSP_FIRST <= raw & 0xFFFFFFFF <= _DSP_LAST:
        number = (raw & 0xFFFFFFFF) - DSP_FIRST
        name, _ = dsp_errors().get(number, (None, ""))
        return CodeInfo(raw, number, "dsp", (name,) if name else (), name)
    code = raw & 0xFFFF
    if code == 0:
        return CodeInfo(raw, 0, "none", ("QNN_SUCCESS",), "QNN_SUCCESS")
    component = next((name for low, high, name in _RANGES if low <= code <= high), "unknown")
    symbols = symbol_table().get(code, ())
    meaningful = [symbol for symbol in symbols if not _BOUNDARY.search(symbol)]
    return CodeInfo(
        raw=raw,
        code=code,
        component=component,
        symbols=symbols,
        symbol=_choose(meaningful or symbols, component, api),
        note=None if meaningful else _note(symbols, component),
    )


def same_code(raw: int | None, other: int | None) -> bool:
    """Return whether two numbers are the same code: QNN's by the low 16 bits, the DSP's by all."""
    return _significant(raw) == _significant(other)


def _significant(raw: int | None) -> int | None:
    if raw is None or DSP_FIRST <= raw & 0xFFFFFFFF <= _DSP_LAST:
        return raw if raw is None else raw & 0xFFFFFFFF
    return raw & 0xFFFF


def unsigned(number: int) -> int:
    """Return a code as it was before a program printed it signed, or widened it to 64 bits."""
    low = number & 0xFFFFFFFF
    is_dsp = DSP_FIRST <= low <= _DSP_LAST and number >> 32 in (-1, 0, 0xFFFFFFFF)
    return low if is_dsp else abs(number)


@cache
def dsp_errors() -> Mapping[int, tuple[str, str]]:
    """Return {number: (name, meaning)} from qualcomm/fastrpc's AEEStdErr.h (read on first use)."""
    text = files("harness.core").joinpath("dsp-errors.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in reversed(text.splitlines()[1:]))
    return MappingProxyType({int(code, 0): (name, meaning) for code, name, meaning in rows})


@cache
def symbol_table() -> Mapping[int, tuple[str, ...]]:
    """Return {code: symbols} from the table shipped beside this module (read on first use)."""
    text = files("harness.core").joinpath("error-codes.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines()[1:] if line)
    return MappingProxyType({int(code): tuple(symbols.split()) for code, symbols in rows})


def _choose(symbols: Sequence[str], component: str, api: str | None) -> str | None:
    # all parts of the system library share one range: only the API distinguishes them
    match = re.match(r"Qnn([A-Z][A-Za-z]*)_", api or "")
    # QnnSystemContext_getMetadata -> SYSTEM_CONTEXT
    called = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", match[1]) if match else ""
    owners = [called] if component == "system" else [component, called]
    for owner in owners:
        prefix = "QNN_HTP_PERF_" if owner == "perf_infrastructure" else f"QNN_{owner.upper()}_"
        for symbol in symbols:
            if owner and symbol.startswith(prefix):
                return symbol
    return symbols[0] if symbols else None


def _note(symbols: tuple[str, ...], component: str) -> str:
    if any(_MAX.search(symbol) for symbol in symbols):
        return f"end of the {component} range, carries no cause"
    if symbols:
        return f"start of the {component} range, carries no cause"
    return "no meaning is assigned to this number"


# OrtErrorCode in onnxruntime_c_api.h, by number.
_ORT_NAMES: Final = (
    "ORT_OK ORT_FAIL ORT_INVALID_ARGUMENT ORT_NO_SUCHFILE ORT_NO_MODEL ORT_ENGINE_ERROR "
    "ORT_RUNTIME_EXCEPTION ORT_INVALID_PROTOBUF ORT_MODEL_LOADED ORT_NOT_IMPLEMENTED "
    "ORT_INVALID_GRAPH ORT_EP_FAIL ORT_MODEL_LOAD_CANCELED ORT_MODEL_REQUIRES_COMPILATION "
    "ORT_NOT_FOUND"
)
ORT_CODES: Final[Mapping[int, str]] = MappingProxyType(dict(enumerate(_ORT_NAMES.split())))

MAX_CHAIN: Final = 40
_MAX_LINE_CHARS: Final = 4000
_LEAST_REPEATED: Final = 20
"""A shorter line may be part of another by chance."""

_SYMBOL: Final = re.compile(r"\bQNN_[A-Z0-9_]*ERROR[A-Z0-9_]*\b")
# "Error code: 6999", "with err 1002", "status 0x3ea", "error: 0x80000406", "err=5005"
_NUMBER: Final = re.compile(
    r"\b(?:err(?:or)?|status|ret(?:urned)?|rc|code)"
    r"(?:[ _]?(?:code|no|num(?:ber)?))?\s*+(?:is\b|was\b|of\b)?\s*+[:=]?\s*+"
    r"(?P<number>0x[0-9a-f]{1,16}|[0-9]{3,10})\b(?![.:/\w])",
    re.I,
)
_LEVEL: Final = re.compile(r"^\s*(?:<[EWIVD]>\s*)+")
# The source location in a line, before it, before a part of it or after it: it only gets in the way
# of comparing two versions.
_PLACE_BEHIND: Final = re.compile(r"\s*\[[\w./-]+\.(?:cc|cpp|h|hpp):\d+ [^\]]*\]\s*$")
_PLACE_BEFORE: Final = re.compile(
    r"(?:^|(?<=: ))/?(?:[\w.-]+/)*[\w.-]+\.(?:cc|cpp|h):\d+ "
    r"(?:(?:.*?\)(?:::\S+|(?: const)?(?: \[[^\]]*\])?))? ?(?=[A-Z])"
    r"|[^()]*\([^()]*\)(?: const)?(?: \[[^\]]*\])? (?=\S)|\w+(?:::[\w~]+)+ (?=\S))"
)


@dataclass(frozen=True)
class OrtError:
    """A failed call of ORT.

    `code` and `name` are ORT's own, which name the kind of call rather than the cause. `qnn_code`
    is the QNN code in the texts, `qnn_symbol` its name if they have that. `chain` is every message,
    the first cause first: ORT's last message is often about something else.
    """

    code: int
    name: str
    qnn_code: int | None
    qnn_symbol: str | None
    chain: tuple[str, ...]


def parse_ort_error(code: int, message: str, logged: Iterable[str] = ()) -> OrtError:
    """Parse a failed call's OrtErrorCode and message, and the errors logged meanwhile.

    The QNN code is the one in the message, else the one that was logged last.
    """
    chain = chain_of([*logged, message])
    qnn_code = next(filter(None, map(qnn_code_in, [message, *reversed(chain)])), None)
    return OrtError(
        code=code,
        name=ORT_CODES.get(code, "unknown"),
        qnn_code=qnn_code[0] if qnn_code else None,
        qnn_symbol=qnn_code[1] if qnn_code else None,
        chain=chain,
    )


def chain_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return each text once, without log levels and source locations, and no part of another."""
    lines = list(
        dict.fromkeys(line for text in texts for part in text.splitlines() if (line := plain(part)))
    )
    distinct = [
        line
        for line in lines
        if len(line) < _LEAST_REPEATED or not any(line in other for other in lines if other != line)
    ]
    most = MAX_CHAIN - 1
    return tuple(distinct[:most] + distinct[most:][-1:])


def plain(line: str) -> str:
    """Return a line of ORT's or QNN's log without its level and source location."""
    text = _LEVEL.sub("", line[:_MAX_LINE_CHARS]).strip()
    return _PLACE_BEFORE.sub("", _PLACE_BEHIND.sub("", text)).strip()


def qnn_code_in(text: str) -> tuple[int, str | None] | None:
    """Return the QNN code in a text of ORT or QNN, and its symbol if the text has it; or None.

    A number counts if a word such as "error" or "status" precedes it and it lies in one of QNN's
    ranges. The ends of a range, such as 6999, are included, since libraries do return them.
    """
    for match in _SYMBOL.finditer(text):
        codes = {symbol: code for code, symbols in symbol_table().items() for symbol in symbols}
        if match[0] in codes:
            return codes[match[0]], match[0]
    for match in _NUMBER.finditer(text):
        raw = int(match["number"], 16 if match["number"][:2].lower() == "0x" else 10)
        if describe(raw).component not in ("none", "unknown"):
            # a DSP error keeps its high bits, which distinguish it from a QNN code
            return (raw if describe(raw).component == "dsp" else raw & 0xFFFF), None
    return None


ProfileAsked = Literal["basic", "ops"]
PROFILES: Final[tuple[ProfileAsked, ...]] = get_args(ProfileAsked)

UNITS: Final[Mapping[object, str]] = MappingProxyType(
    {1: "us", 2: "bytes", 3: "cycles", 4: "count"}
)
KINDS: Final[Mapping[object, str]] = MappingProxyType(
    {100: "init", 300: "finalize", 400: "execute", 404: "node"}
)


TensorMemory = Literal["raw", "memhandle"]
TENSOR_MEMORIES: Final[tuple[TensorMemory, ...]] = get_args(TensorMemory)


class Documented(NamedTuple):
    """The documented handling of I/O memory: time of allocation, and copies at each inference."""

    at_load: bool
    at_first_inference: bool
    copied: bool


DOCUMENTED: Final[Mapping[tuple[TensorMemory, TensorMemory], Documented]] = MappingProxyType(
    {
        ("raw", "raw"): Documented(True, False, True),
        ("raw", "memhandle"): Documented(True, False, False),
        ("memhandle", "raw"): Documented(False, True, True),
        ("memhandle", "memhandle"): Documented(False, False, False),
    }
)
"""Keyed by how a context was prepared and how it is executed."""
