"""README and docs are true: commands run, examples load, output is a real one."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness.cli.main import commands
from harness.lab.inventory import load_lab
from harness.models.builtin_models import Model
from tests.integration.cli.test_run_litert import FACE, take
from tests.integration.cli.test_run_ort import EMBEDDED
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import LAB, ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.processes import run_to_end
from tests.unit.app.apps import apk, healthy, manifest

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = ROOT / "tests/field/executorch-3-contexts.pte"
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?((?:\(cd|adb|git|qnn-harness|pytest) .*?)(?: +#.*)?$", re.MULTILINE)
COMPARED = ("README.md", "first-model.md", "first-test.md")
NOT_RUN = {
    "qnn-harness init\n": "asks a phone",
    "init --board": "asks a board with sshd",
    "fetch qairt:": "downloads 1.5 GB",
    "phone-gpu": "searches on a phone's GPU, with libraries that are not on PyPI",
    "git bisect": "builds ONNX Runtime",
    "qnn-harness app run": "starts an app on a phone",
    "pytest --pyargs harness.suites -m device\n": "runs all suites, as `make device` does",
}
"""Parts of commands that cannot be run here, and why."""
INSTEAD = {
    "init --simulated": "init --simulated --lab new.yaml",
    "--device phone1": "--device sim-v73",
    "sm-s921u": "sim-v73",
    "reserve desk --for 30m": "reserve sim-v73 --for 1s",
    "qnn-harness simulator": "timeout --preserve-status -s INT 15 qnn-harness simulator",
    "adb logcat -d": "cat app.log",
    "--qnn=/opt/qairt": "--qnn=2.51.0",
    "'CASE'": "'model.onnx::test_contexts[sim-v73-htp-2.51.0-model.onnx-resident-1]'",
    "--case CASE": "--case 'model.bin::test_contexts[sim-v73-htp-2.51.0-model.bin-resident-1]'",
    "reports/BASE reports/NEW": "machine-a machine-b",
    "reports/LAST-NIGHT": "machine-a",
    "edited.jsonl": "$(ls reports/*-bisect/log.jsonl | head -n 1)",
    "run model.pte --copies 66": "run model.pte --copies 66 --expected wrong",
    "--expected out --limit max-error": "--expected wrong/0 --limit max-error",
    "op-slower:relu2": "op-slower:MatMul0",
    "'suites/": f"'{ROOT}/suites/",
}
"""What is typed for the names that a reader has."""

SUITE = """import harness, pytest
@pytest.mark.device(backend=("htp", "cpu"))
def test_context_count(bench):
    bench.resident(harness.Model("tiny")).check()
