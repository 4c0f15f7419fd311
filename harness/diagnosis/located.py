"""The place of a failure in a log: its first line, and the facts that this line tells (pure).

The same number means another thing in a line of FastRPC, of the kernel and of QNN.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import takewhile
from typing import Final

from harness.core.error_codes import (
    DSP_FIRST,
    CodeInfo,
    describe,
    dsp_errors,
    symbol_table,
    unsigned,
)
from harness.core.json_record import Part
from harness.diagnosis.error_chain import is_benign, link_of
from harness.diagnosis.error_record import Number
from harness.diagnosis.line_patterns import first_name, only_pattern
from harness.diagnosis.log_reader import (
    API,
    CLIENT,
    CRASHES,
    FAILS,
    KERNEL,
    MAX_LINES,
    OURS,
    QUIET,
    LogText,
)

OUT_OF_SCOPE: Final = ("opencl", "llama.cpp", "other")
"""Components of others, with which explain does not deal."""

_LATER: Final = 20
"""A call or a code so many lines after the first one of a failure belongs to it."""

_NUMBER: Final = (
    r"(?P<number>-?(?:0x[0-9a-f]{1,16}|\d{1,20}))\b(?![.:]?\w|[.]\d| ?(?:[KMG]i?B|bytes?|m?s)\b)"
)
_WORD: Final = (
    r"\b(?:err(?:ors?)?(?:[ _]?(?:code|num(?:ber)?))?|status|ret(?:urn(?:ed|s)?)?|rc|code"
    r"|fail(?:ed|s|ure)?|exits|and)(?:\W{0,4}(?:is|was|of|with)\b)?[\s:=(,']{0,3}"
)
_NAMED_ERROR: Final = re.compile(_WORD + _NUMBER, re.I)
_MARKED: Final = re.compile(rf"(?:{_WORD}|=|,|:(?=\s)|\()\s{{0,2}}{_NUMBER}", re.I)
_ANYWHERE: Final = re.compile(rf"(?<![\w.+/-]){_NUMBER}", re.I)
_NAME: Final = re.compile(r"\b(?:QNN|AEE)_[A-Z0-9_]+\b")
_RETURNS: Final = re.compile(r"\b(?:return(?:s|ed)|exits|rc|status|Qnn[A-Z]\w+_\w+ ?=)[\W_]")
# Lines with numbers of FastRPC: QNN's transport hands them on.
_RPC: Final = re.compile(r"rpc status|DspTransport\.\w+|\bqnn_open\b")
# The sources of older versions print the number with %x.
_BARE_HEX: Final = re.compile(r"\.c:\d+: ?Error (?P<number>[0-9a-f]{1,3}):")
_ERRNO: Final = re.compile(r"(?:error|failed|:)[ :(]{0,3}-(?P<number>\d{1,3})\b")


class LocatedCode(Part):
    """A code in a log, as it is meant in its line; `meaning` is that of its name."""

    code: Number
    hex: str
    symbol: str | None
    component: str
    meaning: str | None


class Located(Part):
    """The first line of a failure in a log, counted from 1, and what it and the next ones tell.

    `component` wrote the line (`other` if unknown); `in_scope` is false if QNN, ONNX Runtime's
    provider, ExecuTorch, LiteRT, Genie, FastRPC, the linker and the kernel have no part in it.
    `phase` is link, boot, setup, load, compose, prepare, finalize, register or execute, `api` the
    call or the step that failed, `process` the number of its process.
    """

    line: int
    text: str
    component: str
    in_scope: bool
    phase: str | None = None
    api: str | None = None
    code: LocatedCode | None = None
    process: int | None = None


def locate(lines: Sequence[LogText], process: int | None = None) -> Located | None:
    """Return the first line of a failure, of this process or the system if it is known.

    A line of another component counts if no line is of ours, or if it tells of a crash.
    """
    system = (None, KERNEL)
    mine = [line for line in lines if not process or line.origin.process in (process, *system)]
    failing = []
    for line in filter(is_failure, mine):
        if component_of(line.text) not in OUT_OF_SCOPE:
            return located_at(line, mine)
        failing.append(line)
    ours = (line for line in mine if OURS.search(line.text) or CLIENT.search(line.text))
    if any(component_of(line.text) not in OUT_OF_SCOPE for line in ours):
        failing = [line for line in failing if CRASHES.search(line.text)]
    return located_at(failing[0], mine) if failing else None


def located_at(line: LogText, lines: Sequence[LogText]) -> Located:
    """Return what a line of a failure and those after it tell."""
    index, component = lines.index(line), component_of(line.text)
    if component == "other":
        # the shell names no program in the line of its crash
        kind = "program" if CRASHES.search(line.text) else "neighbour"
        before = (other.text for other in reversed(lines[:index]))
        names = (first_name(kind, text) or first_name("neighbour", text) for text in before)
        component = next(filter(None, names), component)
    in_scope = component not in OUT_OF_SCOPE
    after = takewhile(lambda other: other.number <= line.number + _LATER, lines[index + 1 :])
    same = (other for other in after if other.origin.process == line.origin.process)
    texts = [line.text, *(other.text for other in same if is_failure(other))] if in_scope else []
    return Located(
        line=line.number,
        text=line.text,
        component=component,
        in_scope=in_scope,
        phase=next(filter(None, (first_name("phase", text) for text in texts)), None),
        api=next(filter(None, map(api_of, texts)), None),
        code=next(filter(None, map(code_in, texts)), None),
        process=line.origin.process or None,
    )


def is_failure(line: LogText) -> bool:
    """Return whether a line tells of a failure, and not merely warns of one."""
    text = line.text
    if line.origin.quiet or QUIET.search(text):
        return False
    plain = only_pattern("no failure").sub("", text)
    is_told = FAILS.search(plain) or CRASHES.search(plain)
    is_code = is_told or (_RETURNS.search(plain) and code_in(plain))
    return bool(is_code) and not is_benign(text)


@lru_cache(MAX_LINES)
def component_of(text: str) -> str:
    """Return the component that a line is of, `other` if it names none."""
    component = first_name("component", text)
    if component in ("linker", "kernel") and not (
        OURS.search(text)
        or CLIENT.search(text)
        or re.search(r"(?i)qcom|\.mbn|executorch|onnx", text)
    ):
        return "other"  # of another program, or another processor
    code = None if component else next(_codes(text, is_rpc=False), None)
    if code is not None and code.component == "dsp":
        return "fastrpc"
    if code is not None and first_name("call", text):
        return "qnn"
    return component or "other"


def api_of(text: str) -> str | None:
    """Return the call or the step in a failing line."""
    match = API.search(text) or only_pattern("step").search(text)
    return match[0] if match else first_name("call", text)


@lru_cache(MAX_LINES)
def code_in(text: str) -> LocatedCode | None:
    """Return the code in a line, in any notation, as the component of the line means it."""
    component = component_of(text)
    if component == "kernel":
        match = _ERRNO.search(text)
        number = int(match["number"]) if match else 0
        name = errno.errorcode.get(number)
        info = CodeInfo(-number, number, "linux", (), name, os.strerror(number))
        return _described(info) if name else None
    link = link_of(text)
    if link.code is not None and (link.symbol or "").startswith("GPU_"):
        return _described(CodeInfo(link.code, link.code, "gpu", (), link.symbol))
    is_rpc = component in ("fastrpc", "ggml-hexagon") or _RPC.search(text) is not None
    return next(_codes(text, is_rpc), None)


def _described(info: CodeInfo, symbol: str | None = None) -> LocatedCode:
    symbol = symbol or info.symbol
    words = (symbol or "").rpartition("_ERROR_")[2].replace("_", " ").lower()
    meaning = dsp_errors()[info.code][1] if info.component == "dsp" else info.note
    return LocatedCode(
        code=info.raw,
        hex=info.hex,
        symbol=symbol,
        component=info.component,
        meaning=meaning or words or None,
    )


def _codes(text: str, is_rpc: bool) -> Iterator[LocatedCode]:
    """Yield the codes in a line: by name, of the DSP, then by a number behind a word or a sign."""
    for name in _NAME.findall(text):
        if (code := _codes_of_names().get(name)) is not None:
            yield _described(describe(code), name)
    bare = [int(digits, 16) for digits in _BARE_HEX.findall(text) if is_rpc]
    yield from (_described(describe(DSP_FIRST + code)) for code in bare if code in dsp_errors())
    for pattern in (_ANYWHERE, _NAMED_ERROR if is_rpc else _MARKED):
        for digits in (match["number"].lower() for match in pattern.finditer(text)):
            number = unsigned(int(digits, 16 if "x" in digits else 10))
            if is_rpc and pattern is not _ANYWHERE and number in dsp_errors():
                number += DSP_FIRST
            info = describe(number)
            is_dsp = info.component == "dsp"
            is_code = is_dsp or (not is_rpc and pattern is _MARKED and number <= 0xFFFF)
            if is_code and info.symbol and info.component != "none":
                yield _described(info)


@cache
def _codes_of_names() -> dict[str, int]:
    """Return {name: code as it is returned} of QNN and of the DSP."""
    names = {symbol: code for code, symbols in symbol_table().items() for symbol in symbols}
    return names | {name: DSP_FIRST + number for number, (name, _) in dsp_errors().items()}
