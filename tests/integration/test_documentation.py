"""README and docs are true: commands run, examples load, output is a real one."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest

from harness.cli.main import commands
from harness.lab.inventory import load_lab
from harness.models.builtin_models import Model
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.processes import run_to_end

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = ROOT / "tests/field/executorch-3-contexts.pte"
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

IN_ORDER = ("run-models.md", "accuracy-and-speed.md")
NOT_IN_ORDER = {
    "tflite": "tests/integration/cli/test_run_litert.py has a model for it",
    "model_ctx": "test_run_ort.py there makes such a file",
    "reduce": "wants a failure, as tests/integration/reduce has one",
    "bisect": "takes minutes; tests/integration/bisect has each kind",
    "compare": "names runs that the reader has; tests/integration/history has such",
    "(cd ": "the same",
    "import": "the same",
}
"""What of these pages is shown and not run in the pages' order, and why."""


NOT_GIVEN = ("-m", "device", "--dry-run")


@pytest.fixture
def mine(tmp_path: Path, context_for: ContextFor) -> Path:
    """A folder with the files that the pages name."""
    folder = tmp_path / "mine"
    for name in ("in", "out"):
        (folder / name).mkdir(parents=True)
    context = context_for("tiny", "2.47.0")
    shutil.copyfile(context.path, folder / "model.bin")
    shutil.copyfile(context.inputs[0], folder / "in/x.raw")
    shutil.copyfile(context.expected[0], folder / "out/y.raw")
    shutil.copyfile(PROGRAM, folder / "model.pte")
    (folder / "model.onnx").write_bytes(Model("tiny").serialized())
    (folder / "app.log").write_text("Failed to create transport for device, error: 4000\n")
    return folder


def blocks(language: str) -> list[tuple[Path, str]]:
    texts = []
    for page in PAGES:
        for indent, name, text in BLOCK.findall(page.read_text()):
            if name == language:
                plain = "\n".join(line.removeprefix(indent) for line in text.splitlines())
                texts.append((page, plain + "\n"))
    return texts


def parsed_commands() -> list[tuple[str, str]]:
    """Every command of qnn-harness that a page shows, run or not, with its page."""
    shown = []
    for language in ("", "console", "sh"):
        for page, text in blocks(language):
            for line in text.replace("\\\n", " ").splitlines():
                match = re.search(r"(?:^(?:\$ )?|[|(&] ?)(qnn-harness [^|)]*)", line)
                if match is not None:
                    shown.append((page.name, match[1].partition(" #")[0].strip()))
    return sorted(set(shown))


@pytest.mark.parametrize(("page", "command"), parsed_commands())
def test_commands_are_understood(page: str, command: str) -> None:
    """Their options exist and take such values; what they name need not be there."""
    context, words = click.Context(commands, info_name="qnn-harness"), shlex.split(command)[1:]
    while isinstance(context.command, click.Group) and words and words[0][0] not in "-.":
        name = words[0]
        subcommand = context.command.get_command(context, name)
        assert subcommand is not None, name
        context, words = click.Context(subcommand, info_name=name, parent=context), words[1:]
    try:
        context.command.make_context(str(context.info_name), words, parent=context.parent)
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
        assert words in ([], ["--help"], ["--version"])
    except click.BadParameter as error:
        if "does not exist" not in str(error):
            raise


@pytest.mark.nightly
def test_pytest_finds_cases_as_shown(lab: DeviceRuns) -> None:
    """Every option is accepted, and chooses cases."""
    lines = [line for _, text in blocks("") for line in text.splitlines()]
    shown = {re.sub(r"^\$ (?=pytest )", "", line.partition("  #")[0]).rstrip() for line in lines}
    assert lab.run("-k", "tiny and 66 and window").code == 0  # for --resume
    for command in sorted(line for line in shown if line.startswith("pytest ")):
        # not every computer has what a DSP takes
        words = shlex.split(command.replace(",sim-v73-dsp", ""))[1:]
        planned = lab.run("--dry-run", *(word for word in words if word not in NOT_GIVEN), code=0)
        assert re.search(r"\d cases?; ", planned.output), command


@pytest.mark.nightly
@pytest.mark.parametrize("page", IN_ORDER)
def test_commands_of_a_page_run_in_their_order(page: str, lab: DeviceRuns, mine: Path) -> None:
    ran, before = 0, "$ qnn-harness run model.bin --rounds 1\n"  # a run that is looked back at
    for language in ("", "console"):
        shown = before + "".join(text for path, text in blocks(language) if path.name == page)
        for command in re.findall(r"^\$ (.*)$", shown.replace("\\\n", " "), re.MULTILINE):
            if any(word in command for word in NOT_IN_ORDER):
                continue
            words = ("harness.cli.main", *shlex.split(command, comments=True)[1:])
            completed = run_module(words, mine, lab.environment, 600)
            assert completed.returncode in (0, 1), (command, completed.stdout, completed.stderr)
            ran += 1
    assert ran > 2


