"""Journals that anybody may have written: all readers take the same records, and none dies."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.cli.main import commands
from harness.core.errors import ConfigError
from harness.history.attempts import Attempt, read_attempts
from harness.history.comparison import compare
from harness.history.database import open_database
from harness.history.importing import import_run
from harness.history.timeline import Filter
from harness.results.journal import read_journal
from harness.results.run_folder import RunFolder
from tests.properties import reached, reaches
from tests.unit.history.runs import stored_runs
from tests.unit.results.records import error, record

EXAMPLES = 50
DEEP = b"[" * 60 + b"]" * 60
HOSTILE = (
    *(b"-1180591620717411303424", b"1180591620717411303424", b"9" * 5000, b"-1", b"0", b"1", b"2"),
    *(b"NaN", b"-Infinity", b"1e999", b"-1e308", b"1e-400", b"0.5", b"true", b"null", b'""'),
    *(b'"\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"\xc3\xa9\xf0\x9f\x98\x80"', b'["../../x"]'),
    *(b'"0001-01-01T00:00:00+14:00"', b'"9999-12-31T23:59:59-14:00"', b'"2026-11-21T06:00:00"'),
    *(b"[]", b"{}", b"[[]]", b'{"a":1,"a":-1}', b'{"known_issue":"x"}', DEEP, b"[" * 100_000),
)
FIELDS = (*json.loads(record().model_dump_json()), "unknown", "case", "kind", "schema")
PARTS = ("code", "step", "context", "chain", "diagnosis", "signature", "hex", "ort")


def spelt(fields: list[tuple[str, bytes]]) -> bytes:
    """A line of JSON, in which a key may stand twice."""
    return b"{" + b",".join(json.dumps(k).encode() + b":" + v for k, v in fields) + b"}"


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A record, or what once was one."""
    bad = draw(st.booleans())
    whole = record(
        case=draw(st.sampled_from("abc")),
        outcome="failed" if bad else "passed",
        attempt=draw(st.integers(1, 3)),
    )
    document = json.loads(whole.model_dump_json())
    fields = [(k, json.dumps(v).encode()) for k, v in document.items()]
    change = draw(st.sampled_from(["none", "field", "part", "twice", "cut", "bytes", "blank"]))
    if change in ("field", "twice"):
        name, value = draw(st.sampled_from(FIELDS)), draw(st.sampled_from(HOSTILE))
        remaining = fields if change == "twice" else [field for field in fields if field[0] != name]
        place = draw(st.integers(0, len(remaining)))
        fields = [*remaining[:place], (name, value), *remaining[place:]]
    elif change == "part":
        inside = json.loads(error().model_dump_json())
        name, value = draw(st.sampled_from(PARTS)), draw(st.sampled_from(HOSTILE))
        parts = [(k, json.dumps(v).encode()) for k, v in inside.items() if k != name]
        fields = [field for field in fields if field[0] != "error"]
        fields.append(("error", spelt([*parts, (name, value)])))
    line = spelt(fields)
    if change == "cut":
        line = line[: draw(st.integers(0, len(line)))]
    if change == "bytes":
        position = draw(st.integers(0, len(line) - 1))
        line = (
            line[:position] + draw(st.binary(max_size=4)).replace(b"\n", b"") + line[position + 1 :]
        )
    return b"" if change == "blank" else line


def attempts_in(briefs: Iterable[Attempt]) -> dict[str, int]:
    """The last attempt at each case."""
    comparison = compare([], briefs)
    pairs = (pair for pairs in comparison.pairs.values() for pair in pairs)
    return {pair.shown.case: pair.shown.attempt for pair in pairs}


def of_briefs(folder: Path) -> dict[str, int]:
    return attempts_in(read_attempts(folder / "results.jsonl")[0])


def of_history(folder: Path) -> dict[str, int]:
    database = open_database(str(folder / "h.sqlite"))
    imported = import_run(database, folder)
    stored = [brief for _, briefs in stored_runs(database, Filter()) for brief in briefs]
    assert imported.attempts == len(stored)
    return attempts_in(stored)


READERS: tuple[Callable[[Path], dict[str, int]], ...] = (of_briefs, of_history)


def told_by(folder: Path) -> Iterator[str]:
    """Return the output of each command, which must end in order."""
    for words in (
        ["report", "write", str(folder)],
        ["compare", str(folder), str(folder), "--json"],
        ["history", "list", "--reports", str(folder), "--json"],
    ):
        (folder / "history.sqlite").unlink(missing_ok=True)
        completed = CliRunner().invoke(commands, words, standalone_mode=False)
        if completed.exception is not None and not isinstance(completed.exception, ConfigError):
            raise completed.exception
        yield completed.stderr + str(completed.exception or "")


@pytest.mark.slow
def test_what_is_no_record_is_none_for_any_reader(tmp_path: Path) -> None:
    numbers = iter(range(10**9))

    @reaches(0.15)
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(lines(), min_size=1, max_size=6), st.booleans())
    def agree(lines: list[bytes], ended: bool) -> None:
        folder = tmp_path / f"run-{next(numbers)}"
        folder.mkdir()
        (folder / "results.jsonl").write_bytes(b"\n".join(lines) + b"\n" * ended)
        (folder / "run.json").write_text(json.dumps({"schema": 1, "run": folder.name}))
        try:
            contents = read_journal(folder / "results.jsonl")
        except ConfigError:
            for reader in READERS:
                with pytest.raises(ConfigError, match="schema"):
                    reader(folder)
            return
        expected = {case.case: case.attempt for case in RunFolder(folder).contents().cases}
        for reader in READERS:
            assert reader(folder) == expected, reader.__name__
        for output in told_by(folder):
            for damage in contents.damage[:5]:
                place = f"results.jsonl:{damage.line}: left out, not a record: "
                assert f"{place}{damage.problem}" in output
        if expected and contents.damage:
            reached()

    agree()
