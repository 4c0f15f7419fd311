"""A case of a file with other inputs, expected outputs or limits is another case everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.history.attempts import Attempt, cause_id
from harness.history.comparison import compare
from harness.plugin.options import ContextOptions
from harness.report.merge import merge_runs
from harness.results.file_options import file_options_in
from harness.results.record import Asked, CaseRecord
from tests.unit.history.runs import attempt, run_folder
from tests.unit.history.test_importing import history_output

VALUES = {name: "allow" if name == "fallback" else 3 for name in Asked.model_fields}
VALUES |= dict.fromkeys(("inputs", "expected", "reference", "graph"), "0a" * 32)


def of_file(words: str, day: int, **options: object) -> CaseRecord:
    started = f"2026-11-{day:02}T10:00:00Z"
    return attempt(
        words, file="net.onnx", asked=Asked(**options) if options else None, started=started
    )


@pytest.mark.parametrize("name", VALUES)
def test_what_was_asked_makes_no_case_flaky(tmp_path: Path, name: str) -> None:
    options = {name: VALUES[name]}
    runs = [
        run_folder(
            tmp_path, of_file("a passed", day) if day % 3 else of_file("a failed", day, **options)
        )
        for day in range(1, 10)
    ]
    document = json.loads(history_output("--reports", tmp_path, "--json")[1])
    failing, passing = document["cases"]
    assert (failing["state"], failing["failed"], failing["asked"]) == (
        "failing",
        3,
        str(Asked(**options)),
    )
    assert (passing["state"], passing["passed"], passing["asked"]) == ("passing", 6, "")
    assert f"asked: {failing['asked']}" in history_output("--reports", tmp_path)[1]
    with pytest.raises(ConfigError, match=r"has other options for net\.onnx::.* the runs before"):
        merge_runs([runs[1], runs[2]], tmp_path / "merged")


def test_a_comparison_names_cases_that_were_asked_otherwise() -> None:
    before, after, same = (
        Attempt.of(of_file(words, 1, **options))
        for words, options in (("a passed", {}), ("a failed", {"max_error": 0.1}), ("a failed", {}))
    )
    comparison = compare([before], [after])
    assert (comparison.cases("added"), comparison.cases("vanished")) == (
        [after.case],
        [before.case],
    )
    assert comparison.asked_otherwise == (after.case,)
    assert compare([before], [same]).cases("new") == [same.case]
    assert not compare([before], [same]).asked_otherwise
    assert cause_id(after) != cause_id(same)


def test_no_name_of_a_graph_takes_words_apart() -> None:
    attempt = Attempt.of(of_file("a passed", 1, graph="x [y]::z (1)", min_cosine=0.9))
    assert (attempt.file_options, "[sim-htp-a]" in attempt.case_group) == (
        "graph x .y...z .1., min-cosine 0.9",
        True,
    )


def test_all_that_a_command_asks_of_a_file_is_in_its_records() -> None:
    words = [f"--{name.replace('_', '-')}=1" for name in Asked.model_fields]
    assert [*file_options_in(words)] == [word[2:-2] for word in words]
    assert set(Asked.model_fields) <= set(ContextOptions.__dataclass_fields__)
