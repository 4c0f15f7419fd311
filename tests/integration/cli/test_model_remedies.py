"""`qnn-harness model fit --remedies`, and what a run says whose contexts find no room."""

import json
import os
import re
import shlex
import shutil
from subprocess import STDOUT
from typing import Any

import jsonschema
import pytest

from harness.experiments.context_remedies import REMEDIES
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.needed import DSP, need
from tests.unit.containers.made import Pte, wrapped
from tests.unit.experiments.test_remedy_ranking import of
from tests.unit.history.runs import run_folder

SCHEMA = json.loads((ROOT / "docs/schema/remedies.schema.json").read_text())
ON_X86 = ("spread-over-pds", "window", "sequential")
"""What the library for x86-64 can do for contexts that find no room."""


def remedies(lab: DeviceRuns, *arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and the remedies by their names, in their order."""
    words = ("model", "fit", "--remedies", "--json", *arguments)
    completed = lab.qnn_harness(*words, timeout_s=1200)
    report = json.loads(completed.stdout)
    jsonschema.validate(report, SCHEMA)
    (table,) = report["devices"]
    page = (lab.reports / report["run"] / "report.html").read_text()
    assert page.index("<h2>Remedies</h2><pre>") < page.index("<noscript>")
    assert "model fit --remedies FILE" not in page
    return completed.returncode, {row["remedy"]: row for row in table["remedies"]}


def results(rows: dict[str, Any]) -> dict[str, str]:
    return {name: row["result"] for name, row in rows.items()}


@pytest.mark.slow
def test_a_run_without_room_names_what_worked_there_before(
    lab: DeviceRuns, context_for: ContextFor
) -> None:
    shutil.copyfile(context_for("io-heavy-56mb", "2.51.0").path, lab.folder / "model.bin")

    def run() -> tuple[str, dict[str, Any]]:
        code, stderr, (record,) = lab.run_files("model.bin", "--copies=55", "--qnn=2.51.0")
        assert (code, record["measurements"]["loaded"]) == (1, 54), stderr
        return stderr, record

    stderr, record = run()
    words = "--copies=55 --qnn=2.51.0 --device=sim-v73 model.bin"
    assert (
        f"to find an option with which it loads:\n    qnn-harness model fit --remedies {words}\n"
        in stderr
    )
    tried = of("window", contexts=55, device="sim-v73")
    tried = tried.model_copy(update={"files_sha256": record["files_sha256"]})
    run_folder(lab.reports, tried, command=("qnn-harness", "model", "fit", "--remedies"))
    stderr, record = run()
    assert f"it worked with window:\n    qnn-harness run --residency=window {words}\n" in stderr
    assert "these contexts worked with window; " in stderr
    fix = record["error"]["diagnosis"]["fix"]
    assert fix.startswith("on sim-v73 these contexts worked with window; ")


@pytest.mark.slow
def test_one_case_alone(lab: DeviceRuns, context_for: ContextFor) -> None:
    shutil.copyfile(context_for("tiny", "2.51.0").path, lab.folder / "tiny.bin")
    arguments = ["-p", "no:cacheprovider", "-c", os.devnull, "-m", "device", "tiny.bin"]
    arguments += ["--qnn-lab", "devices.yaml"]

    def finished(*more: str) -> str:
        words = ["pytest", *arguments, *more]
        return run_module(words, lab.folder, lab.environment, 120.0, stderr=STDOUT).stdout

    wrong = finished("-o", "qnn_remedies=none")
    assert "qnn_remedies: no remedy 'none' (valid: sequential, " in wrong
    case = "tiny.bin::test_remedy[sim-v73-htp-2.51.0-tiny.bin-window-3]"
    assert "1 passed" in finished("-o", f"qnn_only_case={case}")


@pytest.mark.slow
def test_each_remedy_is_a_case_with_an_answer(lab: DeviceRuns, context_for: ContextFor) -> None:
    shutil.copyfile(context_for("tiny", "2.51.0").path, lab.folder / "tiny.bin")
    code, rows = remedies(lab, "tiny.bin", "--copies=2", "--residency=window=2")
    assert code == 0
    works = {name for name, result in results(rows).items() if result == "works"}
    assert works == {*ON_X86, "resident"}
    assert set(rows) == set(REMEDIES)
    limit = rows["reused-io-limit"]
    assert (limit["result"], limit["use"]["qnn"]) == ("unsupported", None)
    assert "HTP Config option: 17 not supported" in limit["reason"]
    untried = {name for name, result in results(rows).items() if result == "not tried"}
    assert untried == {"spill-fill", "weight-sharing"}
    best = rows["window"]
    assert (best["loaded"], best["executed"], best["outputs_equal"]) == (2, 2, True)
    assert all(best[name] for name in ("load_us", "first_us", "steady_us", "turn_us"))
    assert best["use"]["run"] == "--residency=window=2"
    again = remedies(lab, "tiny.bin", "--copies=2", "--residency=window=2", "--resume=latest")
    assert again == (0, rows)  # nothing was missing


@pytest.mark.nightly
def test_following_what_a_run_without_room_prints_passes(
    lab: DeviceRuns, context_for: ContextFor
) -> None:
    content = wrapped(context_for("io-heavy-56mb", "2.51.0").path.read_bytes())
    program = Pte({"forward": [("QnnBackend", i) for i in range(66)]}, [content] * 66)
    (lab.folder / "m.pte").write_bytes(program.content())

    def printed() -> tuple[list[str], dict[str, Any]]:
        code, stderr, (record,) = lab.run_files("m.pte")
        assert (code, record["measurements"]["loaded"]) == (1, 54), stderr
        (command, *_) = re.findall(r"^    qnn-harness (.*)", stderr, re.MULTILINE)
        return shlex.split(command), record["error"]["diagnosis"]

    words, diagnosis = printed()
    assert words == ["model", "fit", "--remedies", "--device=sim-v73", "m.pte"]
    assert "qnn-harness model fit --remedies FILE" in diagnosis["fix"]
    code, rows = remedies(lab, *words[3:])
    assert code == 0
    works = [name for name, row in rows.items() if row["result"] == "works"]
    assert {*works} == {*ON_X86}
    words, diagnosis = printed()
    best = next(name for name in works if name != "spread-over-pds")  # `run` has one process
    assert words == ["run", *rows[best]["use"]["run"].split(), "--device=sim-v73", "m.pte"]
    assert diagnosis["fix"].startswith(f"on sim-v73 these contexts worked with {', '.join(works)};")
    code, stderr, (record,) = lab.run_files(*words[1:])
    assert (code, record["measurements"]["loaded"]) == (0, 66), stderr


@pytest.mark.nightly
def test_three_sizes_of_which_four_do_not_fit(lab: DeviceRuns, context_for: ContextFor) -> None:
    for size in (820, 920, 1020):
        path = context_for(f"io-heavy-{size}mb", "2.51.0").path
        shutil.copyfile(path, lab.folder / f"{size:04}.bin")
    completed = lab.qnn_harness("model", "extract", *sorted(lab.folder.glob("*.bin")), "-o", "all")
    assert completed.returncode == 0, completed.stderr
    code, rows = remedies(lab, "all", "--copies=6")
    assert code == 0
    assert results(rows) | {"resident": "fails", "window": "fails"} == results(rows)
    assert {*list(rows)[:2]} == {"sequential", "spread-over-pds"}
    assert "pd-exhausted" in rows["window"]["reason"]
    assert (rows["window"]["loaded"], rows["resident"]["loaded"]) == (4, 4)


@pytest.mark.nightly
def test_on_a_simulated_dsp(lab: DeviceRuns, context_for: ContextFor) -> None:
    need(DSP)
    device = "{name: board, simulated: true, soc: QCS8550, target: linux-arm64, dsp: true}"
    lab.file.write_text(f"schema: 1\ndevices: [{device}]\n")
    shutil.copyfile(context_for("spill-heavy-2mb", "2.51.0").path, lab.folder / "model.bin")
    code, rows = remedies(lab, "model.bin", "--copies=3")
    assert code == 0
    refused = {"list-loading", "list-loading-va"}
    assert {name for name, row in rows.items() if row["result"] == "unsupported"} == refused
    assert {name for name, row in rows.items() if row["result"] == "not tried"} == {
        "weight-sharing"
    }
    size = rows["spill-fill"]["use"]["run"].partition("--context-option=spill_fill_group=")[2]
    assert int(size) > 1 << 20
    assert all(row["outputs_equal"] for row in rows.values() if row["result"] == "works")
