"""All messages that the real libraries can write: those without a known cause get no diagnosis.

The corpus has one of those that the same rules answer; of the others the project's table tells.
"""

import re
from collections import defaultdict
from dataclasses import replace

import pytest

from harness.diagnosis.error_chain import message_table, messages_of
from tests.integration.conftest import RuntimeFor
from tests.messages.binaries import messages_in, origin_of
from tests.messages.corpus import Message, corpus, wrong_answers

VERSION = "2.51.0"


def stated(message: Message) -> Message:
    """Return a message with what the project's table of messages says of it, if it does."""
    for role, cause in message_table():
        if re.search(messages_of(role, cause), message.sample):
            return replace(message, role=role, cause=cause)  # type: ignore[arg-type]
    return message


@pytest.mark.slow
def test_messages_of_the_real_libraries(runtime_for: RuntimeFor) -> None:
    """The libraries for linux-arm64 come with stubs and skels; a message may need a new row."""
    origins: defaultdict[str, set[str]] = defaultdict(set)
    for file in runtime_for(VERSION, "linux-arm64").root.rglob("*.so"):
        if library := origin_of(file.name):
            origin, has_levels = library
            for pattern in messages_in(file.read_bytes(), has_levels):
                origins[pattern].add(origin)
    assert {origin for names in origins.values() for origin in names} == {
        *("gpu", "htp", "ort-qnn", "skel", "stub", "system")
    }
    assert len(origins) > 8_000
    table = {message.pattern: message for message in corpus()}
    messages = [
        table.get(pattern) or stated(Message(pattern, "+".join(sorted(names))))
        for pattern, names in origins.items()
    ]
    assert sum(message.role != "nothing" for message in messages) > 700
    assert wrong_answers(messages) == []
