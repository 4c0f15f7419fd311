"""A place's patterns find all that match, whatever else is there."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given, strategies as st

from harness.labgrid.keeper import Key, Resources

WORD = st.text("ab*?[]", min_size=1, max_size=2)
KEYS = st.tuples(WORD, WORD, st.sampled_from("NP"), WORD)


@given(
    put=st.lists(KEYS, max_size=12),
    drop=st.lists(KEYS, max_size=3),
    patterns=st.lists(st.tuples(WORD, WORD), max_size=4),
)
def test_all_that_matches_is_near_once_and_in_order(
    put: list[Key], drop: list[Key], patterns: list[tuple[str, str]]
) -> None:
    resources = Resources[int]()
    truth: dict[Key, int] = {}
    for number, key in enumerate(put):
        assert resources.put(key, number) == truth.get(key)
        truth[key] = number
    for exporter, group, _, name in drop:
        removed = [v for k, v in truth.items() if (k[0], k[1], k[3]) == (exporter, group, name)]
        assert resources.drop(exporter, group, name) == removed
        truth = {k: v for k, v in truth.items() if (k[0], k[1], k[3]) != (exporter, group, name)}
    near = resources.near(patterns)
    assert [key for key, _ in near] == sorted({key for key, _ in near})
    assert near == [(key, truth[key]) for key, _ in near]
    for key in truth:
        if any(
            fnmatchcase(key[0], exporter_pattern) and fnmatchcase(key[1], two)
            for exporter_pattern, two in patterns
        ):
            assert key in dict(near)


def test_a_pattern_without_wildcards_is_not_held_against_all() -> None:
    resources = Resources[int]()
    for number in range(40_000):
        resources.put((f"rack-{number}", "adb", "NetworkService", "adb"), number)
    assert resources.near([("rack-7", "adb")]) == [(("rack-7", "adb", "NetworkService", "adb"), 7)]
    assert len(resources.near([("rack-1*", "adb")])) == 40_000, "a wildcard is told by who matches"
