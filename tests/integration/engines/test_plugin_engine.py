"""An engine from a package outside of the tree: QNN's real library on a simulated device."""

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.results.run_folder import RunFolder
from tests.integration.extend_page import run_with_plugin, shown_module
from tests.needed import need

ENGINE = shown_module("an engine")
PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char** words) {
  void* library = dlopen(words[1], RTLD_NOW);
  if (!library) return puts(dlerror()), 3;
  int (*get)(const void***, unsigned*) = dlsym(library, "QnnInterface_getProviders");
  const void** providers;
  unsigned number = 0;
  int code = get(&providers, &number);
  printf("code %d, %u interfaces\n", code, number);
  return EXIT;
}
"""
SUITE = """
import pytest

@pytest.mark.device(engine="acme")
def test_environment(bench):
    completed = bench.shell("echo $LD_LIBRARY_PATH; exit 5")
    folder = completed.stdout.decode().split(":")[0].strip()
    assert completed.exit_code == 5
    assert bench.libraries().backend.startswith(folder)
"""
IMPORTS = """
from pathlib import Path

import pytest

from harness.core.engine import EngineProgram
from harness.models.artefact_sources import WholeFile
"""
METHODS = """
    def fitting_qnn(self, build, made_by):
        return ">=2.49,<2.50", "Acme takes no other"

    def findings(self, subject, build):
        from harness.runtimes.preflight_findings import Finding

        yield Finding(
            code="acme-licence",
            severity="info",
            files=(),
            explanation="there is no licence",
            fix="Ask for one",
            thread=None,
        )

    def driver(self, file_names):
        return "program"

    def program(self, prepared):
        return EngineProgram("Acme", "7", "acme-tool", {"acme-tool": Path(__file__)})

    def manual(self, model, plan):
        return f"  ./{model.removeprefix('model/')} libQnnHtp.so of {plan.qnn}"

    def cases(self, path, options):
        names = (options.graph,) if options.graph else ("one", "two")
        return [WholeFile.of(path, (), options, [path], part=name) for name in names]

    def old_cases(self, path, options):"""


def build(folder: Path, exit_text: str) -> None:
    source = folder / "app.c"
    source.write_text(PROGRAM.replace("EXIT", exit_text))
    need("cc")
    command = ["cc", "-o", folder / "app.acme", source, "-ldl"]
    subprocess.run(command, check=True)


def case_records(folder: Path) -> list[dict[str, Any]]:
    records = RunFolder(folder / "reports" / "latest").contents().records
    return [record.model_dump(mode="json") for record in records]


@pytest.mark.slow
def test_a_package_adds_an_engine(simulated_lab: Path, tmp_path: Path) -> None:
    build(tmp_path, "0")
    completed = run_with_plugin(ENGINE, tmp_path, "pytest", "-m", "device", "app.acme")
    assert completed.returncode == 0, completed.stdout
    (record,) = case_records(tmp_path)
    assert record["case"].startswith("app.acme::test_acme[sim-test-htp-")
    assert (record["engine"], record["placement"]["engine"]) == ("acme", "acme")
    assert (record["suite"], record["outcome"]) == ("run_acme", "passed")
    assert record["measurements"]["acme_lines"] >= 1
    (check,) = record["checks"]
    assert "code 0, 1 interfaces" in check["reason"]
    assert check["reason"].endswith(" (exit code 0)")


@pytest.mark.slow
def test_a_suite_requires_the_engine(simulated_lab: Path, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(SUITE)
    completed = run_with_plugin(ENGINE, tmp_path, "pytest", "-m", "device", "test_own.py")
    assert completed.returncode == 0, completed.stdout
    (record,) = case_records(tmp_path)
    assert (record["engine"], record["outcome"]) == ("acme", "passed")


@pytest.mark.slow
def test_commands_accept_the_engine_and_its_files(simulated_lab: Path, tmp_path: Path) -> None:
    (tmp_path / "app.acme").write_text("#!/bin/sh\n")
    run = ("harness.cli.main", "run", "app.acme", f"--lab={simulated_lab}")
    completed = run_with_plugin(ENGINE, tmp_path, *run)
    assert (completed.returncode, "app.acme: " in completed.stdout) == (2, True)
    completed = run_with_plugin(ENGINE, tmp_path, *run, "--engine=qnn")
    assert (completed.returncode, "--engine acme" in completed.stdout) == (2, True)
    completed = run_with_plugin(ENGINE, tmp_path, *run, "--engine=acne")
    assert (completed.returncode, "litert, acme)" in completed.stdout) == (2, True)


@pytest.mark.slow
def test_an_engine_names_its_versions_graphs_and_findings(
    simulated_lab: Path, tmp_path: Path
) -> None:
    build(tmp_path, "7")
    module = ENGINE.replace("    def cases(self, path, options):", METHODS)
    module = module.replace("import pytest\n", IMPORTS, 1)
    planned = run_with_plugin(module, tmp_path, "pytest", "-m", "device", "app.acme", "--dry-run")
    assert planned.stdout.count(", Acme 7 (") == 2, planned.stdout
    completed = run_with_plugin(module, tmp_path, "pytest", "-m", "device", "app.acme")
    assert "running with QNN 2.49.40: Acme takes no other" in completed.stdout
    records = {record["case"].rpartition("-")[2]: record for record in case_records(tmp_path)}
    assert records.keys() == {"one]", "two]"}, completed.stdout
    record = records["two]"]
    assert record["runtime"]["qnn"] == "2.49.40"
    assert [item["code"] for item in record["preflight"]] == ["acme-licence"]
    main = "harness.cli.main"
    words = ("model", "bundle", record["case"], "-o", "case.zip")
    run_with_plugin(module, tmp_path, main, *words)
    with zipfile.ZipFile(tmp_path / "case.zip") as bundle:
        plan = json.loads(bundle.read("manifest.json"))["plan"]
        assert (plan["engine"], plan["graph"]) == ("acme", "two")
        assert b"\n\n  ./app.acme libQnnHtp.so of 2.49.40\n" in bundle.read("README.txt")
    refused = run_with_plugin(module, tmp_path, main, "model", "reduce", record["case"])
    assert (refused.returncode, "this engine loads a file as a whole" in refused.stdout) == (
        2,
        True,
    )
    run = ("run", "case.zip", f"--lab={simulated_lab}")
    assert run_with_plugin(module, tmp_path, main, *run).returncode == 1
    assert [item["case"].rpartition("-")[2] for item in case_records(tmp_path)] == ["two]"]
    assert case_records(tmp_path)[0]["measurements"]["came_again"] is True
