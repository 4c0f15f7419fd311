"""The end of `contexts minimize`, with runs whose outcome follows a rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.contexts import contexts
from harness.reduce.driver import Minimization
from tests.unit.reduce.test_driver import ScriptedRuns, minimized, two_others


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("answers", [0, 1, 3])
def test_ctrl_c_says_how_to_go_on_and_concludes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int, as_json: bool
) -> None:
    def stopped(contents: list[bytes], residency: str, number: int) -> str:
        completed = number > answers
        return "interrupted" if completed else two_others(contents, residency, number)

    result = minimized(tmp_path, two_others, [0, 1, 1, 0, 1])
    folder, resume, runs = result.folder.path, Minimization.resume, ScriptedRuns(stopped)
    result.folder.close()
    monkeypatch.setattr(
        Minimization,
        "resume",
        lambda path, words, **more: resume(path, words, run=runs, **more),
    )
    words = ["minimize", "--resume", str(folder), *(["--json"] if as_json else [])]
    completed = CliRunner().invoke(contexts, words, standalone_mode=False)
    assert completed.return_value == 130, completed.exception
    again = f"stopped; to go on: qnn-harness contexts minimize --resume {folder}\n"
    assert completed.stderr.endswith(again)
    assert runs.number == answers + 1
    assert "did not fail" not in completed.output
    if as_json:
        content = json.loads(completed.stdout)
        assert (content["runs"], content["minimal"], content["exit_code"]) == (answers, False, 130)
    else:
        assert bool(completed.stdout) is bool(answers), (
            "what fails is told, as far as that is known"
        )
