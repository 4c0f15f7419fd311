"""Records that are held in part say what they would say if they were held whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from harness.answers.history.brief import COMPARED, Brief, read_briefs
from harness.ground.errors import ConfigError
from harness.verdict.results.journal import cases_in, read_journal
from harness.verdict.results.record import CaseRecord
from tests.unit.verdict.results.records import DEVICE, record

LONG = "x" * 1000
RECORDS: list[dict[str, Any]] = [
    {},
    {"outcome": "failed", "device": DEVICE},
    {"outcome": "failed", "measurements": {"load_us": [1, 2.5], "surroundings": {"seen_s": 1}}},
    {"measurements": {}, "axes": {}, "device": None, "logs": ()},
    {"axes": {"contexts": 1}},
    {"axes": {"contexts": True}},
    {"axes": {"contexts": 1.0, "nested": {"a": [1]}}},
    {"axes": {LONG: 1, "long": LONG}},
    {"axes": {f"axis{at}": at for at in range(50)}},
    {"measurements": {f"figure{at}": at for at in range(50)} | {"conclusion": "so it is"}},
    {"measurements": {"grid": ["qnn", "ort"], "text": "ä\U0001f44d", "big": 1 << 63}},
    {"logs": ("logs/x/probe.jsonl", "logs/ä.txt")},
]


def written(folder: Path) -> Path:
    file = folder / "results.jsonl"
    lines = [
        record(case=f"a.py::test[{number}]", **one).model_dump_json()
        for number, one in enumerate(RECORDS)
    ]
    file.write_text("\n".join([*lines[:3], "no record", "", *lines[3:]]))
    return file


def test_what_is_held_in_part_is_the_same(tmp_path: Path) -> None:
    file = written(tmp_path)
    held = read_journal(file).records
    whole = [one for _, one in cases_in(file, read_journal(file).left_out)]
    assert len(held) == len(RECORDS)
    for one, other in zip(held, whole, strict=True):
        assert type(one) is not CaseRecord
        for name in CaseRecord.model_fields:
            assert repr(getattr(one, name)) == repr(getattr(other, name)), name
        for name in (*other.measurements, "conclusion", "none of it"):
            assert repr(one.measured(name)) == repr(other.measured(name))
        assert one.measured_names() == other.measured_names()
        assert one == other
        assert one.model_dump_json() == other.model_dump_json()
        assert one.model_copy(update={"run": "b"}) == other.model_copy(update={"run": "b"})
        assert (one.state, one.grid) == (other.state, other.grid)


def test_what_comparing_holds_is_the_same(tmp_path: Path) -> None:
    file = written(tmp_path)
    held, left_out = read_briefs(file)
    assert left_out.count == 1
    names = (*Brief.__match_args__, "signature")
    kept = {"source", "place", "held_axes", "started"}
    for one, (_, other) in zip(held, cases_in(file, left_out), strict=True):
        brief = Brief.of(other)
        assert repr(one.axes) == repr(brief.axes)
        for name in set(names) - kept:
            assert getattr(one, name) == getattr(brief, name)
        for name in COMPARED:
            assert one.measured(name) == brief.measured(name)


def test_a_journal_that_was_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    file = written(tmp_path)
    records = read_journal(file).records
    file.rename(tmp_path / "old")
    file.write_text("something else")
    assert records[2].measurements["load_us"] == [1, 2.5]


@pytest.mark.parametrize("damage", ["", "{}", '{"case": "other"}', "[]"])
def test_a_journal_that_was_overwritten_is_told(tmp_path: Path, damage: str) -> None:
    file = written(tmp_path)
    records = read_journal(file).records
    size = file.stat().st_size
    with file.open("r+") as stream:
        stream.truncate(0)
        stream.write(damage.ljust(size) if damage else "")
    for asked in ("measurements", "logs"):
        with pytest.raises(ConfigError, match="changed while it was read"):
            getattr(records[2], asked)


def test_a_model_that_has_a_record_in_it_writes_it_whole(tmp_path: Path) -> None:
    """A bisection's result lost what its runs had measured, and so what it says of noise."""

    class Around(BaseModel):
        inside: tuple[CaseRecord, ...]

    held, whole = read_journal(written(tmp_path)).records, [record(**one) for one in RECORDS]
    around = Around(inside=held)
    for said in (around.model_dump(mode="json"), json.loads(around.model_dump_json())):
        again = Around.model_validate(said).inside
        assert [one.measurements for one in again] == [one.measurements for one in whole]
        assert [(one.axes, one.logs) for one in again] == [(one.axes, one.logs) for one in whole]
