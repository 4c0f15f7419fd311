"""Rules of plug-ins beside the harness's own."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pluggy
import pytest

from harness.core import hooks
from harness.core.errors import ConfigError
from harness.diagnosis.any_log import rule_filter
from harness.diagnosis.rule import Rule, Sign, known
from harness.diagnosis.rules import all_rules, own_rules

RULES = own_rules()


@pytest.fixture
def manager() -> Iterator[pluggy.PluginManager]:
    manager = pluggy.PluginManager("pytest")
    hooks.use(manager)
    yield manager
    hooks.leave(manager)


def rule(name: str, *signs: Sign) -> Rule:
    return Rule(name, "it fails", "mend it", "nothing", signs)


def register(manager: pluggy.PluginManager, name: str, rules: object) -> None:
    plugin = types.ModuleType(name)
    implementation = pluggy.HookimplMarker("pytest")(lambda: rules)
    plugin.qnn_diagnosis_rules = implementation  # type: ignore[attr-defined]
    manager.register(plugin, name)


def test_rules_of_plug_ins_come_before_the_harness_s_own(manager: pluggy.PluginManager) -> None:
    first, second, third = (rule(name, known(f"{name} line")) for name in ("a", "b", "c"))
    assert not rule_filter().passes(b"c line")
    register(manager, "one", [first, second])
    assert all_rules() == (first, second, *RULES)
    register(manager, "two", iter([third]))
    assert all_rules() == (first, second, third, *RULES)
    assert all_rules() is all_rules()
    assert rule_filter().passes(b"c line")


def test_a_pattern_that_re2_does_not_know_is_searched_in_every_line(
    manager: pluggy.PluginManager, capfd: pytest.CaptureFixture[str]
) -> None:
    register(manager, "acme", [rule("twice", known(r"(\w+) \1"))])
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
    manager: pluggy.PluginManager, rules: object, problem: str
) -> None:
    register(manager, "acme", rules)
    with pytest.raises(ConfigError, match=f"plug-in acme: qnn_diagnosis_rules: {problem}"):
        all_rules()
