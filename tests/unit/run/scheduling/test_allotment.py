"""Which device a worker gets, and what becomes of one that is given up."""

from __future__ import annotations

from harness.run.scheduling.allotment import Allotment, FarmDevice
from harness.run.scheduling.scheduling import Waiting

OLD, NEW = "v68", "v75"


class MockTime:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def farm(*cases: Waiting, taken: str = "", clock: MockTime | None = None) -> Allotment:
    made = Allotment(is_taken=taken.split().__contains__, clock=clock or MockTime())
    for name, kind in (("a", OLD), ("b", OLD), ("c", NEW)):
        made.know(name, kind)
    for case in cases:
        made.add(case)
    return made


def case(number: int, *kinds: str, seconds: float = 1.0) -> Waiting:
    return Waiting(number, kinds, seconds)


def test_a_worker_takes_what_most_work_waits_for_and_keeps_it() -> None:
    made = farm(case(0, OLD), case(1, NEW, seconds=5), case(2, NEW))
    held: list[FarmDevice] = []
    first, second = made.next_for(held), made.next_for(held)
    assert first is not None
    assert second is not None
    assert [(found[0].name, found[1].case) for found in (first, second)] == [("c", 1), ("c", 2)]
    assert [one.name for one in held] == ["c"]
    third = made.next_for(held)
    assert third is not None
    assert third[0].name == "a", "its own have nothing to do"
    assert made.next_for(held) is None
    assert made.waiting == 0


def test_nobody_waits_for_a_device_of_another_session_while_there_are_others() -> None:
    made = farm(case(0, OLD), taken="a c")
    found = made.take_free()
    assert found is not None
    assert found.name == "b"
    alone = farm(case(0, NEW), taken="c").take_free()
    assert alone is not None
    assert alone.name == "c", "no other can run it"


def test_a_device_that_was_given_up_is_tried_again_after_a_while() -> None:
    clock = MockTime()
    made = farm(case(0, OLD), case(1, OLD), clock=clock)
    one: list[FarmDevice] = []
    other: list[FarmDevice] = []
    at_a, at_b = made.next_for(one), made.next_for(other)
    assert at_a is not None
    assert at_b is not None
    made.stands(at_a[0].name, "full")
    assert made.give_up(at_a[0].name, at_a[1]), "the other one can take it"
    assert made.waiting == 0, "not before its worker has told all"
    assert made.go_on(at_a[1].case)
    assert not made.go_on(at_a[1].case)
    assert made.next_for(one) is None
    made.finished(at_b[0], at_b[1].case)
    moved = made.next_for(other)
    assert moved is not None
    assert (moved[0].name, moved[1].case) == (at_b[0].name, at_a[1].case)
    made.add(case(2, OLD))
    clock.now = 61.0
    again = made.next_for(one)
    assert again is not None
    assert again[0] is at_a[0]


def test_a_case_is_given_up_where_nobody_else_can_run_it() -> None:
    made = farm(case(0, NEW))
    found = made.next_for([])
    assert found is not None
    made.stands("c", "out")
    assert not made.give_up("c", found[1])
    assert not made.give_up("c", None)


def test_what_one_kind_cannot_another_kind_is_asked() -> None:
    made = farm(case(0, OLD, NEW))
    held: list[FarmDevice] = []
    found = made.next_for(held)
    assert found is not None
    device, asked = found
    assert made.cannot(device.name, asked)
    made.go_on(asked.case)
    made.finished(device, asked.case)
    second = made.next_for(held)
    assert second is not None
    assert second[0].kind != device.kind
    assert not made.cannot(second[0].name, second[1]), "both kinds were asked"


def test_the_devices_of_a_worker_that_died_are_free_again() -> None:
    made = farm(case(0, NEW))
    held: list[FarmDevice] = []
    found = made.next_for(held)
    assert found is not None
    made.stopped(found[1])
    made.let_go(held)
    assert made.take_free() is None, "nothing waits"
    made.go_on(0)
    assert made.take_free() is found[0]


def test_a_device_that_is_seen_to_is_waited_for_and_the_case_may_come_back_to_it() -> None:
    made = farm(case(0, NEW), case(1, NEW))
    held: list[FarmDevice] = []
    found = made.next_for(held)
    assert found is not None
    made.stands("c", "away")
    assert made.give_up("c", found[1]), "there or nowhere"
    made.go_on(0)
    assert made.next_for(held) is None, "it will say when"
    made.stands("c", "back")
    assert {one[1].case for one in (made.next_for(held), made.next_for(held)) if one} == {0, 1}


def test_a_case_waits_for_a_device_that_is_away_rather_than_fail_on_one_that_is_out() -> None:
    made = farm(case(0, OLD))
    one: list[FarmDevice] = []
    other: list[FarmDevice] = []
    at = made.next_for(one)
    assert at is not None
    made.add(case(1, OLD))
    assert made.next_for(other) is not None
    for name in "ab":
        made.stands(name, "away" if name == at[0].name else "out")
    made.add(case(2, OLD))
    assert (made.next_for(one), made.next_for(other)) == (None, None)
    made.stands(at[0].name, "out")
    assert made.next_for(other) or made.next_for(one), "what is wrong is in a record"


def test_a_lent_device_gets_only_what_no_other_can_run_and_is_used_again_when_back() -> None:
    lent: set[str] = set()
    taken: set[str] = set()
    made = Allotment(is_taken=taken.__contains__, is_lent=lent.__contains__, clock=MockTime())
    for name, kind in (("a", OLD), ("b", OLD)):
        made.know(name, kind)
    for number in range(4):
        made.add(case(number, OLD))
    one: list[FarmDevice] = []
    other: list[FarmDevice] = []
    assert made.next_for(one) is not None
    assert made.next_for(other) is not None
    lent.add("a")
    assert made.next_for(one) is None, "b can run it"
    assert made.next_for(other) is not None
    lent.clear()
    found = made.next_for(one)
    assert found is not None
    assert found[0].name == "a"
    lent.update("ab")
    made.add(case(4, OLD))
    assert made.next_for(one) is None, "b may be about to run it"
    found = made.next_for(other)
    assert found is not None, "its worker waits: all are lent"
    made.finished(found[0], 4)
    lent.clear()
    assert made.next_for(other) is None
    made.let_go(one)
    made.let_go(other)
    taken.update("ab")
    made.add(case(5, OLD))
    assert made.next_for([]) is not None, "nobody is left who could run it, but who asks"
    assert made.waiting == 0
