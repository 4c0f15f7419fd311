"""Signs and rules that fit, on rules made up for it: the table's own are in test_diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.diagnosis.chain import is_benign
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

SEEN = Symptoms(
    outcome="failed",
    apis=("QnnBackend_create", "QnnGraph_execute"),
    codes=(1002, 6999),
    messages=("a skel is missing", "a skel is old"),
    evidence=("SSR detected", "a skel is missing"),
    foreseen=(("arch-newer", "first"), ("arch-older", "second"), ("arch-older", "third")),
)
BENIGN = "libQnnHtpV73Skel.so is 32-bit instead of 64-bit"


def rule(*signs: Sign, name: str = "r", words: str = "w", threads: tuple[str, ...] = ()) -> Rule:
    return Rule(name, words, "f", "a", signs, threads)


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


def test_the_first_thing_that_preflight_said_of_it_is_told() -> None:
    foreseen = rule(possible(codes=(1002,)), likely(codes=(1002,), foreseen="arch-older"))
    fitting = foreseen.finding(SEEN)
    assert fitting == FittingRule(foreseen, "likely", (), "second")
    assert fitting.diagnosis(()).words == "as foreseen, second: w"
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


def test_a_diagnosis_says_what_is_known_of_its_code_and_names_its_first_thread() -> None:
    fitting = FittingRule(rule(words="<{note}>", threads=("a/b#7", "c/d")), "likely", ())
    assert fitting.rule.links == ("https://github.com/a/b/issues/7", "https://github.com/c/d")
    known_as = fitting.diagnosis((1002, 5000, 6999, 1999))
    assert known_as.words == "<end of the graph range, carries no cause>"
    assert (known_as.id, known_as.confidence, known_as.fix) == ("r", "likely", "f")
    assert known_as.thread == "https://github.com/a/b/issues/7"
    # of the DSP's own numbers none ends a range, though one is 1999
    assert fitting.diagnosis((0x80000400 + 1999, 1999)).words == (
        "<end of the common range, carries no cause>"
    )
    # 6998 has no meaning, but ends no range
    alone = FittingRule(rule(words="<{note}>"), "likely", ()).diagnosis((1002, 6998))
    assert (alone.words, alone.thread) == ("<>", None)


RULE_FILE = """\
schema: 1
patterns:
  backend: AcmeNpu
  opened: '%{backend}: opened'
rules:
  - id: acme
    words: it fails
    fix: mend it
    apart: nothing
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
    assert (rule.id, rule.threads, rule.unrelated) == ("acme", (), True)
    assert rule.signs == (
        known("AcmeNpu: E1|E2", absent="AcmeNpu: opened"),
        likely(codes=(1002,)),
    )


@pytest.mark.parametrize(
    ("text", "other", "problem"),
    [
        ("%{opened}", "%{closed}", "rules.yaml: no pattern is called 'closed'"),
        (
            "known:",
            "sure:",
            r"rules.yaml:11: rules\[0\].signs\[0\]: must have one of",
        ),
        (
            "likely:",
            "likely: a\n        known:",
            r"rules.yaml:13: .*must have one of",
        ),
        ("codes:", "code:", r"rules.yaml:14: rules\[0\].signs\[1\].code: "),
        ("    fix: mend it\n", "", r"rules.yaml:6: rules\[0\].fix: is missing"),
    ],
)
def test_a_mistake_in_a_file_of_rules_is_named_by_its_place(
    tmp_path: Path, text: str, other: str, problem: str
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULE_FILE.replace(text, other))
    with pytest.raises(ConfigError, match=problem):
        load_rules(path)
