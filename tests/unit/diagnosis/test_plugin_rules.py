"""Rules of plug-ins beside the harness's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.core.errors import ConfigError
from harness.diagnosis.any_log import rule_filter
from harness.diagnosis.rule import Rule, Sign, known
from harness.diagnosis.rules import all_rules, own_rules

RULES = own_rules()


def rule(name: str, *signs: Sign) -> Rule:
    return Rule(name, "it fails", "mend it", "nothing", signs)


def test_rules_of_plug_ins_come_before_the_harness_s_own(add_plug_in: Callable[..., None]) -> None:
    first, second, third = (rule(name, known(f"{name} line")) for name in ("a", "b", "c"))
    assert not rule_filter().passes(b"c line")
    add_plug_in("qnn_diagnosis_rules", [first, second], "one")
    assert all_rules() == (first, second, *RULES)
    add_plug_in("qnn_diagnosis_rules", iter([third]), "two")
    assert all_rules() == (first, second, third, *RULES)
    assert all_rules() is all_rules()
    assert rule_filter().passes(b"c line")


def test_a_pattern_that_re2_does_not_know_is_searched_in_every_line(
    add_plug_in: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    add_plug_in("qnn_diagnosis_rules", [rule("twice", known(r"(\w+) \1"))])
    assert rule_filter().passes(b"anything")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (["a rule"], "TypeError: 'a rule' is no Rule of harness.diagnosis.rule"),
        ([rule("no-memory")], "ValueError: a rule no-memory exists already; choose another id"),
        ([rule("a"), rule("a")], "ValueError: a rule a exists already"),
        ([rule("a", known("("))], r"ValueError: rule a: pattern '\(': missing \)"),
        (
            [rule("a", Sign("sure", "x"))],  # type: ignore[arg-type]
            "ValueError: rule a: confidence 'sure' is not known, likely or possible",
        ),
        ((1 / divisor for divisor in (0,)), "ZeroDivisionError: "),
    ],
)
def test_a_wrong_rule_is_an_error_that_names_the_plug_in(
    add_plug_in: Callable[..., None], rules: object, problem: str
) -> None:
    add_plug_in("qnn_diagnosis_rules", rules)
    with pytest.raises(ConfigError, match=f"plug-in acme: qnn_diagnosis_rules: {problem}"):
        all_rules()
