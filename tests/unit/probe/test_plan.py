"""Plans: what is refused before it travels, and a text form that loses nothing."""

from __future__ import annotations

import string
from typing import get_args

import pytest
from hypothesis import given, strategies as st

from harness.core.codes import TENSOR_MEMORIES
from harness.core.errors import ConfigError
from harness.probe import ort_plan, plan
from harness.probe.plan import (
    LIMITS,
    SOURCE_FOLDER,
    VERBS,
    LogLevel,
    MemoryDetail,
    Plan,
    Settings,
    Step,
    loads,
    sealed,
)
from tests.properties import damaged, reached, reaches
from tests.snapshots import Snapshot
from tests.stand_in.plan_text import parse

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1)
REALS = st.floats(0, 1e30).map(lambda value: f"{value:.17g}")
CONTEXTS = st.integers(0, LIMITS["CONTEXTS_MAX"] - 1)
TENSORS = st.dictionaries(st.integers(0, LIMITS["TENSORS_MAX"] - 1), TEXTS, max_size=4)


@st.composite
def executions(draw: st.DrawFn) -> Step:
    fields = {
        "context": draw(st.integers(0, 99).map(str)),
        "graph": draw(st.integers(0, 255).map(str)),
    }
    for prefix in ("input", "expect", "save"):
        fields |= {f"{prefix}.{index}": file for index, file in draw(TENSORS).items()}
    optional = {"tolerance": REALS, "repeat": st.integers(1, 10**5).map(str)}
    return Step("execute", fields | draw(st.fixed_dictionaries({}, optional=optional)))


STEPS = st.one_of(
    executions(),
    st.sampled_from(["log-create", "backend-create", "cleanup", "noop", "hang"]).map(Step),
    TEXTS.map(plan.backend_load),
    TEXTS.map(plan.system_load),
    st.builds(plan.context_load, CONTEXTS, TEXTS),
    st.builds(
        ort_plan.context_load_shared,
        st.integers(0, 99),
        TEXTS,
        max_spill_fill_bytes=st.integers(0, 2**62),
        group=st.none() | st.integers(0, 99),
    ),
    st.builds(
        ort_plan.context_load_list,
        st.integers(0, 99),
        st.lists(TEXTS, min_size=1, max_size=LIMITS["LIST_MAX"]),
        share=st.booleans(),
    ),
    st.builds(
        ort_plan.io_bind,
        st.integers(0, 99),
        st.sampled_from(TENSOR_MEMORIES),
        inputs=st.lists(TEXTS, max_size=3),
        expected=st.lists(TEXTS, max_size=3),
    ),
    st.builds(
        ort_plan.io_run,
        st.integers(0, 99),
        repeat=st.integers(1, 10**5),
        tolerance=st.floats(0, 1e30),
        profile=st.sampled_from([None, "basic", "detailed"]),
    ),
    st.integers(0, 99).map(ort_plan.io_release),
    st.builds(ort_plan.memory_sample, TEXTS, all_back=st.booleans()),
    st.builds(plan.context_inspect, TEXTS, offset=st.integers(0, 2**62)),
    st.builds(lambda soc, arch: plan.device_create(soc=soc, arch=arch), *[st.integers(0, 999)] * 2),
)
SETTINGS = st.builds(
    Settings,
    deadline_ms=st.none() | st.integers(1, 10**9),
    linger_ms=st.integers(0, 10**6 - 1),
    log_level=st.sampled_from(["off", "error", "warn", "info", "verbose", "debug"]),
    max_log_bytes=st.integers(0, 10**9),
    memory=st.sampled_from(["off", "rss", "pss"]),
)
PLANS = st.builds(Plan, st.lists(STEPS, max_size=6).map(tuple), SETTINGS)


@given(PLANS)
def test_a_plan_survives_its_text(drawn: Plan) -> None:
    text = drawn.text()
    assert parse(text) == drawn
    assert set(text) <= set(string.printable) - set("\t\r\v\f")
    assert text.count("\n") == len(drawn.steps) + 2


@given(PLANS, st.data())
def test_a_plan_cut_anywhere_is_refused(drawn: Plan, data: st.DataObject) -> None:
    text = drawn.text()
    with pytest.raises(ConfigError):
        parse(text[: data.draw(st.integers(0, len(text) - 1))])


@given(PLANS, st.data())
def test_a_plan_with_one_character_changed_is_refused(drawn: Plan, data: st.DataObject) -> None:
    text = drawn.text()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters().filter(lambda item: item != text[place]))
    with pytest.raises(ConfigError):
        parse(text[:place] + other + text[place + 1 :])


@reaches(0.01)
@given(damaged("backend-load lib=/a/b.so\nsleep ms=5\ncontext-free context=3"))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    for whole in (text, sealed(text.split("\n"))):
        try:
            created = parse(whole)
        except ConfigError:
            continue
        reached()
        assert parse(created.text()) == created


def test_a_name_that_is_no_utf8_reaches_the_device_as_it_is() -> None:
    name = b"/sdcard/\xff.bin".decode("utf-8", "surrogateescape")
    created = Plan((plan.context_load(0, name),))
    assert "file=/sdcard/%FF.bin" in created.text()
    assert parse(created.text()) == created


