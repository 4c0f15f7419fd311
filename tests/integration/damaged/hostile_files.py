"""Runs, files of state, models and events as nobody of good will writes them, by their number."""

import contextlib
import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import click

from harness.bisect.folder import read_log
from harness.cli.main import commands
from harness.core.errors import ConfigError, HarnessError
from harness.core.files import read_note
from harness.core.verified_folder import FolderChangedError, HashCache, open_verified
from harness.history.database import HISTORY, open_database
from harness.history.importing import list_runs
from harness.lab.health import Quarantine
from harness.lab.lease import parse_holder
from harness.nightly.night import nights
from harness.plugin.problem_file import read_problem
from harness.probe.events import MARK, SEAL, TranscriptParser, kept_events
from harness.results.run_folder import CASES, INFO, JOURNAL, RunFolder, run_folders
from harness.site.build import NOTE, SiteNote
from tests.hostile_models import (
    bodies,
    made_within,
    model,
    nested,
    recursive,
    relu,
    relu_many,
    weighty,
)
from tests.unit.containers.damage import SMALL, damaged, seeds
from tests.unit.history.runs import attempt, run_folder
from tests.unit.nightly.nights import a_night
from tests.unit.probe.test_events import WHOLE

MOST_S: Final = 60.0
_MOST_WAITS: Final = 4
"""By the clock a busy computer may take so many times as long."""
_DEEP: Final = {
    "lists": b"[" * 900 + b"]" * 900,
    "objects": b'{"a":' * 500 + b"1" + b"}" * 500,
    "secrets": b'{"x":"?token=abcdefgh12345678","y":' * 500 + b"1" + b"}" * 500,
}
# what JSON may say, but no field of ours has
_ODD: Final = (
    *_DEEP.values(),
    b'"a\\u0000b"', b'"\\u001b[2J::error::x"', b'"../../etc/passwd"', b'"%b"' % (b"x" * (1 << 20)),
    b'"https://u:s3cr3t-word@h/?token=abcdefgh12345678"', b'"9999-12-31T23:59:59-14:00"',
    b'"0001-01-01T00:00:00+14:00"', b"null", b"true", b'""', b"{}", b"[]", b"-1", b"1.5", b"1e308",
    b"18446744073709551616", b"1" + b"0" * 400, b'{"schema":1}', b"[[],{},[null]]", b"1e999",
    b'"\\ud800"', b'{"\\udc00":1}', b'{"a":1,"a":2}',
)  # fmt: skip
# what it may not
_BROKEN: Final = (
    b'"\xed\xa0\x80"', b'"\xff"', b"NaN", b"-Infinity", b"9" * 5000, b"[" * 5000, b"'a'", b"",
    b"[" + b"{}," * 600_000 + b"{}]",
)  # fmt: skip


LAB: Final = """\
schema: 1
devices:
  - {name: here, transport: local, target: linux-x64, workdir: WORK}
notify:
  - {name: hook, url: "json://127.0.0.1:1/"}
"""
"""This computer as a device, and a channel that nothing is sent to."""
SUITE: Final = """\
import pytest

@pytest.mark.device
def test_nothing(bench):
    bench.measure(noted=1)
"""