@pytest.mark.parametrize(
    "page",
    [
        *(
            pytest.param(ROOT / name, marks=pytest.mark.slow)
            for name in ("README.md", "docs/tutorial/first-model.md", "docs/tutorial/first-test.md")
        ),
        pytest.param(ROOT / "docs/howto/nightly-and-ci.md", marks=pytest.mark.nightly),
    ],
    ids=lambda page: page.stem,
)
def test_a_page_says_what_happens(page: Path, lab: DeviceRuns, tmp_path: Path) -> None:
    """In one folder: its files are written, and its commands say what stands below them."""
    folder = tmp_path / "empty"
    folder.mkdir()
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    steps, text = 0, page.read_text()
    if page.stem == "nightly-and-ci":
        text = text.partition("## Try a night")[2].partition("\n## ")[0]
    for block in BLOCK.finditer(text):
        if block[2] in ("python", "yaml"):
            (*_, name) = re.findall(r"`([\w.]+\.(?:py|yaml))`", text[: block.start()])
            (folder / name).write_text(block[3])
        for step in re.split(r"^\$ ", block[3], flags=re.MULTILINE)[1:]:
            command, _, expected = step.partition("\n")
            environment = lab.environment | {"PATH": programs}
            completed = run_to_end("bash", "-c", command, cwd=folder, env=environment, timeout=600)
            output = _lasting(completed.stdout.replace(f"{folder}/", ""))
            assert "Traceback" not in output, completed.stdout
            assert all(_lasting(part) in output for part in expected.split("...\n")), (
                completed.stdout
            )
            steps += 1
    assert steps > 2


def _lasting(text: str) -> str:
    """The part that two runs have in common, however its lines are broken."""
    text = re.sub(r"\d{8}-\d{6}-\w{6}|\b[\d.,]+ ?(?:us|ms|s|MB)\b", "*", text)
    text = re.sub(r"^\d  (?=\S+ +works)", "*  ", text, flags=re.MULTILINE)
    return " ".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        text
        for _, text in blocks("yaml")
        # that of a plug-in has a test of its own
        if "devices:" in text and "transport: command" not in text
    ],
)
def test_lab_examples_load(text: str, tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text(text)
    lab = load_lab(file, find=None)
    assert lab.devices or lab.sources


@pytest.mark.parametrize(
    "of_api",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.nightly)],
)
def test_python_examples_run(of_api: bool, lab: DeviceRuns, mine: Path) -> None:
    names = set()
    for number, (page, text) in enumerate(blocks("python")):
        # plug-ins have tests of their own
        if (page.stem == "api") != of_api or "acme_plugin" in text:
            continue
        name = f"test_{page.stem}_{number}.py"
        names.add(name)
        (mine / name).write_text(text)
    completed = lab.run(suites=mine, code=0)
    assert {case["outcome"] for case in completed.cases} == {"passed"}
    assert {case["case"].partition("::")[0].rpartition("/")[2] for case in completed.cases} == names


@pytest.mark.slow
def test_examples_of_the_api_have_the_right_types(tmp_path: Path) -> None:
    for number, (page, text) in enumerate(blocks("python")):
        if page.stem == "api" and "acme_plugin" not in text:
            (tmp_path / f"example_{number}.py").write_text(text)
    words = ("--strict", "--no-incremental", f"--cache-dir={os.devnull}", tmp_path)
    completed = run_to_end(sys.executable, "-m", "mypy", *words, cwd=tmp_path, timeout=600)
    assert completed.returncode == 0, completed.stdout
    assert len([*tmp_path.iterdir()]) > 5


def test_the_record_shown_is_a_valid_one() -> None:
    import jsonschema

    schema = json.loads((ROOT / "docs/schema/results.schema.json").read_text())
    for _, text in blocks("json"):
        jsonschema.validate(json.loads(text), schema)


def test_the_docs_name_files_that_exist() -> None:
    trees = (ROOT, ROOT / "tests", ROOT / "harness", *(ROOT / "harness").glob("*/"))
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`([a-z_]+(?:/[\w.]+)+\.(?:py|c|h|j2|sh|tsv))`", page.read_text())
    }
    assert named
    assert not [name for name in named if not any((tree / name[1]).exists() for tree in trees)]
