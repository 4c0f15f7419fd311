"""`qnn-harness explain`: what any log tells of its failure."""

from __future__ import annotations

import gzip
import shlex
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import BufferedReader, RawIOBase
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, cast

import click

from harness.cli.lab_options import NamedPath, json_option
from harness.cli.say import say_found
from harness.core.errors import ConfigError
from harness.diagnosis.any_log import LogText, ScannedLog, read_log
from harness.diagnosis.explanation import (
    Explained,
    dsp_numbers,
    explained_by,
    question,
    symptoms_in,
)
from harness.diagnosis.rules import RULES

_NEGATIVE = 1
_STDIN = "-"
_MAX_SHOWN = 3
_MAX_WITH = 16
_LOOKED_AT = 8192
_PACKED = {b"PK\3\4": "zip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_NO_TEXT = bytes({*range(1, 32)} - {*b"\b\t\n\f\r\x1b"})


@click.command()
@click.argument("file", default=_STDIN, type=click.Path())
@click.option(
    "--with",
    "others",
    type=NamedPath(),
    multiple=True,
    metavar="FILE",
    help="What a command answered that was asked for, or another log of the failure; several.",
)
@json_option
def explain(file: str, others: tuple[Path, ...], as_json: bool) -> int:
    """Say why a log tells of a failure: any log of a program that uses QNN or FastRPC.

    FILE (default: standard input) may be of logcat, qnn-net-run, Genie, LiteRT, ExecuTorch, ONNX
    Runtime or llama.cpp, or copied out of a web page. The answer is the surest cause; below it
    stand others that fit, and what to ask where none is sure. Ends with 1 where nothing is
    recognised.
    """
    if len(others) > _MAX_WITH:
        raise click.UsageError(f"--with takes at most {_MAX_WITH} files")
    if [file, *map(str, others)].count(_STDIN) > 1:
        raise click.UsageError("standard input is read once: name files for all logs but one")
    log = _read(file)
    lines = [*log.lines, *(line for other in others for line in _lines_beside(other))]
    symptoms = symptoms_in(lines)
    found = explained_by(symptoms, lines)
    found = found.model_copy(update={"diagnoses": _surest_first(found.diagnoses)})
    told = (
        *_told(found.diagnoses, log),
        *filter(None, [found.limits]),
        *_next(found.diagnoses, file, others, lines),
        *dsp_numbers(symptoms),
    )
    say_found(found, told, as_json)
    return 0 if found.diagnoses else _NEGATIVE


def _read(file: str) -> ScannedLog:
    if file == _STDIN and sys.stdin is None:
        raise ConfigError("no log: standard input is closed, and no file was named")
    try:
        if file == _STDIN:
            return _read_text(sys.stdin.buffer, "standard input")
        with Path(file).open("rb") as stream:
            return _read_text(stream, file)
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the log {file}: {said}") from error


def _read_text(stream: BinaryIO, name: str) -> ScannedLog:
    """What a log says, also one that gzip packed; ConfigError for what is no text."""
    buffered = BufferedReader(cast("RawIOBase", stream))
    start = buffered.peek(_LOOKED_AT)[:_LOOKED_AT]
    if start.startswith(b"\x1f\x8b"):
        return read_log(cast("BinaryIO", gzip.GzipFile(fileobj=buffered)))
    if packer := next((one for mark, one in _PACKED.items() if start.startswith(mark)), None):
        raise ConfigError(f"{name} was packed by {packer}: explain the log that is in it")
    no_text = len(start) - len(start.translate(None, _NO_TEXT))
    if no_text > max(4, len(start) // 50) and not start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise ConfigError(f"{name} is no text, and so no log: explain what the program printed")
    return read_log(cast("BinaryIO", buffered))


def _lines_beside(file: Path) -> Iterator[LogText]:
    return (replace(line, file=str(file)) for line in _read(str(file)).lines)


def _surest_first(causes: Sequence[Explained]) -> tuple[Explained, ...]:
    """The causes of each failure, first those that a line states."""
    ranked = sorted(causes, key=lambda one: one.confidence != "known")
    failures = dict.fromkeys(one.failure for one in ranked)
    return tuple(one for failure in failures for one in ranked if one.failure == failure)


def _told(causes: tuple[Explained, ...], log: ScannedLog) -> Iterator[str]:
    if not log.whole:
        yield "the log is larger than what is read of one; its end was not looked at"
    if not log.line_count:
        yield "the log is empty"
        return
    if not causes:
        lines = "one line" if log.line_count == 1 else f"{log.line_count} lines"
        yield f"nothing in the {lines} is recognised as a cause"
        if log.error is None:
            yield "no line says ERROR either: is it the log of what failed, and all of it?"
        else:
            first = f"line {log.error} is the first that says ERROR"
            yield f"{first}: it and those right before it mostly tell more"
        return
    for number, (_, some) in enumerate(groupby(causes, lambda one: one.failure)):
        answer, *others = some
        if number:
            yield f"another failure{f', of process {answer.process}' if answer.process else ''}:"
        yield from _answered(answer, *others)


def _answered(answer: Explained, *others: Explained) -> Iterator[str]:
    apart = {rule.id: rule.apart for rule in RULES}
    yield f"{answer.id} ({answer.confidence}): {answer.words}"
    yield from _lines_of(answer)
    yield f"  what helps: {answer.fix}"
    yield f"  what tells: {apart[answer.id]}"
    for thread in answer.threads:
        yield f"  see {thread}"
    behind = ""
    for one in others:
        known = one.confidence == "known"
        title = "also:" if known else "less sure, or only following from it:"
        if title != behind:
            yield (behind := title)
        yield f"  {one.id} ({one.confidence}): {one.words}"
        yield from (f"  {line}" for line in _lines_of(one))
        yield f"    what tells: {apart[one.id]}"


def _next(
    causes: Sequence[Explained],
    file: str,
    others: Sequence[Path],
    lines: Sequence[LogText],
) -> Iterator[str]:
    """What to ask next, where no line states the cause."""
    asked = question(causes, lines, len(others))
    if asked is None:
        return
    log = "LOG" if file == _STDIN else shlex.quote(file)
    beside = "".join(f" --with {shlex.quote(str(one))}" for one in others)
    yield "to be surer, ask and explain again:"
    yield f"  {asked.command} > {asked.file}"
    yield f"  qnn-harness explain {log}{beside} --with {asked.file}"


def _lines_of(one: Explained) -> Iterable[str]:
    for line in one.lines[:_MAX_SHOWN]:
        yield f"  line {line.number}{f' of {line.file}' if line.file else ''}: {line.text}"
