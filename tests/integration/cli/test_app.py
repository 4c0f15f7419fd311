"""`app check` from the command line: texts, JSON, exit codes, and a phone that is asked."""

import json
from pathlib import Path

import jsonschema
import pytest

from harness.cli import app
from harness.cli.schema import schemas
from harness.core.errors import InfraError
from tests.android.phone import ADBD, Phone
from tests.integration.in_process import qnn_harness
from tests.needed import ANDROID
from tests.snapshots import Snapshot
from tests.unit.app.apps import apk, healthy, manifest, write

FIELD = Path(__file__).parents[2] / "field"
SCHEMA = json.loads(schemas()["app.schema.json"])
ADD = next(FIELD.glob("add_add_1_quant*.bin")).name


def with_models(folder: Path, **options: object) -> Path:
    models = {f"assets/{name}": (FIELD / name).read_bytes() for name in (ADD, "test_abs.dlc")}
    entries = healthy() | models | {"assets/three.pte": pte()}
    del entries["assets/model.bin"]
    return write(folder, apk(manifest(**options), entries, packed=["assets/three.pte"]))


def pte() -> bytes:
    return (FIELD / "executorch-3-contexts.pte").read_bytes()


def test_what_is_inside_and_what_is_wrong(tmp_path: Path, snapshot: Snapshot) -> None:
    path = with_models(tmp_path, extract=False)
    printed = qnn_harness("app", "check", path, "--json")
    assert printed.returncode == 1
    # the first one may have waited for another process that builds the probe
    completed = qnn_harness("app", "check", path)
    assert completed.returncode == 1
    assert completed.stdout == snapshot
    assert completed.stderr == ""
    report = json.loads(printed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    codes = {finding["code"] for finding in report["findings"]}
    assert all(f" {code}: " in completed.stdout for code in codes)


def test_exit_codes(tmp_path: Path, snapshot: Snapshot) -> None:
    fine = write(tmp_path, apk(manifest(debuggable=True), {}), "fine.apk")
    completed = qnn_harness("app", "check", fine)
    assert (completed.returncode, completed.stdout) == (0, snapshot)
    warned = write(tmp_path, apk(manifest(), healthy() | {"assets/a.bin": b"\0\0\0\2"}), "a.apk")
    assert qnn_harness("app", "check", warned).returncode == 0
    damaged = write(tmp_path, b"PK\3\4", "damaged.apk")
    for words in ([damaged], [fine, fine], [], [fine, "--device", "nobody"]):
        assert qnn_harness("app", "check", *words).returncode == 2


def test_without_qnns_library_contexts_are_read_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def host_runtime(*_: object) -> None:
        raise InfraError("the index cannot be reached")

    monkeypatch.setattr(app, "host_runtime", host_runtime)
    completed = qnn_harness("app", "check", with_models(tmp_path))
    assert completed.returncode == 0
    warning = "contexts were read only in part: the index cannot be reached"
    assert completed.stderr == f"warning: {warning}\n"
    assert "made by QNN of an unknown build for HTP v" in completed.stdout
    wrong = tmp_path / "lab.yaml"
    wrong.write_text("schema: 1\n")
    assert qnn_harness("app", "check", with_models(tmp_path), "--lab", wrong).returncode == 2


@pytest.mark.needs(ANDROID)
@pytest.mark.needs(ADBD)
@pytest.mark.parametrize("offered", ["libcdsprpc.so 64\n# a comment\n", "libOpenCL.so\n", None])
def test_a_phone_says_what_it_offers_to_apps(tmp_path: Path, offered: str | None) -> None:
    path = write(tmp_path, apk(manifest(min_sdk=30), healthy()))
    with Phone(tmp_path / "phone") as phone:
        if offered is not None:
            etc = tmp_path / "phone/vendor-phone/etc"
            etc.mkdir()
            (etc / "public.libraries.txt").write_text(offered)
        words = ["app", "check", path, "-s", "phone", "--lab", phone.runs.file]
        completed = qnn_harness(*words, environment=phone.runs.environment)
    offers = {None: "?", "libOpenCL.so\n": "libOpenCL.so"}.get(offered, "libcdsprpc.so")
    assert f"phone: Android API 30, HTP v73, offers {offers} to apps" in completed.stdout
    refused = offered == "libOpenCL.so\n"
    assert completed.returncode == int(refused), completed.stdout + completed.stderr
    assert ("library-not-public" in completed.stdout) == refused
