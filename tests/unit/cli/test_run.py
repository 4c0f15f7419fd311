"""The arguments that `qnn-harness run` passes to pytest."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli.bisect import bisect
from harness.cli.model import model
from harness.cli.run import run
from harness.core.errors import ConfigError, NoLabError, VersionError
from harness.results.run_folder import RunFolder
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT


@pytest.fixture
def pytest_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of pytest, which runs nothing, in a folder with a context."""
    arguments: list[str] = []

    def main(words: list[str], plugins: object) -> int:
        arguments.extend(words)
        return 0

    monkeypatch.setattr(pytest, "main", main)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(CONTEXT)
    return arguments


VALUES = sorted({item.opts[0] for item in run.params if getattr(item, "is_flag", None) is False})


@pytest.mark.parametrize("option", VALUES)
def test_an_option_without_its_value_is_refused(pytest_words: list[str], option: str) -> None:
    completed = CliRunner().invoke(run, ["a.bin", option])
    assert completed.exit_code == 2
    assert pytest_words == []
    assert f"Option '{option}' requires an argument" in completed.output


@pytest.mark.parametrize(
    ("word", "passed_on"),
    [
        *[(f"--engine={name} --backend=cpu", "--qnn-backend=cpu") for name in ("qnn", "ort")],
        ("--engine=litert --backend=htp", "--qnn-backend=htp"),
        ("--limit=tolerance=-1", "--qnn-limit=tolerance=-1"),
    ],
)
def test_words_are_passed_on(word: str, passed_on: str, pytest_words: list[str]) -> None:
    run.main(["a.bin", *word.split()], standalone_mode=False)
    assert passed_on in pytest_words


@pytest.mark.parametrize(
    ("engine", "backend"),
    [("litert", "cpu"), ("litert", "htp,gpu"), ("executorch", "gpu"), ("ort", "npu")],
)
def test_an_engine_knows_its_backends(
    engine: str, backend: str, pytest_words: list[str], snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        run.main(["a.bin", f"--engine={engine}", f"--backend={backend}"], standalone_mode=False)
    assert not pytest_words


def test_no_name_is_taken_for_an_option_of_pytest(tmp_path: Path, pytest_words: list[str]) -> None:
    (tmp_path / "-k.bin").write_bytes(CONTEXT)
    for arguments in ("./-k.bin", ".", str(tmp_path)):
        CliRunner().invoke(run, [arguments], catch_exceptions=False, standalone_mode=False)
    assert [line for line in pytest_words if line.endswith("-k.bin")] == [
        "./-k.bin",
        "./-k.bin",
        f"{tmp_path}/-k.bin",
    ]


@pytest.mark.parametrize("name", ["net[1].bin", "a::b.bin"])
def test_a_name_that_no_case_can_have(
    tmp_path: Path, pytest_words: list[str], name: str, snapshot: Snapshot
) -> None:
    (tmp_path / name).write_bytes(CONTEXT)
    with snapshot.raises(ConfigError):
        CliRunner().invoke(run, [name], catch_exceptions=False, standalone_mode=False)
    assert not pytest_words


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", ""],
        ["fit", ""],
        ["extract", "", "--output", "out"],
        ["extract", "a.bin", "--output", ""],
    ],
)
def test_an_empty_name_is_not_the_folder_one_is_in(
    tmp_path: Path, pytest_words: list[str], arguments: list[str]
) -> None:
    for command, options in ((model, arguments), (run, [""])):
        completed = CliRunner().invoke(command, options)
        assert completed.exit_code == 2
    assert not pytest_words
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


@pytest.mark.parametrize(("device", "kind"), [("sim-v73", VersionError), ("phone", NoLabError)])
def test_a_search_takes_the_same_lab_as_the_run_that_it_searches(
    device: str, kind: type[ConfigError], tmp_path: Path, pytest_words: list[str]
) -> None:
    (tmp_path / "m.bin").write_bytes(CONTEXT)
    case = "m.bin::test_contexts[sim-v73-htp-2.51.0-m.bin-resident-1]"
    arguments = ["--axis=qnn", f"--case={case}", "--qnn=9.9", f"--device={device}"]
    with pytest.raises(kind):
        bisect.main(arguments, standalone_mode=False)
    assert not pytest_words


@pytest.mark.parametrize(
    ("ended", "code"), [(KeyboardInterrupt(), 130), (pytest.exit.Exception("wrong", 2), 2)]
)
def test_an_interrupt_is_not_wrong_input(
    ended: BaseException, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def main(_: list[str], plugins: list[Any]) -> int:
        for plugin in plugins:
            plugin.pytest_keyboard_interrupt(SimpleNamespace(value=ended))
            # it was ended before the run had anything to show
            plugin.pytest_unconfigure(SimpleNamespace(stash=pytest.Stash()))
        return 2

    (tmp_path / "a.bin").write_bytes(CONTEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest, "main", main)
    completed = CliRunner().invoke(run, ["a.bin", "--json"], standalone_mode=False)
    assert (completed.return_value, completed.exception) == (code, None)


@pytest.mark.parametrize(("is_begun", "resumes"), [(True, True), (False, False)])
def test_who_interrupts_it_is_told_how_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool, resumes: bool
) -> None:
    def main(arguments: list[str], plugins: list[Any]) -> int:
        plugins[0].interrupted = True
        plugins[0].folder = RunFolder(tmp_path / "reports/1 a") if is_begun else None
        return 2

    monkeypatch.setattr(pytest, "main", main)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(CONTEXT)
    completed = CliRunner().invoke(run, ["a.bin"], standalone_mode=False)
    assert completed.return_value == 130
    assert ("--resume 'reports/1 a'" in completed.stderr) == resumes
