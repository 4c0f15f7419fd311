"""The rules of the harness, which are in `rules.yaml`, and those of plug-ins."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

import pluggy

from harness.core import hooks
from harness.core.errors import ConfigError, raised_text
from harness.diagnosis.rule import CONFIDENCES, Rule, load_rules


@cache
def own_rules() -> tuple[Rule, ...]:
    """Return the harness's own rules, read once."""
    return load_rules(Path(__file__).with_name("rules.yaml"))


@pluggy.HookimplMarker("pytest")
def qnn_diagnosis_rules() -> Iterable[Rule]:
    """Return the harness's own rules."""
    return own_rules()


def all_rules() -> tuple[Rule, ...]:
    """Return the rules of plug-ins, in the order in which these were loaded, then the harness's.

    Raises ConfigError, which names the plug-in, for what is no rule, cannot match, or has an id
    that exists.
    """
    hooks.add(sys.modules[__name__], __name__)
    return _merged(tuple(hooks.hooks().qnn_diagnosis_rules.get_hookimpls()))


@lru_cache(4)
def _merged(_: tuple[pluggy.HookImpl, ...]) -> tuple[Rule, ...]:
    by_plugin = dict(hooks.results("qnn_diagnosis_rules"))
    own = tuple(by_plugin.pop(__name__, ()))
    known = {rule.id: rule for rule in own}
    for plugin, rules in by_plugin.items():
        try:
            for rule in rules or ():
                _require_valid(rule, known)
                known[rule.id] = rule
        except Exception as error:
            where = f"plug-in {plugin}: qnn_diagnosis_rules"
            raise ConfigError(raised_text(where, error)) from error
    return (*[*known.values()][len(own) :], *own)


def _require_valid(rule: Rule, known: Mapping[str, Rule]) -> None:
    """Raise TypeError or ValueError for what is no rule, cannot match, or has a known id."""
    if not isinstance(rule, Rule):
        raise TypeError(f"{rule!r:.80} is not a Rule of harness.diagnosis.rule")
    if rule.id in known:
        raise ValueError(f"a rule {rule.id} already exists; choose another id")
    for sign in rule.signs:
        if sign.confidence not in CONFIDENCES:
            words = f"{', '.join(CONFIDENCES[:-1])} or {CONFIDENCES[-1]}"
            raise ValueError(f"rule {rule.id}: confidence {sign.confidence!r} is not {words}")
        for pattern in (sign.text, sign.evidence, sign.absent, sign.api, sign.foreseen):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"rule {rule.id}: pattern {pattern!r}: {error}") from error
