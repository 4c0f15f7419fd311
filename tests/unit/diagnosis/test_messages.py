"""Messages that tell of a cause, and the diagnosis of each of them alone."""

import re

import pytest

from harness.diagnosis.error_chain import message_table, read_messages
from harness.diagnosis.rule_sources import own_rules
from tests.messages.corpus import corpus, wrong_answers

MESSAGES = corpus()


def test_every_pattern_of_the_table_of_messages_is_said_by_somebody() -> None:
    message = "\n".join(row.sample for row in MESSAGES)
    idle = [
        pattern
        for patterns in message_table().values()
        for pattern in patterns
        if not re.search(".{0,80}?".join(map(re.escape, pattern.split("*"))), message)
    ]
    assert idle == []
    causes = {rule.id for rule in own_rules()}
    assert {cause for _, cause in message_table() if cause} <= causes


@pytest.mark.parametrize("row", ["a pattern\tknown", "x\tsure\tno-memory", "x\tknown\ta\tb", ""])
def test_a_row_that_cannot_be_read_is_named(row: str) -> None:
    with pytest.raises(ValueError, match=r"messages\.tsv:3: "):
        read_messages(f"pattern\trole\tcause\nx\tbenign\t\n{row}\n")


def test_each_message_is_answered_with_its_cause() -> None:
    assert wrong_answers(MESSAGES) == []
