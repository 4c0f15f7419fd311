"""`qnn-harness explain`: what any log tells of its failure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.ground import ConfigError
from harness.tools.cli.lab_options import json_option
from harness.tools.cli.say import say_found
from harness.verdict.failure.any_log import ScannedLog, read_log
from harness.verdict.failure.explanation import Explained, dsp_numbers, explained_by, symptoms_in
from harness.verdict.failure.rules import RULES

_NEGATIVE = 1
_STDIN = "-"
_MAX_SHOWN = 3


@click.command()
@click.argument("file", default=_STDIN)
@json_option
def explain(file: str, as_json: bool) -> int:
    """Say why a log tells of a failure: any log of a program that uses QNN or FastRPC.

    FILE (default: standard input) may be of logcat, qnn-net-run, Genie, LiteRT, ExecuTorch, ONNX
    Runtime or llama.cpp, or copied out of a web page. The answer is the surest cause; below it
    stand others that fit. Ends with 1 where nothing is recognised.
    """
    log = _read(file)
    symptoms = symptoms_in(log.lines)
    explanation = explained_by(symptoms, log.lines)
    lines = (*_told(explanation.diagnoses, log), *dsp_numbers(symptoms))
    say_found(explanation.model_dump(mode="json"), lines, as_json)
    return 0 if explanation.diagnoses else _NEGATIVE


def _read(file: str) -> ScannedLog:
    if file == _STDIN:
        if sys.stdin is None:
            raise ConfigError("no log: standard input is closed, and no file was named")
        return read_log(sys.stdin.buffer)
    try:
        with Path(file).open("rb") as stream:
            return read_log(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the log {file}: {error.strerror}") from error


def _told(diagnoses: tuple[Explained, ...], log: ScannedLog) -> Iterator[str]:
    if not log.whole:
        yield "the log is larger than what is read of one; its end was not looked at"
    if diagnoses:
        yield from _answered(*diagnoses)
    else:
        yield f"nothing in the {log.line_count} lines is recognised as a cause"
        yield "the first line that says ERROR, and those right before it, mostly tell more"


def _answered(answer: Explained, *others: Explained) -> Iterator[str]:
    apart = {rule.id: rule.apart for rule in RULES}
    yield f"{answer.id} ({answer.confidence}): {answer.words}"
    yield from _lines_of(answer)
    yield f"  what helps: {answer.fix}"
    yield f"  what tells: {apart[answer.id]}"
    for thread in answer.threads:
        yield f"  see {thread}"
    if others:
        yield "less sure, or only following from it:"
    for one in others:
        yield f"  {one.id} ({one.confidence}): {one.words}"
        yield from (f"  {line}" for line in _lines_of(one))
        yield f"    what tells: {apart[one.id]}"


def _lines_of(one: Explained) -> Iterator[str]:
    for line in one.lines[:_MAX_SHOWN]:
        yield f"  line {line.number}: {line.text}"
