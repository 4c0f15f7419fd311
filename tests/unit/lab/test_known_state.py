"""The known state of a device, from case to case, and its quarantine, which outlasts a run."""

from pathlib import Path

import pytest

from harness.core.errors import InfraError
from harness.lab.facts import Vitals
from harness.lab.health import Fitness, KnownState, KnownStates, Offline, Quarantine

KEY = "local:R5CX1234"
FITNESS = Fitness(
    is_fit=True,
    checked=1000.5,
    strikes=2,
    cases_lost=1,
    switches=3,
    switch_at=2000.0,
    offline=Offline(InfraError("it is away"), 3000.0),
    vitals=(900.0, Vitals(hottest_c=41.5, clock_limit_khz=1000, governor="walt")),
    cases=7,
    epoch="abc",
)


def test_who_takes_a_device_takes_what_is_known_of_it(tmp_path: Path) -> None:
    states = KnownStates(tmp_path / "known", "run")
    assert states.pop(KEY) == KnownState()
    states.save(KEY, KnownState(FITNESS, frozenset({"htp-2.51.0"}), ("serial 1",), frozenset("ab")))
    state = states.read(KEY)
    assert (state.deployed, state.identity, state.device_ids) == (
        {"htp-2.51.0"},
        ("serial 1",),
        {*"ab"},
    )
    fitness = states.pop(KEY).fitness
    assert (str(fitness.offline.error), fitness.offline.look_at) == ("it is away", 3000.0)
    fitness.offline = FITNESS.offline
    assert fitness == FITNESS
    assert states.pop(KEY) == KnownState(), "after a holder that died nothing is known"
    assert list((tmp_path / "known").iterdir()) == []


def test_cases_are_counted_for_each_run_and_another_may_have_another_device(tmp_path: Path) -> None:
    KnownStates(tmp_path, "run").save(KEY, KnownState(FITNESS, identity=("serial 1",)))
    other = KnownStates(tmp_path, "other").read(KEY)
    assert (other.fitness.cases, other.identity) == (0, ())
    assert KnownStates(tmp_path, "run").read(KEY).fitness.cases == 7


def saved(folder: Path) -> tuple[KnownStates, Path]:
    states = KnownStates(folder, "run")
    states.save(KEY, KnownState(FITNESS))
    (file,) = folder.iterdir()
    return states, file


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"is_fit": 1}', b"[" * 100_000])
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    states, file = saved(tmp_path)
    file.write_bytes(content)
    assert states.pop(KEY) == KnownState()


def test_each_run_checks_a_device_that_was_given_up_once_more(tmp_path: Path) -> None:
    state = KnownState(Fitness(offline=Offline(InfraError("it is away"), 3000.0)))
    KnownStates(tmp_path, "a").save(KEY, state)
    for run, look_at in (("a", 3000.0), ("b", 0.0)):
        offline = KnownStates(tmp_path, run).read(KEY).fitness.offline
        assert (str(offline.error), offline.look_at) == ("it is away", look_at)


def test_where_nothing_can_be_written_the_next_one_looks_anew(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    states = KnownStates(tmp_path / "file", "run")
    states.save(KEY, KnownState(FITNESS))
    assert states.pop(KEY) == KnownState()


def test_put_find_lift(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "quarantine")
    assert quarantine.find("local:ABC") is None
    put = quarantine.put("local:ABC", "unplugged")
    assert Quarantine(tmp_path / "quarantine").find("local:ABC") == put
    assert put.why == "unplugged"
    assert quarantine.find("local:ABD") is None
    assert quarantine.lift("local:ABC")
    assert not quarantine.lift("local:ABC")
    assert quarantine.find("local:ABC") is None


def test_names_that_look_alike_or_lead_elsewhere(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "q")
    names = ["a:b", "a/b", "a_b", "../../etc/passwd", "x" * 500]
    for name in names:
        quarantine.put(name, name)
    assert [quarantine.find(name).why for name in names] == names  # type: ignore[union-attr]
    assert len(list((tmp_path / "q").iterdir())) == len(names)
    assert list(tmp_path.iterdir()) == [tmp_path / "q"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"since": 1}', b"\xff" * 10, b"[" * 9999])
def test_a_damaged_entry_still_counts(tmp_path: Path, content: bytes) -> None:
    quarantine = Quarantine(tmp_path)
    quarantine.put("phone", "why")
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert quarantine.find("phone") is not None
    assert quarantine.lift("phone")


def test_a_folder_of_quarantine_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfraError, match="QNN_HARNESS_QUARANTINE"):
        Quarantine(tmp_path / "file" / "quarantine").put("phone", "why")
    with pytest.raises(InfraError, match="QNN_HARNESS_QUARANTINE"):
        Quarantine(tmp_path / "file").find("phone")
