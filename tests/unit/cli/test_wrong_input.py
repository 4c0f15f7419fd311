"""Wrong input of commands: an error before anything is done, with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.in_process import qnn_harness


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bisect"], "--case and --axis say what to bisect, or --case with --good and --bad that"),
        (["compare", "--previous", "a", "b"], "--previous finds BASE: only NEW can be named"),
        (["compare"], "name the run to compare reports/latest with, or two runs, or --previous"),
        (["doctor", "--acceptance"], "--acceptance takes one DEVICE"),
        (["doctor", "a", "--reboot"], "--unplug, --reboot and --output go with --acceptance"),
        (["nightly", "--budget", "169h"], "'169h' is longer than 168h"),
        (["nightly", "--budget", ""], "'' is not a duration"),
        (["simulator", "start", "--devices", "3"], "No such option '--devices'"),
        (["simulator", "farm", "--lab", "x.yaml"], "No such option '--lab'"),
        (["contexts", "minimize"], "name the CASE to minimize, or --resume DIR alone"),
        (["history", "--since", "soon"], "'soon' is not a day, as in 2026-11-23"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_missing_or_does_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    completed = qnn_harness(*words)
    assert message in " ".join(completed.stderr.split())
    assert (completed.returncode, completed.stdout, list(tmp_path.iterdir())) == (2, "", [])


def test_a_lab_without_simulated_devices_has_none_to_show(tmp_path: Path) -> None:
    lab = tmp_path / "devices.yaml"
    lab.write_text("schema: 1\ndevices:\n  - {name: phone, serial: R5CX1234, soc: SM8550}\n")
    completed = qnn_harness("simulator", "start", "--lab", lab)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert f"{lab}: devices: no simulated device" in completed.stderr