def command(*words: object, negative: str = "\0") -> int:
    """The exit code of a command; what is no error of the harness's own kind is raised.

    The answer is negative only where it says so.
    """
    start, computed, output = time.monotonic(), _computed_s(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = commands.main([*map(str, words)], standalone_mode=False)
    except click.ClickException as error:
        code = error.exit_code
    except HarnessError as error:
        code = error.exit_code
    assert _computed_s() - computed < MOST_S, words
    assert time.monotonic() - start < _MOST_WAITS * MOST_S, words
    assert code != 1 or negative in output.getvalue(), (words, output.getvalue()[-1000:])
    return code if isinstance(code, int) else 0


def _computed_s() -> float:
    """The processor time of this process and those that it waited for."""
    return sum(os.times()[:4])


def hostile_json(content: bytes, chance: random.Random) -> bytes:
    """A JSON text with one thing in it that nobody expects there."""
    if chance.random() < 0.2:
        return damaged(content, chance)
    value = json.loads(content)
    places = [*_places(value)]
    values, key = chance.choice(places) if places else ([value], 0)
    odd = chance.choice(_ODD if chance.random() < 0.7 else _BROKEN)
    if isinstance(values, dict) and chance.random() < 0.3:
        key = "unknown"
    values[key] = "<odd>"
    return json.dumps(value).encode().replace(b'"<odd>"', odd)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(item, dict | list):
            yield from _places(item)


def require_runs(folder: Path, numbers: range) -> None:
    """Each walk over runs goes past hostile ones, and names those whose run.json it cannot read;
    a hostile one by its name is wrong input at worst."""
    reports = folder / "reports"
    good = [run_folder(reports, attempt("a passed"), attempt("b passed")) for _ in range(2)]
    bad = []
    for number in numbers:
        chance = random.Random(number)
        bad.append(run_folder(reports, attempt("a passed"), attempt("b passed")))
        file = bad[-1] / chance.choice((INFO, INFO, INFO, JOURNAL, JOURNAL, CASES))
        content = file.read_bytes() if file.exists() else b'{"schema":1,"cases":["a","b"]}'
        first, *rest = [content] if file.name != JOURNAL else content.splitlines(keepends=True)
        file.write_bytes(
            hostile_json(first, chance) + b"\n" * (file.name == JOURNAL) + b"".join(rest)
        )
    good.append(run_folder(reports, attempt("a passed"), attempt("b passed")))
    lab = _lab(folder)
    assert set(good) <= set(run_folders(reports))
    assert command("history", "list", "--reports", reports) == 0
    imported = {run.run for run in list_runs(open_database(str(reports / HISTORY)))}
    assert imported >= {run.name for run in good}
    for words in (
        ("report", "site", "--reports", reports, "-o", folder / "site"),
        ("compare", good[0], good[-1]),
        ("compare", "--previous", good[-1]),
        ("report", "write", good[-1]),
        ("report", "merge", *good, "-o", folder / "merged"),
        ("notify", "--dry-run", good[-1], "--lab", lab),
    ):
        assert command(*words) == 0, words
    for index, run in enumerate(bad):
        try:
            RunFolder.open(run).coverage()
            is_read = True
        except ConfigError:
            is_read = False
        assert (run in run_folders(reports)) or not is_read
        for words in (
            ("compare", good[0], run),
            ("report", "write", run),
            ("report", "merge", good[0], run, "-o", folder / f"merged-{index}"),
            ("history", "import", run, "--reports", folder / f"history-{index}"),
            ("notify", "--dry-run", run, "--lab", lab),
        ):
            code = command(*words, negative="vanished")  # its record is none
            assert code == 2 or is_read, (code, words)
    (folder / "suite").mkdir()
    (folder / "suite" / "test_night.py").write_text(SUITE)
    options = ("--lab", lab, "--reports", reports, "--timeout", "10m")
    assert command("nightly", *options, "--", folder / "suite") == 0
    shutil.rmtree(folder)


def _lab(folder: Path) -> Path:
    lab = folder / "devices.yaml"
    lab.write_text(LAB.replace("WORK", str(folder / "work")))
    return lab


def _state(folder: Path) -> dict[str, tuple[str, Any, Callable[[], object]]]:
    """Files of state: their name, what one of them holds, and what reads it."""
    hashed = HashCache(folder, folder)
    quarantine = Quarantine(folder)
    sha = "0" * 64
    entry = {"size": 1, "mtime_ns": 2, "sha256": sha}
    lease = {"user": "a", "host": "b", "pid": 1, "since": "c", "purpose": "d", "until": ""}
    return {
        "lease": ("lease", lease, lambda: parse_holder((folder / "lease").read_bytes())),
        "quarantine": (
            quarantine._file("phone").name,
            {"device": "phone", "since": "x", "why": "y", "until": "healed"},
            lambda: quarantine.find("phone"),
        ),
        "hashes": (
            str(hashed._path.relative_to(folder)),
            {"files": {"/x": entry}},
            lambda: hashed.changed({"x": Path("/x")}),
        ),
        "verified": (
            "manifest.json",
            {
                "format": 1,
                "facts": {},
                "data": {},
                "files": {"a": {"size": 1, "mtime_ns": 1, "sha256": sha}},
            },
            lambda: open_verified(folder, {}),
        ),
        "note": ("note", {"sha256": sha, "url": "x"}, lambda: read_note(folder / "note")),
        "problem": (
            "problem",
            {"about": "input", "text": "x", "field": None},
            lambda: read_problem(folder / "problem"),
        ),
        "site": (NOTE, {"schema": 1, "kind": "site", "nights": {}}, lambda: SiteNote.read(folder)),
        "search": (
            "log",
            {"schema": 1, "kind": "begun", "spec": {}},
            lambda: read_log((folder / "log").read_text(errors="replace")),
        ),
        "night": (
            "20261121T060000Z-00-nightly/nightly.json",
            a_night(night="20261121T060000Z-00-nightly").model_dump(mode="json", by_alias=True),
            lambda: [*nights(folder)],
        ),
    }


def require_state(folder: Path, numbers: range) -> None:
    """A hostile file of state is read as nothing, or is an error of ours."""
    for number in numbers:
        chance = random.Random(number)
        kinds = _state(folder)
        name, content, read = kinds[chance.choice(sorted(kinds))]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hostile_json(json.dumps(content).encode(), chance))
        start = time.monotonic()
        with contextlib.suppress(HarnessError, FolderChangedError):
            read()
        assert time.monotonic() - start < MOST_S, (number, name)
        path.unlink()


