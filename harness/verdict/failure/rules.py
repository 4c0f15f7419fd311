"""The table of known causes of failures, in its order (data).

A cause is as sure as the line that shows it (`rule.py`): first what a line states, then what lines
suggest, then what codes allow. One code has many causes: 1002 is a full protection domain, weights
that cannot be mapped, and a damaged binary. Among equally sure ones the order of the table decides.
Lines are as seen in the threads, or from the libraries themselves. What no rule recognises stays
unknown: better no diagnosis than a guess.
"""

from __future__ import annotations

from typing import Final

from harness.verdict.failure.rule import Rule
from harness.verdict.failure.rules_context import CONTEXT_RULES
from harness.verdict.failure.rules_graph import GRAPH_RULES
from harness.verdict.failure.rules_reach import REACH_RULES
from harness.verdict.failure.rules_session import SESSION_RULES

RULES: Final[tuple[Rule, ...]] = (*REACH_RULES, *SESSION_RULES, *CONTEXT_RULES, *GRAPH_RULES)
