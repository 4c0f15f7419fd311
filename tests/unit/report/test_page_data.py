"""The data of report.html: each case with all that table, charts and its own view show of it."""

from collections.abc import Sequence
from typing import Any

from harness.report.html import Rows, blocks, ladders
from harness.report.sections import Since
from harness.report.summary import FailureGroup
from harness.results.record import CaseRecord
from tests.report_page import unpacked
from tests.unit.results.records import DEVICE, error, record


def shown(
    cases: Sequence[CaseRecord], groups: Sequence[FailureGroup] = (), since: Since | None = None
) -> dict[str, Any]:
    text = Rows(cases, since).packed(groups, {"ladders": ladders(cases)})
    document: dict[str, Any] = unpacked(text)
    return document


def group_of(first: CaseRecord, *others: CaseRecord) -> FailureGroup:
    return FailureGroup(first, [case.case for case in (first, *others)])


def column(document: dict[str, Any], name: str) -> list[str | None]:
    return [document["pool"][place] for place in document[name]]


def axis(document: dict[str, Any], name: str) -> list[str | None]:
    return [document["pool"][place] for place in document["values"][document["axes"].index(name)]]


def details(cases: Sequence[CaseRecord]) -> list[list[dict[str, Any]]]:
    return [unpacked(block) for block in blocks(cases)]


def case_with(**measurements: Any) -> CaseRecord:
    return record(measurements=measurements)


def test_the_table_has_all_of_each_case() -> None:
    cases = [
        record(case="a", duration_s=0.41237),
        record(case="b", suite="other", outcome="failed", device=None),
        record(case="c", outcome="failed", expected={"known_issue": "x"}),
        record(case="d", measurements={"conclusion": "56 fit\n  and a table"}),
        record(case="e", outcome="failed", error=error(code=None, message="\n it broke\nthen")),
    ]
    document = shown(cases, [group_of(cases[4]), group_of(*cases[1:3])])
    since = Since("earlier", {"b": "new", "gone": "gone"}, ("gone",), {})
    assert column(shown(cases[:2], (), since), "since") == [None, "new"]
    assert document["case"] == ["a", "b", "c", "d", "e"]
    assert column(document, "state") == ["passed", "failed", "expected", "passed", "failed"]
    assert column(document, "suite") == ["context_count", "other", *["context_count"] * 3]
    assert column(document, "device") == ["sim-v73", None, *["sim-v73"] * 3]
    assert document["seconds"] == [0.412, 0.41, 0.41, 0.41, 0.41]
    assert column(document, "code") == [None, "1002", "1002", None, None]
    assert document["group"] == [-1, 1, 1, -1, 0]
    assert document["since"] is None
    first_line = error().message.partition("\n")[0]
    assert column(document, "why") == [None, *[f"1002 {first_line}"] * 2, "56 fit", "it broke"]
    assert len(document["pool"]) == len(set(document["pool"])), "each value once"


def test_axes_are_those_that_tell_cases_apart() -> None:
    cases = [
        record(axes={"device": "x", "same": 1, "other": 1, "kind": 1, "odd": "é"}),
        record(axes={"device": "y", "same": 1, "other": 2, "kind": True, "odd": ["é"]}),
        record(axes={"device": "z", "same": 1, "other": 2, "kind": 1.0, "last": "1"}),
    ]
    document = shown(cases)
    assert document["axes"] == ["other", "kind", "odd", "last"]
    assert axis(document, "other") == ["1", "2", "2"]
    # 1 is neither true nor 1.0
    assert axis(document, "kind") == ["1", "true", "1.0"]
    assert axis(document, "odd") == ["é", '["é"]', None]
    assert axis(document, "last") == [None, None, "1"]
    assert shown(cases[:1])["axes"] == []
    assert axis(shown([record(axes={"x": value}) for value in (True, 1)]), "x") == ["true", "1"]
    engines = shown([record(engine=engine) for engine in ("qnn", "ort", None)])
    assert axis(engines, "engine") == ["qnn", "ort", None]


def test_axes_and_texts_without_end_are_bounded() -> None:
    names = [f"axis{number}" for number in range(30)]
    cases = [record(axes=dict.fromkeys(names, value)) for value in ("x" * 300, "y" * 301)]
    document = shown(cases)
    assert document["axes"] == names[:24]
    assert axis(document, "axis0") == ["x" * 300, "y" * 296 + " ..."]
    (why,) = column(shown([record(outcome="failed", error=error(message="m" * 999))]), "why")
    assert why == f"1002 {'m' * 291} ..."


