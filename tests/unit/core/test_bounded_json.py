"""The one reader of JSON, and that nothing reads any past it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

import harness
import harness.cli.schema
from harness.core.bounded_json import (
    MAX_DEPTH,
    OTHER_SCHEMA,
    JsonError,
    other_schema,
    parse_json,
    parse_model,
    problem_in,
    require_bounded,
    without_depths,
)
from harness.doctor.check_results import DoctorReport
from harness.lab.health import DeviceEvent
from harness.lab.inventory import Lab
from harness.nightly.night import Night
from harness.results.known_issues import KnownIssues
from harness.results.record import CaseRecord
from harness.results.run_folder import RunInfo
from harness.site.build import SiteNote
from tests.snapshots import Snapshot

PAST = re.compile(
    r"json\.loads?\b|JSONDecoder|raw_decode|import from_json\b|\bfrom json import|validate_json\b"
)
# programs that can import nothing of ours; what they read we have written
ALONE = {
    "models/litert_worker.py",
    "models/compile_worker.py",
    "models/shapes_worker.py",
    "reduce/reproduce.py",
}


class Small(BaseModel):
    schema_number: Annotated[Literal[3], Field(alias="schema")]
    names: list[str] = []
    number: int = 0
    figure: float = 0


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        if "schema_number" in model.model_fields and model.__module__.startswith("harness."):
            yield model
        yield from _models(model)


MODELS = sorted({*_models(BaseModel)} - {Lab, KnownIssues}, key=lambda model: model.__name__)
"""Of JSON: those of YAML have a reader of their own."""

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64) + 1, 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=30,
)  # fmt: skip


def test_nothing_reads_json_past_the_reader() -> None:
    root = Path(harness.__file__).parent
    readers = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if "suites" not in file.relative_to(root).parts and PAST.search(file.read_text())
    }
    assert readers - {"simulator/device.py", "simulator/daemon.py"} == {
        "core/bounded_json.py",
        *ALONE,
    }


@given(values, st.booleans())
def test_what_json_says_is_read_as_it_is(value: Any, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    if "Infinity" not in text:
        assert parse_json(text) == value
        assert without_depths(text.encode()) == text.encode()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", (1, 0)),
        (b'{"a":\n 1,}', (2, 4)),
        (b'"\\ud800"', (1, 8)),
        (b'"\xed\xa0\x80"', (1, 2)),
        ('"\ud800"', (1, 2)),
        (b"NaN", (1, 1)),
        (b"[1e999]", None),
        (b'{"a": [%d]}' % (1 << 64), None),
        (b"9" * 5000, (1, 4302)),
        (b"[" * 65 + b"]" * 65, (1, 65)),
        (b'{"a":' * 900 + b"1" + b"}" * 900, (1, 321)),
        (b"[\n" * 10**5, (65, 1)),
        (b"[%b]" % (b"{}," * 300_000), None),
    ],
    ids=lambda content: repr(content[:12]) if content else "none",
)
def test_what_no_reader_can_hold_is_refused_with_its_place(
    content: bytes | str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(JsonError) as refused:
        parse_json(content)
    text = str(refused.value)
    assert text.endswith("at line {} column {}".format(*place)) if place else " line " not in text


@pytest.mark.parametrize(
    "content",
    [
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        json.dumps("[{" * 1000 + '\\"').encode(),
        b"[%b[]]" % (b"[]," * 1000),
        json.dumps([["[" * 9, {"]": [[], {}]}]] * 500).encode(),
    ],
    ids=["deepest", "brackets in a text", "many lists", "many of all"],
)
def test_what_is_no_deeper_is_read(content: bytes) -> None:
    assert parse_json(content) == json.loads(content)
    assert without_depths(content) == content


@pytest.mark.parametrize(
    ("content", "most"),
    [(b"[1, 2, 3]", 3), (b'{"a": [{}, {}]}', 5), (b'["a,b", "[{", "\\",,"]', 3), (b'"[,"', 0)],
)
def test_values_are_counted_by_what_stands_before_each(content: bytes, most: int) -> None:
    require_bounded(content, most)
    if most:
        with pytest.raises(JsonError, match=str(most - 1)):
            require_bounded(content, most - 1)


@given(st.integers(1, 900), st.sampled_from([b"[%b]", b'{"a":%b}', b'["]",%b,{}]']))
def test_what_is_too_deep_can_be_left_out(deep: int, outer: bytes) -> None:
    content = b"1"
    for _ in range(deep):
        content = outer % content
    whole = b'{"n":1,"x":[%b,2],"y":%b}' % (content, content)
    value = parse_json(without_depths(whole))
    assert (value["n"], value["x"][1]) == (1, 2)
    assert (without_depths(whole) == whole) == (deep <= MAX_DEPTH - 2)


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        (b"{}", "schema: "),
        (b'{"schema": 3, "names": ["a", 1]}', "names.1: "),
        (b'{"schema": 3, "number": true}', "number: "),
        (b'{"schema": 3, "number": "1"}', "number: "),
        (b'{"schema": 4}', OTHER_SCHEMA),
        (b'{"schema": null}', "is damaged: "),
        (b'{"schema": 3, "names": ["\\ud800"]}', "is not valid JSON: "),
        (b'{"schema": 3, "x": %b1%b}' % (b"[" * 99, b"]" * 99), "is nested "),
    ],
)
def test_a_model_says_its_first_problem(content: bytes, begins: str) -> None:
    for model in (Small, TypeAdapter(Small)):
        with pytest.raises((JsonError, ValidationError)) as refused:
            parse_model(model, content)
        assert problem_in(refused.value).startswith(begins)


@pytest.mark.parametrize("model", [*MODELS, DoctorReport], ids=lambda model: model.__name__)
def test_a_schema_is_a_number(model: type[BaseModel]) -> None:
    for schema in (b"true", b"1.0", b"2.0", b'"1"', b"null"):
        with pytest.raises(ValidationError) as refused:
            parse_model(TypeAdapter(model), b'{"schema": %b}' % schema)
        assert ("schema",) in [error["loc"] for error in refused.value.errors()]
    assert {RunInfo, CaseRecord, DeviceEvent, Night, SiteNote} < {*MODELS}


def test_what_is_said_of_other_schemas(snapshot: Snapshot) -> None:
    newer = [other_schema(number, 1) for number in (7, 0, 10**40)]
    damaged = [other_schema(value, 1) for value in ("2", True, 2.5, None, [2], "2" * 99)]
    assert all(text.startswith(OTHER_SCHEMA) and len(text) < 120 for text in newer)
    assert not any(text.startswith(OTHER_SCHEMA) or len(text) >= 120 for text in damaged)
    assert newer + damaged == snapshot
