"""`qnn-harness explain`: explain the failure in any log."""

from __future__ import annotations

import gzip
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from io import BufferedReader, RawIOBase
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, cast

import click

from harness.cli.common_options import NamedPath, json_option
from harness.cli.say import say_result
from harness.core.errors import NEGATIVE, ConfigError
from harness.diagnosis.explain_log import Explained, Explanation, explain as explain_log
from harness.diagnosis.located import Located
from harness.diagnosis.log_reader import ScannedLog, read_log
from harness.diagnosis.rule_sources import all_rules

_STDIN = "-"
_MAX_SHOWN = 3
_LOOKED_AT = 8192
_SCOPE = (
    "explain knows QNN, ONNX Runtime's QNN provider, ExecuTorch, LiteRT, Genie, FastRPC, Android's "
    "linker, and the kernel's lines about them"
)
_PACKED = {b"PK\3\4": "zip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_NO_TEXT = bytes({*range(1, 32)} - {*b"\b\t\n\f\r\x1b"})


@click.command()
@click.argument("file", default=_STDIN, type=NamedPath())
@json_option
def explain(file: Path, as_json: bool) -> int:
    """Explain the failure in a log of any program that uses QNN or FastRPC.

    FILE (default: standard input) may be of logcat, qnn-net-run, Genie, LiteRT, ExecuTorch, ONNX
    Runtime or llama.cpp, or copied out of a web page. The surest cause comes first;
    without a known cause, the first line of the failure and what it means.

    \b
    Examples:
      adb logcat -d | qnn-harness explain
      qnn-harness explain build.log

    \b
    Exit codes: 0 a failure of QNN was found, 1 none was, 2 the log cannot be read.
    """
    log = _read(str(file))
    explanation = surest_first(explain_log(log.lines))
    text = (*_answer_lines(explanation, log), *explanation.numbers)
    say_result(explanation, text, as_json)
    located = explanation.located
    return 0 if explanation.diagnoses or (located and located.in_scope) else NEGATIVE


def _read(file: str) -> ScannedLog:
    if file == _STDIN and sys.stdin is None:
        raise ConfigError("standard input is closed; name the file of a log")
    try:
        if file == _STDIN:
            return _read_text(sys.stdin.buffer, "standard input")
        with Path(file).open("rb") as stream:
            return _read_text(stream, file)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the log {file}: {reason}") from error


def _read_text(stream: BinaryIO, name: str) -> ScannedLog:
    """Read a log, which gzip may have packed. Raises ConfigError if it is not text."""
    buffered = BufferedReader(cast("RawIOBase", stream))
    start = buffered.peek(_LOOKED_AT)[:_LOOKED_AT]
    if start.startswith(b"\x1f\x8b"):
        return read_log(cast("BinaryIO", gzip.GzipFile(fileobj=buffered)))
    if packer := next((packer for mark, packer in _PACKED.items() if start.startswith(mark)), None):
        raise ConfigError(f"{name} is compressed ({packer}); unpack it first")
    no_text = len(start) - len(start.translate(None, _NO_TEXT))
    if no_text > max(4, len(start) // 50) and not start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise ConfigError(f"{name} is not text; name the output of the failed program")
    return read_log(cast("BinaryIO", buffered))


def surest_first(explanation: Explanation) -> Explanation:
    """Return an explanation with the surest cause of each failure first."""
    ranked = sorted(explanation.diagnoses, key=lambda cause: cause.confidence != "known")
    failures = dict.fromkeys(cause.failure for cause in ranked)
    ordered = (cause for failure in failures for cause in ranked if cause.failure == failure)
    return explanation.model_copy(update={"diagnoses": tuple(ordered)})


def _answer_lines(explanation: Explanation, log: ScannedLog) -> Iterator[str]:
    if explanation.level == "nothing":
        lines = "one line" if log.line_count == 1 else f"{log.line_count} lines"
        name = lines if log.line_count else "an empty log"
        yield f"nothing wrong found in {name}; is this the whole log of the program that failed?"
    if not log.whole:
        yield "the log is too large; its end was not read"
    yield from explanation_lines(explanation)


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the text about causes, of which those of one failure stand together, and its place."""
    causes, located = explanation.diagnoses, explanation.located
    for number, (_, group) in enumerate(groupby(causes, lambda cause: cause.failure)):
        answer, *others = group
        if number:
            yield f"another failure{f', of process {answer.process}' if answer.process else ''}:"
        yield from _failure_lines(answer, *others)
    if located is not None:
        yield from _located_lines(located)
    if explanation.level == "located":
        yield "no known cause matches; the lines just before this one often name the cause"


def _located_lines(located: Located) -> Iterator[str]:
    yield f"located: line {located.line}: {located.text}"
    if not located.in_scope:
        yield f"  out of scope: {_SCOPE}"
    code = located.code
    name = f"{code.symbol or 'no name'}: {code.meaning or code.component}" if code else ""
    facts = {
        "component": located.component,
        "phase": located.phase,
        "call": located.api,
        "code": code and f"{code.code} ({code.hex}) {name}",
        "process": located.process,
    }
    yield from (f"  {name}: {value}" for name, value in facts.items() if value is not None)


def _failure_lines(answer: Explained, *others: Explained) -> Iterator[str]:
    distinctions = {rule.id: rule.distinction for rule in all_rules()}
    yield f"cause: {answer.id} ({answer.confidence}): {answer.words}"
    yield from _lines_of(answer)
    yield f"  what helps: {answer.fix}"
    yield f"  how to tell: {distinctions[answer.id]}"
    for thread in answer.threads:
        yield f"  see {thread}"
    last_title = ""
    for cause in others:
        known = cause.confidence == "known"
        title = "also:" if known else "less certain, or a consequence of it:"
        if title != last_title:
            yield (last_title := title)
        yield f"  {cause.id} ({cause.confidence}): {cause.words}"
        yield from (f"  {line}" for line in _lines_of(cause))
        yield f"    how to tell: {distinctions[cause.id]}"


def _lines_of(cause: Explained) -> Iterable[str]:
    for line in cause.lines[:_MAX_SHOWN]:
        yield f"  line {line.number}: {line.text}"
