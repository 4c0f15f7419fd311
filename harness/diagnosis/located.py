"""The place of a failure in a log: its first line, and the facts that this line tells (pure).

The same number means another thing in a line of FastRPC, of the kernel and of QNN.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import takewhile
from typing import Final

from harness.core.error_codes import (
    DSP_FIRST,
    GPU_ERRORS,
    CodeInfo,
    describe,
    dsp_errors,
    symbol_table,
    unsigned,
)
from harness.core.json_record import Part
from harness.diagnosis.error_chain import is_benign
from harness.diagnosis.error_record import Number
from harness.diagnosis.line_patterns import first_name, only_pattern, patterns_of
from harness.diagnosis.log_reader import (
    API,
    CLIENT,
    CRASHES,
    FAILS,
    KERNEL,
    LOUD,
    MAX_LINES,
    OURS,
    QUIET,
    LogText,
)

OUT_OF_SCOPE: Final = ("opencl", "llama.cpp", "other")
"""Components of others, with which explain does not deal."""

_LATER: Final = 20
"""A call or a code so many lines after the first one of a failure belongs to it."""
_NAME: Final = re.compile(r"\b(?:QNN|AEE|GPU)_[A-Z0-9_]+\b")


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


def locate(
    lines: Sequence[LogText], process: int | None = None, known: Collection[str] = ()
) -> Located | None:
    """Return the first line of a failure, of this process or the system if it is known.

    `known` are texts that show the cause. A line of another component counts if no line is of ours,
    or if it tells of a crash.
    """
    processes = (process, None, KERNEL)
    mine = [
        line
        for line in lines
        if not process or line.origin.process in processes or line.text in known
    ]
    failing = []
    for line in mine:
        is_known = line.text in known
        if is_known or is_failure(line):
            if is_known or _is_in_scope(line.text):
                return _located_at(line, mine, is_known)
            failing.append(line)
    ours = (line for line in mine if OURS.search(line.text) or CLIENT.search(line.text))
    if any(_is_in_scope(line.text) for line in ours):
        failing = [line for line in failing if CRASHES.search(line.text)]
    return _located_at(failing[0], mine) if failing else None


def _located_at(line: LogText, lines: Sequence[LogText], is_known: bool = False) -> Located:
    """Return what a line of a failure and those after it tell."""
    index, component = lines.index(line), component_of(line.text)
    is_crash, frames = CRASHES.search(line.text) is not None, list[str]()
    if component == "other":
        # the shell names no program in the line of its crash
        kind = "program" if is_crash else "neighbour"
        before = (other.text for other in reversed(lines[:index]))
        names = [first_name(kind, text) or first_name("neighbour", text) for text in before]
        if is_crash:
            later = (other.text for other in lines[index + 1 :])
            frames = [text for text in later if first_name("frame", text) and _is_in_scope(text)]
        component = next(filter(None, (*map(component_of, frames), *names)), component)
    in_scope = is_known or component not in OUT_OF_SCOPE
    after = takewhile(lambda other: other.number <= line.number + _LATER, lines[index + 1 :])
    same = (
        other.text
        for other in after
        if other.origin.process == line.origin.process and is_failure(other)
    )
    texts = [line.text, *frames, *same] if in_scope else []
    is_kernel = line.origin.process == KERNEL
    return Located(
        line=line.number,
        text=line.text,
        component=component,
        in_scope=in_scope,
        phase=next(filter(None, (first_name("phase", text) for text in texts)), None),
        api=next(filter(None, map(api_of, texts)), None),
        code=next(filter(None, (code_in(text, is_kernel) for text in texts)), None),
        process=line.origin.process or None,
    )


def is_failure(line: LogText) -> bool:
    """Return whether a line tells of a failure, and not merely warns of one."""
    text = line.text
    if line.origin.quiet or QUIET.search(text):
        return False
    plain = text
    for _, pattern in patterns_of("no failure"):
        plain = pattern.sub("", plain)
    is_loud = line.origin.loud or LOUD.search(text) is not None
    return (is_loud or bool(FAILS.search(plain) or CRASHES.search(plain))) and not is_benign(text)


@lru_cache(MAX_LINES)
def component_of(text: str) -> str:
    """Return the component that a line is of, `other` if it names none."""
    component = first_name("component", only_pattern("folders").sub("", text))
    if component in ("linker", "kernel") and not first_name("ours", text):
        return "other"  # of another program, or another processor
    code = None if component else next(_codes(text, is_rpc=False), None)
    if code is not None and code.component == "dsp":
        return "fastrpc"
    if code is not None and first_name("call", text):
        return "qnn"
    return component or "other"


def _is_in_scope(text: str) -> bool:
    return component_of(text) not in OUT_OF_SCOPE


def api_of(text: str) -> str | None:
    """Return the call or the step in a failing line."""
    match = API.search(text) or only_pattern("step").search(text)
    return match[0] if match else first_name("call", text)


@lru_cache(MAX_LINES)
def code_in(text: str, is_kernel: bool = False) -> LocatedCode | None:
    """Return the code in a line, in any notation, as the component of the line means it.

    `is_kernel`: the kernel wrote it, about whichever component.
    """
    component = component_of(text)
    pattern = dict(patterns_of("errno")).get("kernel" if is_kernel else component)
    if pattern is not None and (match := pattern.search(text)):
        number = int(match[1], 0)
        name, meaning = errno.errorcode.get(abs(number)), os.strerror(abs(number))
        return _described(CodeInfo(number, abs(number), "linux", (), name, meaning))
    if component == "kernel":
        return None
    is_rpc = component in ("fastrpc", "ggml-hexagon") or first_name("rpc number", text) is not None
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
            yield _described(_info(code), name)
    bare = only_pattern("hex number").findall(text) if is_rpc else []
    codes = (int(digits, 16) for digits in bare)
    yield from (_described(describe(DSP_FIRST + code)) for code in codes if code in dsp_errors())
    for place, pattern in patterns_of("number"):
        for digits in (match["number"].lower() for match in pattern.finditer(text)):
            number = unsigned(int(digits, 16 if "x" in digits else 10))
            if is_rpc and place == "behind a word" and number in dsp_errors():
                number += DSP_FIRST
            info = _info(number)
            is_marked = place == "behind a word" or (place != "anywhere" and info.symbol)
            is_qnn = not is_rpc and is_marked and number <= 0xFFFF
            is_known = info.component not in ("none", "unknown")
            if is_known and (is_qnn or (info.component == "dsp" and info.symbol)):
                yield _described(info)


def _info(code: int) -> CodeInfo:
    name = GPU_ERRORS.get(code)
    return CodeInfo(code, code, "gpu", (), name) if name else describe(code)


@cache
def _codes_of_names() -> dict[str, int]:
    """Return {name: code as it is returned} of QNN, its GPU library and the DSP."""
    names = {symbol: code for code, symbols in symbol_table().items() for symbol in symbols}
    names |= {name: code for code, name in GPU_ERRORS.items()}
    return names | {name: DSP_FIRST + number for number, (name, _) in dsp_errors().items()}