def test_the_text_of_a_plan() -> None:
    steps = (
        plan.backend_load("/data/libQnnHtp.so"),
        plan.device_create(soc=43),
        plan.context_load(3, "/a b/100%"),
        plan.execute(3, inputs=["x"], expected=[None, "y"], tolerance=0.5, repeat=2),
        Step("cleanup"),
        plan.context_free(3),
    )
    assert Plan(steps, Settings(deadline_ms=1000)).text() == (
        "probe-plan 2 bytes=269 crc32=9b97cff8\n"
        "set log_level=warn max_log_bytes=1048576 memory=pss deadline_ms=1000\n"
        "backend-load lib=/data/libQnnHtp.so\n"
        "device-create soc=43\n"
        "context-load context=3 file=/a%20b/100%25\n"
        "execute context=3 graph=0 input.0=x expect.1=y tolerance=0.5 repeat=2\n"
        "cleanup\n"
        "context-free context=3\n"
    )


def test_a_step_says_what_was_asked_for() -> None:
    lines = {
        "execute context=3 graph=0 tolerance=0 repeat=1": plan.execute(3),
        "execute context=3 graph=1 save.1=/o tolerance=0.10000000000000001 repeat=1": plan.execute(
            3, graph=1, saved=[None, "/o"], tolerance=0.1
        ),
        "context-inspect file=/a offset=0 bytes=7": plan.context_inspect("/a", offset=0, size=7),
        "io-bind context=1 graph=0 memory=raw input.0=/i": ort_plan.io_bind(
            1, "raw", inputs=["/i"]
        ),
        "io-run context=1 tolerance=0 repeat=1": ort_plan.io_run(1),
        "memory-sample label=x back_ms=2000": ort_plan.memory_sample("x", all_back=True),
        "context-load-list first=4 share=1 file.0=/a": ort_plan.context_load_list(4, ["/a"]),
        "context-load context=5 file=/a max_spill_fill=9": ort_plan.context_load_shared(
            5, "/a", max_spill_fill_bytes=9
        ),
    }
    assert [step.line() for step in lines.values()] == list(lines)


EXECUTE = {"context": "0", "graph": "0"}


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("explode", {}),
        ("noop", {"lib": "x"}),
        ("backend-load", {}),
        ("backend-load", {"lib": ""}),
        ("backend-load", {"lib": "a\0b"}),
        ("backend-load", {"lib": "\ud800"}),
        ("context-load", {"context": "-1", "file": "x"}),
        ("context-load", {"context": "8192", "file": "x"}),
        ("context-load", {"context": "1", "file": "x", "max_bytes": "1e9"}),
        *(("execute", EXECUTE | {field: "x"}) for field in ("input", "input.", "input.00")),
        ("execute", EXECUTE | {"tolerance": "nan"}),
        ("execute", EXECUTE | {f"input.{number}": "x" for number in range(80)}),
        ("io-bind", EXECUTE | {"memory": "ion"}),
        ("context-load-list", {"first": "0"}),
        ("set", {"memory": "off"}),
    ],
)
def test_a_wrong_step_is_refused(verb: str, fields: dict[str, str]) -> None:
    """Those of the table of verbs: tests/integration/probe/test_process.py."""
    with pytest.raises(ConfigError):
        Step(verb, fields)


def test_what_a_wrong_step_is_told(snapshot: Snapshot) -> None:
    for verb, fields in (("explode", {}), ("noop", {"lib": "x"}), ("backend-load", {})):
        with snapshot.raises(ConfigError):
            Step(verb, fields)


@pytest.mark.parametrize(
    "wrong",
    [
        {"deadline_ms": 0},
        {"linger_ms": -1},
        {"max_log_bytes": -1},
        {"log_level": "loud"},
        {"memory": "all"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_no_more_is_taken_than_the_probe_holds() -> None:
    assert len(Plan((Step("noop"),) * 65536).steps) == 65536
    with pytest.raises(ConfigError, match="65537"):
        Plan((Step("noop"),) * 65537)
    longest = "x" * 16383
    assert sealed([longest]).endswith(f"{longest}\n")
    with pytest.raises(ConfigError, match="16384") as caught:
        sealed(["noop", f"{longest}x"])
    # below the line that seals the plan
    assert caught.value.line == 3
    whole = [longest] * 512
    assert sealed(whole).startswith("probe-plan 2 bytes=8388608 crc32=")
    with pytest.raises(ConfigError, match="8388609"):
        sealed([*whole, ""])


def test_all_that_the_table_says_is_read() -> None:
    text = (SOURCE_FOLDER / "verbs.h").read_text()
    body = text[text.index("LIMIT(PLAN") :]
    assert len(LIMITS) == body.count("LIMIT(")
    assert len(VERBS) == body.count("VERB(") + body.count("LINE(")
    fields = [field for fields in VERBS.values() for field in fields.values()]
    for words, count in (
        (("MUST(",), sum(field.required for field in fields)),
        (("MUST(", "MAY(", "LIST("), len(fields)),
        (("ONE_OF(",), sum(bool(field.words) for field in fields)),
    ):
        assert sum(body.count(word) for word in words) == count
    assert VERBS["io-run"]["repeat"].most == LIMITS["REPEATS_MAX"]
    assert VERBS["set"]["log_level"].words == get_args(LogLevel)
    assert VERBS["set"]["memory"].words == get_args(MemoryDetail)
    assert VERBS["io-bind"]["memory"].words == TENSOR_MEMORIES


def test_how_many_contexts_a_step_loads() -> None:
    several = ort_plan.context_load_list(0, ["/d/a.bin", "/d/b.bin", "/d/c.bin"], share=True)
    session = Step("ort-session", {"context": "0", "file": "/d/a.onnx"})
    steps = (plan.context_load(3, "/d/a.bin"), several, session, Step("noop"))
    assert [loads(step) for step in steps] == [1, 3, 1, 0]
