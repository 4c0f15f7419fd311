"""Signs and rules that fit, and rules of plug-ins; the table's own are in test_diagnosis."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.diagnosis.error_chain import is_benign
from harness.diagnosis.log_reader import rule_filter
from harness.diagnosis.rule import (
    FittingRule,
    Rule,
    Sign,
    Symptoms,
    findings,
    known,
    likely,
    load_rules,
    possible,
)
from harness.diagnosis.rule_sources import all_rules, own_rules
from tests.snapshots import Snapshot

SEEN = Symptoms(
    outcome="failed",
    apis=("QnnBackend_create", "QnnGraph_execute"),
    codes=(1002, 6999),
    messages=("a skel is missing", "a skel is old"),
    evidence=("SSR detected", "a skel is missing"),
    foreseen=(("arch-newer", "first"), ("arch-older", "second"), ("arch-older", "third")),
)
BENIGN = "libQnnHtpV73Skel.so is 32-bit instead of 64-bit"


def rule(*signs: Sign, name: str = "r", cause: str = "w", links: tuple[str, ...] = ()) -> Rule:
    return Rule(name, cause, "f", "a", signs, links)


@pytest.mark.parametrize(
    ("sign", "lines"),
    [
        (possible(), None),
        (possible(absent="nowhere"), None),
        (possible(foreseen="arch-older"), None),
        (possible(codes=(7, 1002)), ()),
        (possible(codes=(0xABCD03EA,)), ()),
        (possible(codes=(1003,)), None),
        (possible(api="Qnn.*_execute"), ()),
        (possible(api="QnnGraph"), None),
        (possible(outcome="failed"), ()),
        (possible(outcome="crashed"), None),
        (possible(text="skel"), ("a skel is missing", "a skel is old")),
        (possible(text="SSR"), None),
        (possible(evidence="SSR"), ("SSR detected",)),
        (possible(evidence="old"), None),
        (possible(text="skel", evidence="nothing"), None),
        (possible(text="nothing", evidence="SSR"), None),
        (possible(text="missing", evidence="a skel|SSR"), ("a skel is missing", "SSR detected")),
        (possible(text="old", codes=(1003,)), None),
        (possible(text="old", outcome="failed", codes=(6999,)), ("a skel is old",)),
        (possible(text="old", absent="missing"), None),
        (possible(text="old", absent="SSR"), None),
        (possible(text="old", absent="new"), ("a skel is old",)),
        (possible(codes=(1002,), foreseen="arch-older"), ()),
        (possible(codes=(1002,), foreseen="arch"), None),
    ],
)
def test_all_that_a_sign_asks_for_must_hold(sign: Sign, lines: tuple[str, ...] | None) -> None:
    assert sign.match(SEEN) == lines


def test_a_line_counts_by_its_first_thousand_characters_and_unless_it_is_benign() -> None:
    for begin, fits in (("x" * 996, True), ("x" * 997, False)):
        symptoms = Symptoms("failed", messages=(f"{begin}skel",))
        assert (possible(text="skel").match(symptoms) is not None) is fits
    assert possible(text="Skel").match(Symptoms("failed", messages=(BENIGN,))) is None
    padding = "x" * (1000 - len(BENIGN))
    assert is_benign(padding + BENIGN)
    assert not is_benign("x" + padding + BENIGN)


def test_a_rule_is_as_sure_as_its_surest_sign_and_shows_the_lines_of_that() -> None:
    both = rule(likely(text="old"), possible(codes=(1002,)), likely(text="skel"))
    assert both.finding(SEEN) == FittingRule(both, "likely", ("a skel is old", "a skel is missing"))
    # a code that stands alone has no line, and is a sign all the same
    coded = rule(known(text="nothing"), possible(codes=(1002,)))
    assert coded.finding(SEEN) == FittingRule(coded, "possible", ())
    assert rule(known(text="nothing")).finding(SEEN) is None


def test_the_first_thing_that_preflight_said_of_it_is_told(snapshot: Snapshot) -> None:
    foreseen = rule(possible(codes=(1002,)), likely(codes=(1002,), foreseen="arch-older"))
    fitting = foreseen.finding(SEEN)
    assert fitting == FittingRule(foreseen, "likely", (), "second")
    assert fitting.diagnosis(()).words == snapshot
    assert Sign("likely", foreseen="arch.*").foreseen_by(SEEN) == "first"
    assert Sign("likely").foreseen_by(SEEN) is None


def test_surer_rules_come_first_and_equally_sure_ones_as_the_table_has_them() -> None:
    rules = [
        rule(possible(codes=(1002,)), name="code"),
        rule(likely(text="old"), name="line"),
        rule(known(text="gone"), name="other"),
        rule(known(text="missing"), name="stated"),
        rule(likely(text="missing"), name="line too"),
    ]
    assert [finding.rule.id for finding in findings(SEEN, rules)] == [
        "stated",
        "line",
        "line too",
        "code",
    ]


def test_a_diagnosis_says_what_is_known_of_its_code_and_names_its_first_thread(
    snapshot: Snapshot,
) -> None:
    fitting = FittingRule(rule(cause="<{note}>", links=("a/b#7", "c/d")), "likely", ())
    assert fitting.rule.urls == ("https://github.com/a/b/issues/7", "https://github.com/c/d")
    known_as = fitting.diagnosis((1002, 5000, 6999, 1999))
    assert known_as.words == snapshot
    assert (known_as.id, known_as.confidence, known_as.fix) == ("r", "likely", "f")
    assert known_as.thread == "https://github.com/a/b/issues/7"
    # of the DSP's own numbers none ends a range, though one is 1999
    assert fitting.diagnosis((0x80000400 + 1999, 1999)).words == snapshot
    # 6998 has no meaning, but ends no range
    alone = FittingRule(rule(cause="<{note}>"), "likely", ()).diagnosis((1002, 6998))
    assert (alone.words, alone.thread) == ("<>", None)


RULE_FILE = """\
schema: 1
patterns:
  backend: AcmeNpu
  opened: '%{backend}: opened'
