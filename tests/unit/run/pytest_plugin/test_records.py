"""Which tests a machine leaves to others, by stand-ins of pytest's items."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings, strategies as st

from harness.ground.errors import ConfigError
from harness.run.pytest_plugin import records as plugin_records
from harness.run.pytest_plugin.records import Records
from harness.run.workbench.placement import Placement
from tests.properties import reached, reaches
from tests.unit.answers.history.runs import attempt, run_folder


def items_of(cases: int, plain: int) -> list[Any]:
    """Device cases and tests without one."""
    params = [{"placement": Placement("sim", "htp", "2.51.0", None)} for _ in range(cases)]
    return [
        SimpleNamespace(
            nodeid=f"test_it.py::test[{number}]",
            path=Path(__file__),
            callspec=SimpleNamespace(params=one),
            iter_markers=lambda name: (),
        )
        for number, one in enumerate([*params, *({"number": number} for number in range(plain))])
    ]


def records_of(shard: str | None, resume: Path | None = None, by: Path | None = None) -> Records:
    options = SimpleNamespace(shard=shard, resume=resume, shard_by=by, known_issues=None)
    asked: Any = SimpleNamespace(options=options)
    ending: Any = None
    return Records(asked, ending)


@reaches(0.9)
@settings(max_examples=40)
@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 9))
def test_each_test_is_left_to_all_machines_but_one(cases: int, plain: int, of: int) -> None:
    items = items_of(cases, plain)
    of = min(of, cases)
    kept = []
    for number in range(1, of + 1):
        records = records_of(f"{number}/{of}")
        # what their code is, which tests of its own tell, takes long in the process of all tests
        with mock.patch.object(plugin_records, "test_code", return_value={}):
            others = records.of_other_shards(items)
        assert records.shard is not None
        assert (records.shard.number, records.shard.cases) == (number, cases)
        kept += [item.nodeid for item in items if item not in others]
    reached()
    assert sorted(kept) == sorted(item.nodeid for item in items)


def test_without_a_device_no_shard_is_told_of() -> None:
    records, items = records_of("1/2"), items_of(0, 4)
    assert len(records.of_other_shards(items)) == 2
    assert records.shard is None


def test_without_shard_nothing_is_left_to_others(tmp_path: Path) -> None:
    items = items_of(2, 1)
    assert records_of(None).of_other_shards(items) == []
    with pytest.raises(ConfigError, match=r"--shard: is not given: .*valid: I/N"):
        records_of(None, by=tmp_path).of_other_shards(items)
    assert records_of(None, run_folder(tmp_path, attempt("a passed"))).of_other_shards(items) == []


def test_a_shard_is_completed_by_itself_alone(tmp_path: Path) -> None:
    items = items_of(4, 0)
    first = records_of("1/2")
    wanted = first.of_other_shards(items)
    run = run_folder(tmp_path, attempt("a passed"))
    assert first.shard is not None
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"shard": first.shard.model_dump()}))
    assert records_of("1/2", run).of_other_shards(items) == wanted
    for shard, says in (
        (None, "the run to resume is a shard"),
        ("2/2", "is not shard 2/2"),
        ("1/4", "is not shard 1/4"),
        ("1/9", "cannot be divided into 9 shards"),
    ):
        with pytest.raises(ConfigError, match=says):
            records_of(shard, run).of_other_shards(items)
