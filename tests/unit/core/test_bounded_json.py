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
    JsonError,
    parse_json,
    parse_model,
    problem_in,
    require_bounded,
    without_depths,
)
from harness.doctor.check import DoctorReport
from harness.lab.inventory import Lab
from harness.nightly.night import Night
from harness.results.known_issues import KnownIssues
from harness.results.record import CaseRecord, DeviceEvent
from harness.results.run_folder import RunInfo
from harness.site.build import SiteNote

PAST = re.compile(
    r"json\.loads?\b|JSONDecoder|raw_decode|import from_json\b|\bfrom json import|validate_json\b"
)
DEEP = "is nested deeper than 64 levels"
READER = "core/bounded_json.py"
# programs that can import nothing of ours; what they read we have written
ALONE = {
    "models/litert_worker.py",
    "models/worker.py",
    "models/shapes_worker.py",
    "reduce/reproduce.py",
}


class Small(BaseModel):
    schema_number: Annotated[Literal[3], Field(alias="schema")]
    names: list[str] = []


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
        READER,
        *ALONE,
    }


@given(values, st.booleans())
def test_what_json_says_is_read_as_it_is(value: Any, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    if "Infinity" not in text:
        assert parse_json(text) == value
        assert without_depths(text.encode()) == text.encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is no JSON: EOF while parsing a value at line 1 column 0"),
        (b'{"a":\n 1,}', "is no JSON: trailing comma at line 2 column 4"),
        (b'"\\ud800"', "is no JSON: unexpected end of hex escape at line 1 column 8"),
        (b'{"\\udc00x": 1}', "is no JSON: lone leading surrogate in hex escape at line 1 column 8"),
        (b'"\xed\xa0\x80"', "is no JSON: invalid unicode code point at line 1 column 2"),
        ('"\ud800"', "is no JSON: invalid unicode code point at line 1 column 2"),
        (b"NaN", "is no JSON: expected value at line 1 column 1"),
        (b"[1e999]", "has a number beyond 1e308"),
        (b'{"a": [%d]}' % (1 << 64), "has a whole number of more than 64 bits"),
        (b"9" * 5000, "is no JSON: number out of range at line 1 column 4302"),
        (b"[" * 65 + b"]" * 65, f"{DEEP} at line 1 column 65"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, f"{DEEP} at line 1 column 321"),
        (b"[\n" * 10**5, f"{DEEP} at line 65 column 1"),
        (b"]" * 1000, "is no JSON: expected value at line 1 column 1"),
        (b"[%b]" % (b"{}," * 300_000), "has more than 500,000 values"),
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_what_no_reader_can_hold_is_refused_with_its_place(
    content: bytes | str, problem: str
) -> None:
    with pytest.raises(JsonError) as refused:
        parse_json(content)
    assert str(refused.value) == problem


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
        with pytest.raises(JsonError, match=f"has more than {most - 1} values"):
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
    ("content", "problem"),
    [
        (b"{", "is no JSON: EOF while parsing an object at line 1 column 1"),
        (b"{}", "schema: Field required"),
        (b'{"schema": 4}', "is of schema 4; this version reads schema 3: a newer qnn-harness"),
        (b'{"schema": null}', "is damaged: its schema is None, which is no number"),
        (b'{"schema": 3, "names": ["a", 1]}', "names.1: Input should be a valid string"),
        (b'{"schema": 3, "names": ["\\ud800"]}', "is no JSON: unexpected end of hex escape"),
        (b'{"schema": 3, "x": %b1%b}' % (b"[" * 99, b"]" * 99), "is nested deeper than 64 levels"),
    ],
)
def test_a_model_says_its_first_problem(content: bytes, problem: str) -> None:
    for model in (Small, TypeAdapter(Small)):
        with pytest.raises((JsonError, ValidationError)) as refused:
            parse_model(model, content)
        assert problem_in(refused.value).startswith(problem)


def test_all_models_are_there() -> None:
    assert {RunInfo, CaseRecord, DeviceEvent, Night, SiteNote} < {*MODELS}


@pytest.mark.parametrize("model", [*MODELS, DoctorReport], ids=lambda model: model.__name__)
@pytest.mark.parametrize("schema", [b"true", b"1.0", b"2.0", b'"1"', b"null"])
def test_a_schema_is_a_number(model: type[BaseModel], schema: bytes) -> None:
    with pytest.raises(ValidationError) as refused:
        parse_model(TypeAdapter(model), b'{"schema": %b}' % schema)
    assert ("schema",) in [error["loc"] for error in refused.value.errors()]


class Figures(BaseModel):
    number: int = 0
    figure: float = 0


@pytest.mark.parametrize("content", [b'{"number": true}', b'{"number": "1"}', b'{"figure": true}'])
def test_no_number_is_none(content: bytes) -> None:
    with pytest.raises(ValidationError):
        parse_model(Figures, content)
