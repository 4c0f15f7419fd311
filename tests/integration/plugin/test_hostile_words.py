"""A whole run of pytest shows no password, and lets nobody steer the terminal."""

import subprocess
from xml.etree import ElementTree

import pytest

from tests.integration.device_runs import DeviceRuns
from tests.integration.hostile_words import CANARY, SECRET, files_with, steering
from tests.report_page import words_of

SUITE = f"""
import warnings
import pytest
from harness.core.errors import InfraError
from harness.probe.plan import Plan, Step

SECRET = "-".join({SECRET.split("-")!r})
SAID = {CANARY!r} + f" https://user:{{SECRET}}@host/x Authorization: Bearer {{SECRET}}"

@pytest.mark.device
@pytest.mark.parametrize("how", ["assert", "skip", "error", "lab", "xfail", "crash", "said"])
def test_case(bench, how):
    print(SAID)
    warnings.warn(SAID)
    words = f"https://host/x?token={{SECRET}} Authorization: Basic {{SECRET}}"
    if how == "said":
        bench.run(Plan((Step("context-inspect", {{"file": words}}),)), timeout_s=60).check()
    if how == "crash":
        said = f"log -p e -t qnn 'password={{SECRET}} {{words}}'"
        bench.device.transport.shell(said, timeout_s=9)
        bench.run(Plan((Step("crash", {{"signal": "11"}}),)), timeout_s=60).check()
    if how == "skip":
        pytest.skip(SAID)
    if how == "error":
        raise RuntimeError(SAID)
    if how == "lab":
        raise InfraError(SAID)
    if how == "xfail":
        pytest.xfail(SAID)
    bench.run(Plan((Step("noop"),)), timeout_s=60).check()
    assert not SAID, SAID
"""


@pytest.mark.slow
def test_all_that_a_run_prints_and_keeps(lab: DeviceRuns) -> None:
    suite = lab.write_suite(SUITE)
    url = f"http://user:{SECRET}@127.0.0.1:9/maven2"
    lab.file.write_text(
        lab.file.read_text() + "runtimes:\n  - {name: far, kind: maven, target: linux-x64, "
        f'coordinates: "com.qualcomm.qti:qnn-runtime", repository: "{url}"}}\n'
    )
    runs = [
        ["-o", "qnn_retries=0", "-rA", f"--override-ini=junit_suite_name={url}"],
        ["--dry-run", f"--override-ini=junit_suite_name={url}"],
    ]
    for arguments in runs:
        command = lab.command("--qnn=2.51.0", *arguments, suite)
        # in CI pytest shows all lines of a failure in its short summary
        environment = lab.environment | {"CI": "true"}
        completed = subprocess.run(
            command, capture_output=True, timeout=300, env=environment, check=False
        )
        output = completed.stdout + completed.stderr
        assert steering(output) == [], arguments
        assert SECRET.encode() not in output, (arguments, output.decode())
        assert b"INTERNALERROR" not in output
        if "qnn_retries=0" in arguments:
            assert b"pwned" in output
            assert b"2 failed" in output, output.decode()
    assert files_with(SECRET, lab.reports) == []
    paths = {path.name for path in files_with("token=***", lab.reports / "latest/logs")}
    assert {"probe.jsonl", "probe.plan"} <= paths
    assert any(name.startswith("logcat") for name in paths), paths
    (folder,) = {path.parent for path in lab.reports.glob("2*/run.json")}
    for name in ("run.json", "results.jsonl", "report.html"):
        text = (folder / name).read_text()
        text = words_of(text) if name == "report.html" else text
        assert "pwned" in text or name == "run.json"
        assert "***@" in text
        assert SECRET not in text
    ElementTree.parse(folder / "junit.xml")