"""


@pytest.fixture(scope="module")
def prepared(module_lab: DeviceRuns, context_for: ContextFor) -> Path:
    """A folder with the files that the pages name."""
    folder = module_lab.folder / "prepared"
    for name in ["in", "out", "calibration/0001", "old", "new", "wrong/0", "wrong/1", "wrong/2"]:
        (folder / name).mkdir(parents=True)
    context, model = context_for("tiny", "2.47.0"), Model("tiny").serialized()
    for name in ("model.bin", "mobilenet-v2.bin"):
        shutil.copyfile(context.path, folder / name)
    for name in ("model.onnx", "quantised.onnx", "float.onnx", "old/model.onnx", "new/model.onnx"):
        (folder / name).write_bytes(model)
    # by number, since the tensors of a program have no names
    shutil.copyfile(context.inputs[0], folder / "in/0.raw")
    shutil.copyfile(context.inputs[0], folder / "calibration/0001/x.raw")
    shutil.copyfile(context.expected[0], folder / "out/0.raw")
    shutil.copyfile(PROGRAM, folder / "model.pte")
    shutil.copyfile(EMBEDDED, folder / "model_ctx.onnx")
    for name in ("my.apk", "app-release.apk"):
        (folder / name).write_bytes(apk(manifest(extract=False), healthy()))
    for name in ("wrong/0", "wrong/1", "wrong/2"):
        (folder / name / "0.raw").write_bytes(b"A" * 1024)
    (folder / "app.log").write_text("Failed to create transport for device, error: 4000\n")
    (folder / "devices.yaml").write_text(f"{LAB}notify: [{{name: team, url: 'syslog://user'}}]\n")
    return folder


@pytest.fixture(scope="module")
def prepared_with_runs(module_lab: DeviceRuns, prepared: Path) -> None:
    take(FACE, prepared, "model.tflite")
    (prepared / "test_backends.py").write_text(SUITE)
    words = ("harness.cli.main", "run", "model.bin", "--rounds=1")
    for name in ("machine-a", "machine-b"):
        assert run_module(words, prepared, module_lab.environment, 600).returncode == 0
        shutil.copytree(prepared / "reports/latest", prepared / name)


@pytest.fixture
def mine(tmp_path: Path, prepared: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "mine", symlinks=True)


def blocks(*languages: str) -> list[tuple[Path, str]]:
    texts = []
    for page in PAGES:
        for indent, name, text in BLOCK.findall(page.read_text()):
            if name in languages:
                plain = "\n".join(line.removeprefix(indent) for line in text.splitlines())
                texts.append((page, plain + "\n"))
    return texts


def shown_commands() -> dict[Path, list[str]]:
    """Return the commands in the blocks of each page, in order."""
    commands: dict[Path, list[str]] = {}
    for page, text in blocks("", "console", "sh"):
        commands.setdefault(page, []).extend(COMMAND.findall(re.sub(r"\\\n *", "", text)))
    return commands


SHOWN = shown_commands()


def commands_to_run(page: Path) -> list[str]:
    """Return the commands of a page but NOT_RUN, and those whose outputs are compared."""
    text = page.read_text() if page.name in COMPARED else ""
    compared = re.findall(r"^\$ (.*)", text, re.MULTILINE)
    return [
        command
        for command in SHOWN[page]
        if command not in compared and not any(part in f"{command}\n" for part in NOT_RUN)
    ]


@pytest.mark.parametrize(
    ("page", "command"),
    [
        (page.stem, text)
        for page, lines in SHOWN.items()
        for text in re.findall(r"qnn-harness [^|)\n]*", "\n".join(dict.fromkeys(lines)))
    ],
)
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


def run_shown(command: str, folder: Path, lab: DeviceRuns) -> subprocess.CompletedProcess[str]:
    words = ("bash", "-c", f"PATH={Path(sys.executable).parent}:$PATH; {command}")
    return run_to_end(*words, cwd=folder, env=lab.environment, timeout=600)


@pytest.mark.nightly
@pytest.mark.usefixtures("prepared_with_runs")
@pytest.mark.parametrize("page", [*filter(commands_to_run, SHOWN)], ids=lambda page: page.stem)
def test_shown_commands_run(page: Path, lab: DeviceRuns, mine: Path) -> None:
    """In the order of their page; none ends as wrong input does."""
    for command in commands_to_run(page):
        for shown, instead in INSTEAD.items():
            command = command.replace(shown, instead)
        completed = run_shown(command, mine, lab)
        assert completed.returncode in (0, 1), (command, completed.stdout)
        assert "Traceback" not in completed.stdout, command


def test_each_command_not_run_as_shown_is_on_a_page() -> None:
    text = "".join(f"{command}\n" for commands in SHOWN.values() for command in commands)
    assert not [part for part in (*NOT_RUN, *INSTEAD) if part not in text]


@pytest.mark.parametrize(
    "page",
    [
        *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES if page.name in COMPARED),
        pytest.param(ROOT / "docs/howto/nightly-and-ci.md", marks=pytest.mark.nightly),
    ],
    ids=lambda page: page.stem,
)
def test_a_page_says_what_happens(page: Path, lab: DeviceRuns, tmp_path: Path) -> None:
    """In one folder: its files are written, and its commands say what stands below them."""
    folder = tmp_path / "empty"
    folder.mkdir()
    steps, text = 0, page.read_text()
    if page.stem == "nightly-and-ci":
        text = text.partition("## Try a night")[2].partition("\n## ")[0]
    for block in BLOCK.finditer(text):
        if block[2] in ("python", "yaml"):
            (*_, name) = re.findall(r"`([\w.]+\.(?:py|yaml))`", text[: block.start()])
            (folder / name).write_text(block[3])
        for step in re.split(r"^\$ ", block[3], flags=re.MULTILINE)[1:]:
            command, _, expected = step.partition("\n")
            completed = run_shown(command, folder, lab)
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
    (mine / "test_backends.py").unlink(missing_ok=True)
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
