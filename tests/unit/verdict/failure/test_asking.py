"""What is asked where no line states the cause."""

from __future__ import annotations

from typing import Any

from harness.verdict.failure.asking import QUESTIONS, question
from harness.verdict.failure.explanation import Explained
from harness.verdict.failure.rules import RULES


def cause(id: str, confidence: Any = "possible", failure: int = 1) -> Explained:
    return Explained(
        id=id, confidence=confidence, words="w", fix="f", threads=(), lines=(), failure=failure
    )


def asked(*causes: Explained, files: int = 0) -> str | None:
    found = question(causes, files)
    return None if found is None else found.file


def test_the_command_that_tells_of_most_is_asked_for() -> None:
    assert asked(cause("fastrpc-denied"), cause("no-channel")) == "dev.txt"
    assert asked(cause("older-libraries"), cause("two-copies")) == "maps.txt"
    assert asked(cause("skel-not-found"), cause("invalid-config")) == "logcat.txt"
    assert asked(cause("no-dsp-session")) == "logcat.txt"


def test_less_sure_causes_and_other_failures_count_for_nothing() -> None:
    less = (cause("older-libraries"), cause("two-copies"), cause("mixed-libraries"))
    assert asked(cause("dsp-restarted", "likely"), *less) == "dmesg.txt"
    other = (cause("older-libraries", "likely", 2), cause("two-copies", "likely", 2))
    assert asked(cause("dsp-restarted", "likely", 1), *other) == "dmesg.txt"


def test_after_an_answer_the_next_is_asked_for_and_then_none() -> None:
    one = cause("no-dsp-session")
    assert [asked(one, files=files) for files in range(4)] == [
        *("logcat.txt", "dmesg.txt", "dsp.txt"),
        None,
    ]


def test_what_is_known_is_not_asked_for() -> None:
    assert asked() is None
    assert asked(cause("skel-not-found", "known")) is None
    assert asked(cause("op-unsupported")) is None


def test_questions_are_about_causes_that_there_are() -> None:
    assert {one for question in QUESTIONS for one in question.tells} <= {rule.id for rule in RULES}
    assert len({one.file for one in QUESTIONS}) == len(QUESTIONS)
