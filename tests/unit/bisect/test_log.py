"""The log: killed at any moment, edited, damaged."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.bisect.bad_condition import Question
from harness.bisect.folder import Answered, Begun, Concluded, Entry, Resumed, read_log, to_line
from harness.bisect.result import AxisFinding, CornersFinding
from harness.bisect.search import AxisSpec, CornerSpec
from harness.bisect.version_search import search_of
from harness.core.errors import ConfigError
from tests.unit.bisect.histories import World, axis, changing, corners, task


def written(spec: AxisSpec | CornerSpec, world: World) -> tuple[str, list[Any]]:
    """The log of a whole search, and what it asked at each of its lines."""
    first_line = Begun(spec=task(spec))
    search = search_of(read_log(to_line(first_line)))
    entries: list[Entry] = [first_line]
    standing: list[Any] = [search.next()]
    while isinstance(question := search.next(), Question):
        entries.append(question)
        standing.append(question)
        answer = world(question.at)
        search.answer(question, answer)
        entries.append(Answered(at=question.at, answer=answer, detail={"signature": "a|1|ü\n"}))
        standing.append(search.next())
    entries.append(Concluded(text=str(question)))
    standing.append(question)
    return "".join(map(to_line, entries)), standing


@pytest.mark.parametrize(
    ("spec", "world"),
    [
        (axis(12), changing(12, 7, holes=frozenset({6, 9}))),
        (axis(6, repeat=3, bad="2.11"), changing(6, 4, "bad")),
        (
            corners(5, 4),
            lambda point: "bad" if point[0] >= "2.12" and point[1] >= "1.22" else "good",
        ),
        (corners(2, 2), lambda _: "untestable"),
    ],
)
def test_killed_at_any_byte_it_goes_on_where_it_was(
    spec: AxisSpec | CornerSpec, world: World
) -> None:
    text, standing = written(spec, world)
    first = text.index("\n") + 1
    ends = set(range(first, len(text) + 1, 31))
    ends |= {
        offset + by for offset in range(first, len(text)) if text[offset] == "\n" for by in (0, 1)
    }
    for end in sorted(ends):
        log = read_log(text[:end])
        assert log.spec.search == spec
        assert search_of(log).next() == standing[text[:end].count("\n") - 1]
        pending = log.pending()
        assert pending is None or search_of(log).next() == pending


@given(st.data())
def test_lines_may_be_taken_out_and_answers_corrected(data: st.DataObject) -> None:
    specs: list[AxisSpec | CornerSpec] = [axis(9), axis(5, repeat=3), corners(3, 4)]
    spec = data.draw(st.sampled_from(specs))
    answers = st.sampled_from(["good", "bad", "untestable", "unknown"])
    places = [*spec.points()]
    answered_points = data.draw(st.lists(st.tuples(st.sampled_from(places), answers), max_size=12))
    text = to_line(Begun(spec=task(spec))) + "".join(
        to_line(Answered(at=point, answer=answer)) for point, answer in answered_points
    )
    search = search_of(read_log(text))
    search.resume()
    for _ in range(search.spec.most_runs + 40):
        step = search.next()
        if not isinstance(step, Question):
            break
        search.answer(step, data.draw(answers.filter(lambda a: a != "unknown")))  # type: ignore[arg-type]
    assert isinstance(search.next(), AxisFinding | CornersFinding)


BEGUN = to_line(Begun(spec=task(axis(2))))


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        ("", 1, ""),
        (BEGUN[:-1], 1, ""),
        (to_line(Resumed()), 1, ""),
        (BEGUN + "\n" + BEGUN, 3, ""),
        (BEGUN + "no json\n", 2, ""),
        (BEGUN + '{"kind":"answered","at":["2.10"],"answer":"x"}\n', 2, "answered.answer"),
        (BEGUN + '{"kind":"answered","at":["2.99"],"answer":"good"}\n', 2, "at"),
        (BEGUN + '{"kind":"answered","at":["2.10","x"],"answer":"good"}\n', 2, "at"),
        (BEGUN + '{"kind":"asked","at":["1","2","3"],"number":1}\n', 2, "asked.at"),
        (BEGUN + '{"kind":"?"}\n', 2, ""),
        (BEGUN.replace('"schema":1', '"schema":7'), 1, ""),
        (BEGUN.replace('"2.11"', '"2.10"'), 1, "2.10"),
        (BEGUN.replace('"spec":{', '"spec":{"subject":1,'), 1, "spec.subject"),
        ('"spec"\n', 1, ""),
    ],
)
def test_what_is_wrong_is_named_by_its_line(text: str, line: int, place: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_log(text, file="log")
    assert error.value.line == line
    assert place in str(error.value)


def test_what_was_asked_last_is_under_way_until_it_is_answered() -> None:
    questions = [to_line(Question(at=(version,), number=1)) for version in ("2.10", "2.11")]
    answer = to_line(Answered(at=("2.10",), answer="good"))
    log = read_log(BEGUN + questions[0] + answer + questions[1])
    assert log.pending() == Question(at=("2.11",), number=1)
    assert log.answers() == [Answered(at=("2.10",), answer="good")]
    assert read_log(BEGUN + questions[0] + answer).pending() is None
    again = read_log(BEGUN + questions[0] + to_line(Resumed())).pending()
    assert again == Question(at=("2.10",), number=1)


def test_a_line_may_be_of_64_million_characters() -> None:
    def padded(length: int) -> str:
        return BEGUN + '{"kind":"resumed"}'.ljust(length) + "\n"

    assert read_log(padded(64 << 20)).entries == (Resumed(),)
    with pytest.raises(ConfigError):
        read_log(padded((64 << 20) + 1))