def test_lists_of_times_are_summed_up() -> None:
    cases = [
        case_with(load_us=[300, 310, 305], loads=[1, 2], note="x", run_us=[5]),
        case_with(run_us=[20, 10], mean_us=7, none_us=[], words_us=["a", "b"], flags_us=[True]),
        case_with(),
        case_with(load_us=[1, 2, 3, 4, 5, 6, 7, 1000]),
    ]
    document = shown(cases)
    load, run = (document["figure_names"].index(name) for name in ("load_us", "run_us"))
    assert document["figures"] == [
        # how many, least, quartile, median, quartile, most
        [[load, 3, 300, 300, 305, 310, 310], [run, 1, 5, 5, 5, 5, 5]],
        [[run, 2, 10, 10, 15, 20, 20]],
        [],
        [[load, 8, 1, 2, 4, 7, 1000]],
    ]


def climb(loads: int, failed_at: int | None = None, **more: Any) -> CaseRecord:
    """A case that loaded contexts one after the other, and then failed at one, or did not."""
    failed = {} if failed_at is None else {"outcome": "failed", "error": error(context=failed_at)}
    measured = {"load_us": [100.0] * loads, "load_rss_bytes": [1.0] * loads} | more
    return record(measurements=measured, **failed)


def test_what_failed_comes_first_of_those_with_many_contexts_and_then_the_longest() -> None:
    no_context = {"outcome": "failed", "error": error(context=None)}
    cases = [
        climb(1),
        climb(2),
        climb(9),
        climb(9),
        climb(3, failed_at=3),
        climb(8, failed_at=2),  # it failed behind all loads, by a context that was there
        record(measurements={"load_us": [1, 2, 3, 4, 5]}, **no_context),
        record(measurements={"load_us": ["a", "b", "c"]}),
        record(measurements={"load_us": 7}),
    ]
    shown_ladders = shown(cases)["ladders"]
    assert [(entry["case"], entry["loads"], entry["failed_at"]) for entry in shown_ladders] == [
        *((4, 3, 4), (2, 9, None), (3, 9, None), (5, 8, None), (6, 5, None), (1, 2, None))
    ]


def test_a_ladder_has_its_memory() -> None:
    with_memory, fewer, odd = (
        climb(2, load_us=[7, 8], load_rss_bytes=[50, 60]),
        climb(2, load_rss_bytes=[50]),
        climb(2, load_rss_bytes="x"),
    )
    ladders_shown = shown([with_memory, fewer, odd])["ladders"]
    assert ladders_shown[0] == {
        "case": 0,
        "loads": 2,
        "load_us": [7, 8],
        "rss_bytes": [50, 60],
        "failed_at": None,
        "estimate_bytes": None,
    }
    assert [entry["rss_bytes"] for entry in ladders_shown[1:]] == [[], []]


def test_ladders_without_end_are_bounded_and_keep_their_peaks() -> None:
    loads = [1.0] * 999
    loads[500] = 9.0
    (ladder,) = shown([climb(999, load_us=loads)])["ladders"]
    assert (ladder["loads"], len(ladder["load_us"]), max(ladder["load_us"])) == (999, 400, 9.0)
    assert len(shown([climb(400)])["ladders"][0]["load_us"]) == 400
    many = [climb(3)] * 600 + [climb(2, failed_at=2)]
    ladders_shown = shown(many)["ladders"]
    assert (len(ladders_shown), ladders_shown[0]["case"]) == (500, 600)


def test_the_view_of_a_case_is_where_the_page_looks_for_it() -> None:
    cases = [record(case=f"c{number}") for number in range(260)]
    document = details(cases)
    assert [len(block) for block in document] == [128, 128, 4]
    assert [case["case"] for block in document for case in block] == [case.case for case in cases]
    assert details([]) == []


def test_the_view_of_a_case_says_only_what_there_is_to_say() -> None:
    (((document),),) = details([record(case="é", checks=(), attempt=1)])
    assert document["case"] == "é"
    assert document["device"]["name"] == DEVICE["name"]
    assert document["measurements"]["load_us"] == [300, 310, 305]
    assert not {"error", "checks", "attempt", "expected"} & set(document)


def test_what_is_too_much_for_a_page_is_left_to_the_journal() -> None:
    large = "x" * 300_000
    fits, much, too_much = (
        record(case="fits", measurements={"text": "x" * 200_000}),
        record(case="much", measurements={"text": large}, outcome="failed"),
        record(case="c" * 400, axes={"axis": large}),
    )
    ((first, other, last),) = details([fits, much, too_much])
    assert len(first["measurements"]["text"]) == 200_000
    assert "measurements" not in other
    assert (other["error"]["code"], other["axes"]["backend"]) == (1002, "htp")
    assert last == {"case": "c" * 296 + " ...", "outcome": "passed"}
