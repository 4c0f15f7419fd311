"""`acceptance run` on devices: every step, right and wrong, what stays, and what is packed."""

import json
import os
import re
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from harness.cli.doctor import lines_of
from harness.core.state_folders import cache_root
from harness.doctor import acceptance
from harness.doctor.acceptance import STEPS, Trial, accept
from harness.doctor.check_results import CheckResult, report_of
from harness.doctor.device_visit import Options, open_workbench
from harness.lab.health import RecoveryRules
from harness.lab.inventory import load_lab
from harness.probe.plan import Step as ProbeStep
from tests.conftest import GONE
from tests.integration.cli.test_doctor import NAME
from tests.integration.deploy.conftest import MakeDevice
from tests.integration.device_runs import ROOT
from tests.integration.in_process import qnn_harness
from tests.integration.simulator.conftest import AdbClient, StartDevice, processes_of
from tests.integration.transport.adb.faulty_link import FaultyLink

SHORT = STEPS[:2]


@pytest.mark.slow
def test_every_step_and_nothing_is_left(
    adb: AdbClient, start_device: StartDevice, simulated_lab: Path, tmp_path: Path
) -> None:
    device = start_device()
    with FaultyLink(device.address) as link:
        simulated_lab.write_text(
            f"schema: 1\nhosts: [{{name: here, host: 127.0.0.1, port: {adb.port}}}]\n"
            f"devices: [{{name: {NAME}, soc: QCS8550, host: here, serial: '{link.address}', "
            f"workdir: {device.storage}/work}}]\n"
        )
        prompts: list[str] = []

        def person(text: str) -> None:
            prompts.append(text)
            if len(prompts) == 1:
                link.cut_after(1)
            else:
                link.resume()

        words: dict[str, str] = {}
        order = Options(simulated_lab, (NAME,), cache_root(), os.environ)
        options = ["--unplug", "--reboot"]
        checks = list(accept(order, NAME, options, tmp_path / "logs", person, words))
    steps = {check.name: check for check in checks if check.group == "acceptance"}
    assert list(steps) == [*(step.name for step in STEPS), "nothing left behind"]
    text = "\n".join(lines_of(report_of(checks)))
    status = {name: check.status for name, check in steps.items() if check.status != "ok"}
    # the HTP of a computer is a simulator in its own library, which is real and has a real budget
    assert status == {
        "FastRPC": "not-applicable",
        "backend gpu": "not-applicable",
        "backend cpu": "not-applicable",
        "66 contexts": "warn",
    }, text
    assert "1002" in steps["66 contexts"].found
    assert [text.split()[0] for text in prompts] == ["unplug", "plug"]
    assert {link.address, "127.0.0.1"} < set(words)
    assert "--no-smoke" not in text
    assert not (device.storage / "work/acceptance").exists()
    logs = {str(path.relative_to(tmp_path / "logs")) for path in (tmp_path / "logs").rglob("*")}
    assert {"crash/evidence/evidence.json", "hang/probe.jsonl", "htp/case/probe.plan"} <= logs
    assert len(processes_of(device.storage)) == 2  # its supervisor and its daemon


def shown_in(packed: zipfile.ZipFile) -> str:
    return packed.read("report.txt").decode()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "STEPS", SHORT)


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_as_a_user_types_it(simulated_lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "sent.zip"
    completed = qnn_harness(
        "acceptance", "run", NAME, "--lab", simulated_lab, "--output", out, "--json"
    )
    assert (completed.returncode, completed.stderr) == (0, f"packed: {out}\n")
    content = json.loads(completed.stdout)
    jsonschema.validate(content, json.loads((ROOT / "docs/schema/doctor.schema.json").read_text()))
    steps = [check["name"] for check in content["checks"] if check["group"] == "acceptance"]
    assert steps == [*(step.name for step in SHORT), "nothing left behind"]
    with zipfile.ZipFile(out) as packed:
        assert packed.namelist() == ["README.txt", "report.txt", "report.json"]
        assert re.search(r"^acceptance\n  ok +shells, exit codes ", shown_in(packed), re.M)
        whole = b"\n".join(map(packed.read, packed.namelist())).decode()
    for private in (str(cache_root()), str(Path.cwd())):
        assert private not in whole


@pytest.mark.usefixtures("short")
def test_of_a_device_that_does_not_answer_there_is_an_archive_too(
    simulated_lab: Path, tmp_path: Path
) -> None:
    simulated_lab.write_text(GONE)
    out = tmp_path / "sent.zip"
    completed = qnn_harness(
        "acceptance", "run", "gone", "--lab", simulated_lab, "--output", out, code=3
    )
    assert "steps" in completed.stdout
    with zipfile.ZipFile(out) as packed:
        assert "127.0.0.1:9" not in shown_in(packed)


def test_where_no_archive_can_be_written_no_step_is_tried(
    simulated_lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cli.acceptance.accept", None)
    out = tmp_path / "none/sent.zip"
    completed = qnn_harness("acceptance", "run", NAME, "--lab", simulated_lab, "--output", out)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert f"{out}: cannot be written: No such file or directory" in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "method", "wrong"),
    [
        (acceptance.shells, "shell", lambda answer: replace(answer, exit_code=0, signal=None)),
        (acceptance.shells, "shell", lambda answer: replace(answer, stdout=answer.stdout[:-1])),
        (acceptance.push, "shell", lambda answer: answer),
        (acceptance.store, "stat", lambda status: status or 1),
    ],
    ids=["no exit codes", "a byte less", "damaged", "never empty"],
)
def test_what_is_wrong_is_found(
    make_device: MakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Trial], CheckResult],
    method: str,
    wrong: Callable[[Any], Any],
) -> None:
    """Steps that need nothing but a shell and files."""
    device = make_device("simulated")
    device.damage_next = act is acceptance.push
    right = getattr(device, method)
    monkeypatch.setattr(device, method, lambda *words, **more: wrong(right(*words, **more)))
    in_use = SimpleNamespace(
        attach=lambda: SimpleNamespace(transport=device, workdir=device.workdir)
    )
    bench: Any = SimpleNamespace(lab=SimpleNamespace(device=lambda name: in_use))
    trial = Trial(bench, NAME, "latest", Path("/none"), print, RecoveryRules())
    assert act(trial).status == "fail"


@pytest.fixture
def trial(simulated_lab: Path, tmp_path: Path) -> Any:
    """A simulated device with the probe on it."""
    with ExitStack() as cleanup:
        order = Options(simulated_lab, (NAME,), cache_root(), os.environ)
        bench = open_workbench(load_lab(simulated_lab), order)
        cleanup.callback(bench.close)
        trial = Trial(bench, NAME, "latest", tmp_path / "logs", print, RecoveryRules())
        assert acceptance.probe(trial).status == "ok"
        yield trial


def test_a_process_that_does_not_do_as_it_should(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict that is not the one that was provoked is red; without a probe there is none."""
    monkeypatch.setattr(acceptance, "Step", lambda verb, fields=None: ProbeStep("noop"))
    for act in (acceptance.crash, acceptance.hang):
        assert act(trial).status == "fail"
    trial.probe = ""
    assert acceptance.crash(trial).status == "unknown"


def test_what_nobody_does_and_what_a_lab_forbids(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "PERSON_S", 1.0)
    assert acceptance.unplug(trial).status == "unknown"
    trial.rules = RecoveryRules(reboot=False)
    assert acceptance.reboot(trial).status == "not-applicable"
