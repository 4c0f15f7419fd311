"""Every command with --json says of each object that it prints which schema it is of."""

import json
import re
import shutil
from typing import Any

import jsonschema
import pytest

from harness.cli.schema import schemas
from harness.models.builtin_models import Model
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.unit.app.apps import apk, healthy, manifest
from tests.unit.cli.reference_pages import every_command, options_of

FILE = "model.pte"
CALLS = {
    "app check": ["app.apk"],
    "run": [FILE],
    "run --dry-run": [FILE],
    "bisect": ["--axis", "qnn", "--case", "CASE", "--qnn", "2.47.0,2.51.0"],
    "bisect --dry-run": ["--axis", "qnn", "--case", "CASE"],
    "bisect replay": ["LOG"],
    "compare": ["reports/FIRST", "reports/latest"],
    "model layers": ["model.onnx"],
    "model fit": [FILE],
    "model fit --remedies": [FILE],
    "model inspect": [FILE],
    "model diff": [FILE, FILE],
    "devices list": [],
    "doctor": ["--no-smoke"],
    "explain": ["some.log"],
    "history list": [],
    "nightly": ["--timeout", "10m", "--", "-k", "tiny and window and 66", str(ROOT / "suites")],
    "runtimes fit": [FILE],
    "runtimes list": [],
    "runtimes show": ["2.51.0"],
}
"""Each call, and what it is given; in this order, since some take what others leave."""

SCHEMA = json.loads((ROOT / "docs/schema/printed.schema.json").read_text())
PRINTED = {
    call: name
    for name, definition in SCHEMA["$defs"].items()
    for call in re.findall(r"^`(.*?) --json`", definition.get("description", ""))
}
"""The names of the small documents, by the command that prints them."""

ELSEWHERE = {"acceptance run", "acceptance show", "app run", "model reduce"}
"""Take long, or want a phone or a failure; test_acceptance.py, test_app_run.py and reduce/ do."""


@pytest.fixture(scope="module")
def prepared(module_lab: DeviceRuns) -> DeviceRuns:
    folder = module_lab.folder
    shutil.copyfile(ROOT / "tests/field/executorch-3-contexts.pte", folder / FILE)
    (folder / "model.onnx").write_bytes(Model("tiny").serialized())
    (folder / "app.apk").write_bytes(apk(manifest(), healthy()))
    (folder / "some.log").write_text("Failed to create transport for device, error: 4000\n")
    assert module_lab.qnn_harness("run", FILE, "--rounds=1").returncode == 0
    return module_lab


def objects_of(text: str) -> list[dict[str, Any]]:
    """Return the printed objects: one document, which may be a list, or an object a line."""
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        whole = [json.loads(line) for line in text.splitlines()]
    return whole if isinstance(whole, list) else [whole]


def test_each_command_has_its_document_in_the_reference() -> None:
    titles = [json.loads(text)["title"] for text in schemas().values()]
    described = {
        command for title in titles for command in re.findall(r"What (.*?) --json prints", title)
    }
    # records as of results.jsonl; as of `bisect` and `doctor`
    as_others = {"run", "bisect replay", "run --dry-run", "acceptance run", "acceptance show"}
    assert described | set(PRINTED) | as_others == ELSEWHERE | set(CALLS)


def test_no_command_is_forgotten() -> None:
    printing = {
        name.removeprefix("qnn-harness ")
        for name, command in every_command()
        if any("--json" in each.opts for each in options_of(command) if each.expose_value)
    }
    assert printing == ELSEWHERE | {call.partition(" --")[0] for call in CALLS}


@pytest.mark.nightly
@pytest.mark.parametrize("call", CALLS)
def test_it_says_its_schema(call: str, prepared: DeviceRuns) -> None:
    reports = prepared.reports
    first = min(path.name for path in reports.iterdir() if (path / "results.jsonl").exists())
    case = json.loads((reports / first / "results.jsonl").read_text().splitlines()[-1])["case"]
    log = next(reports.glob("*/log.jsonl"), "")
    names = {"CASE": case, "LOG": log}
    words = [str(names.get(word, word.replace("FIRST", first))) for word in CALLS[call]]
    completed = prepared.qnn_harness(*call.split(), "--json", *words)
    assert completed.returncode in (0, 1, 3), completed.stderr
    documents = objects_of(completed.stdout)
    assert documents, completed.stderr
    assert all(type(each.get("schema")) is int for each in documents), completed.stdout[:2000]
    assert not any("version" in problem for problem in documents)
    if call in PRINTED:
        (document,) = documents
        jsonschema.validate(document, SCHEMA | {"anyOf": [{"$ref": f"#/$defs/{PRINTED[call]}"}]})