rules:
  - id: acme
    cause: it fails
    fix: mend it
    distinction: nothing
    signs:
      - known: ['%{backend}: E1', '|E2']
        absent: '%{opened}'
      - likely:
        codes: [0x3ea]
"""


def test_rules_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULE_FILE)
    (rule,) = load_rules(path)
    assert (rule.id, rule.links, rule.unrelated) == ("acme", (), True)
    assert rule.signs == (known("AcmeNpu: E1|E2", absent="AcmeNpu: opened"), likely(codes=(1002,)))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("%{opened}", "%{closed}"),
        ("known:", "sure:"),
        ("likely:", "likely: a\n        known:"),
        ("    fix: mend it\n", ""),
    ],
)
def test_a_mistake_in_a_file_of_rules_is_named_by_its_place(
    tmp_path: Path, text: str, other: str, snapshot: Snapshot
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULE_FILE.replace(text, other))
    with snapshot.raises(ConfigError):
        load_rules(path)


def named(name: str, *signs: Sign) -> Rule:
    return Rule(name, "it fails", "mend it", "nothing", signs)


def test_rules_of_plug_ins_come_before_the_harness_s_own(add_plug_in: Callable[..., None]) -> None:
    first, second, third = (named(name, known(f"{name} line")) for name in ("a", "b", "c"))
    assert not rule_filter().passes(b"c line")
    add_plug_in("qnn_diagnosis_rules", [first, second], "one")
    assert all_rules() == (first, second, *own_rules())
    add_plug_in("qnn_diagnosis_rules", iter([third]), "two")
    assert all_rules() == (first, second, third, *own_rules())
    assert all_rules() is all_rules()
    assert rule_filter().passes(b"c line")


def test_a_pattern_that_re2_does_not_know_is_searched_in_every_line(
    add_plug_in: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    add_plug_in("qnn_diagnosis_rules", [named("twice", known(r"(\w+) \1"))])
    assert rule_filter().passes(b"anything")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "rules",
    [
        ["a rule"],
        [named("no-memory")],
        [named("a"), named("a")],
        [named("a", Sign("sure", "x"))],  # type: ignore[arg-type]
    ],
    ids=["none", "ours", "twice", "confidence"],
)
def test_a_wrong_rule_is_an_error_that_names_the_plug_in(
    add_plug_in: Callable[..., None], rules: object, snapshot: Snapshot
) -> None:
    add_plug_in("qnn_diagnosis_rules", rules)
    with snapshot.raises(ConfigError):
        all_rules()


def test_a_pattern_that_python_does_not_know_is_an_error(add_plug_in: Callable[..., None]) -> None:
    add_plug_in("qnn_diagnosis_rules", [named("a", known("("))])
    with pytest.raises(ConfigError, match=r"acme: qnn_diagnosis_rules: .*rule a: pattern '\('"):
        all_rules()
