"""The page of causes proves itself: each example, made a log, is answered by its own rule first.

Whoever wrote the log: with what logcat, journald, dmesg, Windows and GitHub put before a line, cut
at 120 columns, in colours, and in the middle of other lines.
"""

import random
import re
from collections.abc import Callable
from typing import Final

import pytest

from harness.diagnosis.rule_sources import own_rules
from tests.unit.diagnosis.failure_page import PAGE
from tests.unit.diagnosis.failure_rows import answer_to
from tests.unit.diagnosis.test_field_logs import NOISE
from tests.unit.diagnosis.test_recorded_chains import RECORDED

RULES = own_rules()

OFTEN: Final = (
    "alone",
    "cut",
    "logcat",
    "journald",
    "dmesg",
    "Windows",
    "GitHub",
    "red",
    "on a terminal of 80 columns",
)
EXAMPLE: Final = re.compile(r"    (?P<confidence>known|likely|possible): (?P<text>.+)")
COLUMNS: Final = 120
OTHERS: Final = 10_000


def before(prefix: str, end: str = "\n") -> Callable[[str], str]:
    """Every line of an example on its own, behind this."""
    return lambda text: "".join(f"{prefix}{line}{end}" for line in text.split(" / "))


def wrapped(columns: int) -> Callable[[str], str]:
    """As a terminal of this width shows it, and copies it."""

    def shown(text: str) -> str:
        return "\n".join(
            line[index : index + columns]
            for line in text.split(" / ")
            for index in range(0, max(1, len(line)), columns)
        )

    return shown


DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "alone": lambda text: text,
    "line by line": before(""),
    "cut": lambda text: text[:COLUMNS],
    "logcat": before("12-07 04:15:01.332 17202 17203 E qnn     : "),
    "logcat -v brief": before("E/qnn     (17202): "),
    "logcat -v tag": before("E/qnn: "),
    "logcat -v year": before("2026-12-07 04:15:01.332 10123 17202 17203 E qnn     : "),
    "Android Studio": before("2026-12-07 04:15:01.332 17202-17203 com.example.app  E  "),
    "journald": before("Nov 26 09:12:09 board app[4711]: "),
    "journald -o short-iso": before("2026-11-26T09:12:09+0000 board app[4711]: "),
    "dmesg": before("[   26.079757] "),
    "dmesg -T": before("[Thu Nov 26 09:12:09 2026] "),
    "dmesg -x": before("kern  :err   : [   26.079757] "),
    "kernel in journald": before("Nov 26 09:12:09 board kernel: "),
    "Windows": before(
        "2026-04-04 21:24:37.4152414 [E:onnxruntime:, qnn_ep.cc:249 QnnLogging] ", "\r\n"
    ),
    "Windows, a viewer of events": before("11/26/2026 9:12:09 AM  ", "\r\n"),
    "GitHub": before("2026-09-25T11:36:36.9508615Z "),
    "GitHub, an error": before("2026-09-25T11:36:36.9508615Z ##[error]"),
    "GitHub, downloaded": before("test\tRun tests\t2026-09-25T11:36:36.9508615Z "),
    "pytest": before("E       "),
    "a quote": before("> "),
    "on a terminal of 80 columns": wrapped(80),
    "on a terminal of 120 columns": wrapped(120),
    "red": before("\x1b[31;1m", "\x1b[0m\n"),
    "in colours": before("\x1b[2m09:12:09\x1b[0m \x1b[38;5;196mERROR\x1b[0m \x1b[K", "\x1b[m\n"),
}
BY_DAY: Final = [
    pytest.param(disguise, marks=() if disguise in OFTEN else pytest.mark.nightly)
    for disguise in DISGUISES
]


def examples() -> list[tuple[str, str]]:
    """Id and text of each example, as the page has them."""
    chapter_rows, rule = [], ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("### "):
            rule = line[4:]
        elif match := EXAMPLE.fullmatch(line):
            chapter_rows.append((f"{rule} {match['confidence']}", match["text"]))
    return chapter_rows


def middle(text: str, others: int = OTHERS) -> str:
    """An example in the middle of this many other lines, each of which differs."""
    noise = [f"{number} {NOISE[number % len(NOISE)]} {number}" for number in range(others)]
    return "\n".join([*noise[: others // 2], *text.split(" / "), *noise[others // 2 :]])


def test_every_cause_has_examples_on_the_page() -> None:
    assert len(examples()) > 240
    # what only preflight can tell is in no log
    causes = {rule.id for rule in RULES if not all(sign.foreseen for sign in rule.signs)}
    assert {expected.split()[0] for expected, _ in examples()} == causes


@pytest.mark.parametrize("disguise", BY_DAY)
def test_each_example_is_answered_by_its_own_rule(disguise: str) -> None:
    disguised = [(expected, DISGUISES[disguise](text)) for expected, text in examples()]
    wrong = [
        (expected, text, got)
        for expected, text in disguised
        if (got := answer_to(text)) != expected
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "expected", random.Random(7).sample(examples(), 8), ids=lambda example: example[0]
)
def test_an_example_is_found_among_other_lines(expected: tuple[str, str]) -> None:
    assert answer_to(middle(expected[1])) == expected[0]


@pytest.mark.nightly
def test_each_example_is_found_among_other_lines() -> None:
    answers = [(expected, answer_to(middle(text)), text) for expected, text in examples()]
    assert [entry for entry in answers if entry[0] != entry[1]] == []


@pytest.mark.parametrize(
    "disguise", [disguise for disguise in BY_DAY if disguise.values[0] != "cut"]
)
def test_chains_of_the_real_libraries_are_answered_whoever_wrote_them_down(disguise: str) -> None:
    got = [answer_to("\n".join(map(DISGUISES[disguise], lines))) for _, lines, _ in RECORDED]
    assert got == [expected for _, _, expected in RECORDED]
