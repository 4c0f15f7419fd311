"""Plans: what is refused before it travels, and a text form that loses nothing."""

import string
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.probe import ort_plan, plan
from harness.probe.plan import (
    VERBS,
    Field,
    Plan,
    Settings,
    Step,
    loads,
    sealed,
)
from tests.snapshots import Snapshot

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1)
REALS = st.floats(0, 1e30).map(lambda value: f"{value:.17g}")


def values(rule: Field) -> st.SearchStrategy[str]:
    if rule.kind == "word":
        return st.sampled_from(rule.words)
    if rule.kind == "number":
        return st.integers(rule.least, rule.most).map(str)
    return REALS if rule.kind == "real" else TEXTS


def steps(verb: str) -> st.SearchStrategy[Step]:
    """Steps of a verb, with any of its fields; one of each list."""
    rules = VERBS[verb].items()
    required = {key: values(rule) for key, rule in rules if rule.required}
    optional = {
        f"{key}1" if key.endswith(".") else key: values(rule)
        for key, rule in rules
        if not rule.required
    }
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: Step(verb, fields))


STEPS = st.sampled_from([verb for verb in VERBS if verb != "set"]).flatmap(steps)


def read_line(line: str) -> Step:
    verb, *fields = line.split(" ")
    pairs = (field.partition("=") for field in fields)
    texts = {key: unquote_to_bytes(text).decode(errors="surrogateescape") for key, _, text in pairs}
    return Step(verb, texts)


@given(st.lists(STEPS, max_size=6))
def test_a_plan_survives_its_text(drawn: list[Step]) -> None:
    text = Plan(tuple(drawn)).text()
    assert set(text) <= set(string.printable) - set("\t\r\v\f")
    _, settings, *lines = text.splitlines()
    assert settings == Settings().line()
    assert [read_line(line) for line in lines] == drawn


def test_a_name_that_is_no_utf8_reaches_the_device_as_it_is() -> None:
    name = b"/sdcard/\xff.bin".decode("utf-8", "surrogateescape")
    line = plan.context_load(0, name).line()
    assert line == "context-load context=0 file=/sdcard/%FF.bin"


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
        "context-load-list first=4 file.0=/a custom.5=1": ort_plan.context_load_list(4, ["/a"]),
        "context-load context=7 file=/a standard.7=1": plan.context_load(
            7, "/a", options={"persistent_binary": 1}
        ),
        "io-release context=1": ort_plan.io_release(1),
    }
    assert [step.line() for step in lines.values()] == list(lines)


EXECUTE = {"context": "0", "graph": "0"}


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("backend-load", {"lib": ""}),
        ("backend-load", {"lib": "a\0b"}),
        ("backend-load", {"lib": "\ud800"}),
        ("context-load", {"context": "1", "file": "x", "max_bytes": "1e9"}),
        ("context-load", {"context": "1", "file": "x", "custom.64": "1"}),
        ("context-load", {"context": "1", "file": "x", "standard.1": "x"}),
        *(("execute", EXECUTE | {field: "x"}) for field in ("input", "input.", "input.00")),
        ("execute", EXECUTE | {"tolerance": "nan"}),
        ("execute", EXECUTE | {f"input.{number}": "x" for number in range(80)}),
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


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ConfigError):
        Settings(deadline_ms=0)


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


def test_how_many_contexts_a_step_loads() -> None:
    several = ort_plan.context_load_list(0, ["/d/a.bin", "/d/b.bin", "/d/c.bin"])
    session = Step("ort-session", {"context": "0", "file": "/d/a.onnx"})
    steps = (plan.context_load(3, "/d/a.bin"), several, session, Step("noop"))
    assert [loads(step) for step in steps] == [1, 3, 1, 0]