def require_models(folder: Path, numbers: range) -> None:
    """A hostile file is inspected, or is wrong input."""
    whole = seeds()
    (folder / "side.bin").write_bytes(SMALL)
    for number in numbers:
        chance = random.Random(number)
        name = chance.choice([file for file in whole if not file.endswith(".onnx")] + ["a.bin"])
        content = damaged(whole.get(name, SMALL), chance)
        if name.endswith(".json") and chance.random() < 0.7:
            content = hostile_json(whole[name], chance)
        path = folder / name
        path.write_bytes(content)
        for form in ((), ("--json",)):
            refused = "QnnSystemContext_getMetadata"  # by the library itself
            assert command("model", "inspect", path, *form, negative=refused) < 3, number


_ONNX: Final[tuple[Callable[[], Any], ...]] = (
    lambda: nested(40), recursive, lambda: relu(1, 3 * 10**9), lambda: relu(*[1] * 70),
    lambda: relu_many(300_000), lambda: weighty(400), lambda: relu(-1, 2**62),
    lambda: made_within(2**40), lambda: model([], (0,)), lambda: bodies(30),
)  # fmt: skip


def _onnx(index: int) -> bytes:
    content: bytes = _ONNX[index]().SerializeToString()
    return content


def require_onnx(folder: Path, numbers: range) -> None:
    """The same of ONNX models, which a process of its own reads; `layers` says why it does not."""
    for number in numbers:
        chance = random.Random(number)
        # made in a process of its own: to make one may take more memory than to read it
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as maker:
            content = maker.submit(_onnx, number % len(_ONNX)).result()
        path = folder / "model.onnx"
        path.write_bytes(content if number < len(_ONNX) else damaged(content, chance))
        assert command("model", "inspect", path) in (0, 2), number
        if number < len(_ONNX) - 2:
            assert command("model", "layers", path) == 2, number


def require_events(folder: Path, numbers: range) -> None:
    """A hostile event costs no other; what nobody asks of it, not even itself."""
    events = [line.removeprefix(MARK) for line in WHOLE.splitlines()]
    for number in numbers:
        chance = random.Random(number)
        index = chance.randrange(len(events))
        content = json.loads(events[index])
        del content["crc"]
        extra = chance.choice(list(_DEEP.values())) if number % 2 else None
        if extra is None:
            hostile = hostile_json(json.dumps(content).encode(), chance)
        else:
            hostile = json.dumps(content | {"x": "<odd>"}).encode().replace(b'"<odd>"', extra)
        body = hostile.removesuffix(b"}")
        lines = [MARK + event for event in events]
        lines[index] = MARK + body + SEAL % crc32(body)
        start, stream = time.monotonic(), b"".join(line + b"\n" for line in lines)
        kept_stream = kept_events(stream)
        transcripts = []
        for source in (stream, kept_stream):
            parser = TranscriptParser()
            parser.feed(source)
            transcripts.append(parser.close())
        assert b"s3cr3t-word" not in kept_stream
        assert time.monotonic() - start < MOST_S
        if extra is not None:
            assert [transcript.malformed_count for transcript in transcripts] == [0, 0], number
            assert [len(transcript.steps) for transcript in transcripts] == [3, 3]


KINDS: Final = {
    "runs": require_runs,
    "state": require_state,
    "models": require_models,
    "onnx": require_onnx,
    "events": require_events,
}
