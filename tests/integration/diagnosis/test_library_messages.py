"""All messages that the real libraries can write: those without a known cause get no diagnosis."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.integration.conftest import RuntimeFor
from tests.messages.binaries import messages_in, origin_of
from tests.messages.corpus import Message, corpus, wrong_answers

VERSION = "2.51.0"


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
        table.get(pattern, Message(pattern, "+".join(sorted(names))))
        for pattern, names in origins.items()
    ]
    assert sum(message.role != "nothing" for message in messages) > 700
    assert wrong_answers(messages) == []
