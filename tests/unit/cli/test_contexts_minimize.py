"""What `contexts minimize` says at its end, with runs whose outcome a rule says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.contexts import contexts
from harness.reduce.driver import Minimization
from tests.unit.reduce.test_driver import ScriptedRuns, minimized, two_others


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("answered", [0, 1, 3])
def test_ctrl_c_says_how_to_go_on_and_concludes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: int, as_json: bool
) -> None:
    def stopped(contents: list[bytes], residency: str, number: int) -> str:
        done = number > answered
        return "interrupted" if done else two_others(contents, residency, number)

    found = minimized(tmp_path, two_others, [0, 1, 1, 0, 1])
    folder, resume, runs = found.folder.path, Minimization.resume, ScriptedRuns(stopped)
    found.folder.close()
    monkeypatch.setattr(
        Minimization,
        "resume",
        lambda path, words, **more: resume(path, words, run=runs, **more),
    )
    asked = ["minimize", "--resume", str(folder), *(["--json"] if as_json else [])]
    done = CliRunner().invoke(contexts, asked, standalone_mode=False)
    assert done.return_value == 130, done.exception
    again = f"stopped; to go on: qnn-harness contexts minimize --resume {folder}\n"
    assert done.stderr.endswith(again)
    assert runs.number == answered + 1
    assert "did not fail" not in done.output
    if as_json:
        told = json.loads(done.stdout)
        assert (told["runs"], told["minimal"], told["exit_code"]) == (answered, False, 130)
    else:
        assert bool(done.stdout) is bool(answered), "what fails is told, as far as that is known"
