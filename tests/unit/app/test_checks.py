"""Each mistake in an app is named: the healthy app, and one wrong thing in it each time."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import apk_info
import pytest

from harness.app import manifest as manifest_reader
from harness.app.checks import CODES, REMEDIES, AppFinding, Phone, report
from harness.app.package import App, read_app
from harness.core.errors import ConfigError
from harness.models.context_metadata import Unreadable
from harness.runtimes.preflight import TargetFacts
from harness.runtimes.preflight_findings import CODES as OF_PREFLIGHT
from tests.snapshots import Snapshot
from tests.unit.app.apps import (
    ASKS,
    BUILD,
    CONTEXT,
    LIB,
    OTHER_BUILD,
    Node,
    apk,
    bundle,
    healthy,
    library,
    manifest,
    skel,
    stub,
    write,
)

METADATA = {"build_id": "v2.51.0.260929181845", "dsp_arch": 73, "soc_model": 43, "graphs": []}
ROOT = Path(__file__).parents[3]
FIELD = ROOT / "tests/field"
OLD_BUILD = BUILD.replace(b"2.51", b"2.31")
RPC = "libcdsprpc.so"
ORT = b"\0VERS_1.24.2\0"
TFLITE = b"\x1c\0\0\0TFL3" + bytes(100)


def tag(name: str = RPC, kind: str = "uses-native-library", **more: object) -> Node:
    return (kind, {"name": name, "required": False} | more, ())


def read(*files: Path, metadata: Mapping[str, Any] | Unreadable = METADATA) -> App:
    return read_app(files, lambda pieces: [metadata] * len(pieces))


@pytest.fixture(autouse=True)
def manifests_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for each takes longer than all else; test_hostile_apps.py has it."""

    def text_of(content: bytes) -> str:
        with tempfile.NamedTemporaryFile(suffix=".apk") as file:
            Path(file.name).write_bytes(apk(content, {}))
            return apk_info.APK(file.name).get_xml_string()

    monkeypatch.setattr(manifest_reader, "_text_of", text_of)


def findings_of(app: App, phone: Phone | None = None) -> list[AppFinding]:
    return [*report(app, phone).findings]


def found(folder: Path, content: bytes, **more: Any) -> list[AppFinding]:
    return findings_of(read(write(folder, content), **more))


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in healthy().items() if name.rsplit("/")[-1] not in names}


def changed(**libraries: bytes) -> dict[str, bytes]:
    """The healthy app with other libraries, by their names without "lib" and ".so"."""
    return healthy() | {f"{LIB}lib{name}.so": data for name, data in libraries.items()}


def moved(**folders: str) -> dict[str, bytes]:
    return {
        next((name.replace(old, new) for old, new in folders.items() if old in name), name): data
        for name, data in healthy().items()
    }


MISTAKES: dict[str, tuple[set[str], Callable[[], bytes]]] = {
    # declarations
    "none": ({"library-undeclared"}, lambda: apk(manifest(tag("libother.so")), healthy())),
    "another name": ({"library-undeclared"}, lambda: apk(manifest(tag("libcdsprpc")), healthy())),
    "for Java": (
        {"library-undeclared"},
        lambda: apk(manifest(tag(kind="uses-library")), healthy()),
    ),
    "outside": (
        {"library-undeclared"},
        lambda: apk(manifest(tag(), within="manifest"), healthy()),
    ),
    "preview": (
        {"library-undeclared"},
        lambda: apk(manifest(tag("libother.so"), target="Baklava"), healthy()),
    ),
    "required": ({"library-required"}, lambda: apk(manifest(tag(required=True)), healthy())),
    "OpenCL": ({"library-undeclared"}, lambda: apk(manifest(), changed(QnnGpu=library()))),
    # packing
    "skel in the APK": ({"skel-packed"}, lambda: apk(manifest(extract=False), healthy())),
    "dispatch in the APK": (
        {"skel-packed"},
        lambda: apk(
            manifest(extract=False),
            without("libQnnHtpV73Skel.so")
            | {"assets/libQnnHtpV73Skel.so": skel()}
            | {f"{LIB}libLiteRtDispatch_Qualcomm.so": library(ASKS)},
        ),
    ),
    "bundle": ({"skel-packed"}, lambda: bundle(manifest(), healthy(), stores=True)),
    "bundle by default": ({"skel-packed"}, lambda: bundle(manifest(), healthy(), stores=None)),
    "no path of skels": ({"skel-path-unset"}, lambda: apk(manifest(), without("classes.dex"))),
    "compressed": (
        {"library-compressed", "skel-packed"},
        lambda: apk(manifest(extract=False), healthy(), packed=[f"{LIB}libQnnHtp.so"]),
    ),
    "unaligned": (
        {"zip-alignment", "skel-packed"},
        lambda: apk(manifest(extract=False), healthy(), align=4),
    ),
    "4 KB in the zip": (
        {"zip-alignment", "skel-packed"},
        lambda: apk(manifest(extract=False), healthy(), align=4096),
    ),
    "4 KB in the ELF": (
        {"page-alignment"},
        lambda: apk(manifest(), changed(other=library(b"", pages=4096))),
    ),
    # one build, once, in the right place
    "another build": (
        {"sdk-mix"},
        lambda: apk(manifest(), changed(QnnHtpV73Skel=skel(OTHER_BUILD))),
    ),
    "stub of another build": (
        {"sdk-mix"},
        lambda: apk(manifest(), changed(QnnHtpV73Stub=stub(OTHER_BUILD))),
    ),
    "twice": (
        {"library-copies"},
        lambda: apk(manifest(), healthy() | {"assets/libQnnHtp.so": library()}),
    ),
    "twice and different": (
        {"library-copies"},
        lambda: apk(manifest(), healthy() | {"assets/libQnnHtp.so": library(OTHER_BUILD)}),
    ),
    "32 bits only": (
        {"abi-missing", "abi-folder"},
        lambda: apk(manifest(tag()), moved(**{"arm64-v8a": "armeabi-v7a"})),
    ),
    "in the wrong folder": (
        {"abi-folder"},
        lambda: apk(manifest(), healthy() | {"lib/armeabi-v7a/libQnnHtp.so": library()}),
    ),
    "for x86-64": (
        {"wrong-machine"},
        lambda: apk(manifest(), changed(QnnHtp=library(BUILD, "x86-64"))),
    ),
    "for Linux": (
        {"wrong-libc"},
        lambda: apk(
            manifest(), changed(onnxruntime=library(ORT + ASKS, needed=["libc.so.6"]))
        ),
    ),
    "not lib*.so": (
        {"library-not-installed"},
        lambda: apk(manifest(), healthy() | {f"{LIB}libQnnGenAi.so.1": library(ASKS)}),
    ),
    "git-lfs": ({"elf-damaged"}, lambda: apk(manifest(), changed(QnnSystem=b"version https://git"))),
    "needs another": (
        {"needed-missing"},
        lambda: apk(manifest(), changed(QnnSystem=library(needed=["libc++_shared.so"]))),
    ),
    # complete
    "no stub": ({"htp-incomplete"}, lambda: apk(manifest(), without("libQnnHtpV73Stub.so"))),
    "no skel": ({"htp-incomplete"}, lambda: apk(manifest(), without("libQnnHtpV73Skel.so"))),
    "half of another": ({"htp-incomplete"}, lambda: apk(manifest(), changed(QnnHtpV75Stub=stub()))),
    "no HTP": (
        {"htp-incomplete"},
        lambda: apk(manifest(), without("libQnnHtpV73Skel.so", "libQnnHtpV73Stub.so", "model.bin")),
    ),
    "no backend": ({"backend-missing"}, lambda: apk(manifest(), without("libQnnHtp.so"))),
    "no system": ({"system-missing"}, lambda: apk(manifest(), without("libQnnSystem.so"))),
    "no prepare": (
        {"prepare-missing"},
        lambda: apk(
            manifest(),
            without("libQnnHtpPrepare.so", "model.bin")
            | {"assets/a.dlc": apk(None, {"dlc.metadata": b""})},
        ),
    ),
    "ORT without QNN": (
        {"ort-without-qnn"},
        lambda: apk(manifest(), changed(onnxruntime=library(ORT))),
    ),
    "ORT and an older QNN": (
        {"engine-mix"},
        lambda: apk(
            manifest(),
            {name: data.replace(BUILD, OLD_BUILD) for name, data in without("model.bin").items()},
        ),
    ),
    "ORT and plug-in": (
        {"ort-too-old"},
        lambda: apk(
            manifest(),
            changed(
                onnxruntime=library(b"\0VERS_1.20.0\0"),
                onnxruntime_providers_qnn=library(b"QNN EP requires ORT >= 1." + ASKS),
            ),
        ),
    ),
    # models
    "packed model": (
        {"model-compressed"},
        lambda: apk(manifest(), healthy(), packed=["assets/model.bin"]),
    ),
    "bundle packs models": ({"model-compressed"}, lambda: bundle(manifest(), healthy(), globs=())),
    "damaged model": (
        {"model-damaged"},
        lambda: apk(manifest(), healthy() | {"res/a1.tflite": TFLITE}),
    ),
    # versions of Android
    "minSdk": ({"min-sdk"}, lambda: apk(manifest(), changed(QnnHtp=library(android_api=31)))),
    "debuggable": ({"debuggable"}, lambda: apk(manifest(debuggable=True), healthy())),
}  # fmt: skip


def test_a_healthy_app_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, apk(manifest(), healthy())) == []
    assert found(tmp_path, bundle(manifest(), healthy())) == []
    assert found(tmp_path, bundle(manifest(), healthy(), compiled=True)) == []
    assert found(tmp_path, apk(manifest(tag("libx.so"), target=30), healthy())) == []
    assert found(tmp_path, apk(manifest(tag("libx.so"), target=None), healthy())) == []
    others = {f"{LIB}libQnnDspV66Skel.so": skel(), f"{LIB}libQnnHtpV73.so": skel(b"")}
    assert found(tmp_path, apk(manifest(), healthy() | others)) == []
    path = b"\0ADSP_LIBRARY_PATH\0"
    for code in (f"{LIB}libil2cpp.so", "assets/bin/Data/Managed/Metadata/global-metadata.dat"):
        content = library(path) if code.startswith(LIB) else path
        assert found(tmp_path, apk(manifest(), without("classes.dex") | {code: content})) == []
    assets = moved(**{f"{LIB}libQnnHtpV73Skel.so": "assets/libQnnHtpV73Skel.so"})
    assert found(tmp_path, apk(manifest(extract=False), assets)) == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str, tmp_path: Path, snapshot: Snapshot) -> None:
    codes, make = MISTAKES[mistake]
    findings = found(tmp_path, make())
    assert {finding.code for finding in findings} == codes
    assert [text for finding in findings for text in lines_of(finding)] == snapshot


def lines_of(finding: AppFinding) -> list[str]:
    return [
        f"{finding.severity} {finding.code}: {finding.explanation}",
        *(f"  in {place}" for place in finding.evidence),
        f"  {finding.remedy} ({finding.source})",
    ]


def test_an_app_without_qnn_has_no_finding(tmp_path: Path) -> None:
    entries = {f"{LIB}libother.so": library(b"", pages=4096), "assets/m.tflite": TFLITE}
    assert found(tmp_path, apk(manifest(debuggable=True, extract=False), entries, align=4)) == []


def test_a_newer_context_is_named(tmp_path: Path) -> None:
    newer = {**METADATA, "build_id": "v2.52.0.261010101010"}
    three = {"assets/3.pte": (FIELD / "executorch-3-contexts.pte").read_bytes()}
    findings = found(tmp_path, apk(manifest(), healthy() | three), metadata=newer)
    assert [(finding.code, finding.evidence[0].entry) for finding in findings] == [
        ("context-newer", "assets/3.pte"),
        ("context-newer", "assets/model.bin"),
    ]
    unread = found(tmp_path, apk(manifest(), healthy()), metadata=Unreadable("it is cut"))
    assert [finding.code for finding in unread] == ["model-damaged"]


PHONE = TargetFacts("android-arm64", soc="SM8550", htp_arch=73, android_api=34, page_bytes=4096)


@pytest.mark.parametrize(
    ("facts", "public", "codes"),
    [
        ({}, {RPC, "libOpenCL.so"}, set()),
        ({}, None, set()),
        ({}, {"libOpenCL.so"}, {"library-not-public"}),
        (
            {"soc": "SM8650", "htp_arch": 75},
            {RPC},
            {"context-arch", "stub-missing", "skel-missing"},
        ),
        ({"android_api": 28}, {RPC}, {"device-too-old"}),
        ({"soc": "QCS610", "htp_arch": None}, {RPC}, {"no-htp"}),
    ],
)
def test_a_phone_adds_what_it_offers(
    tmp_path: Path, facts: dict[str, Any], public: set[str] | None, codes: set[str]
) -> None:
    fields = vars(PHONE) | facts
    phone = Phone("pixel", TargetFacts(**fields), None if public is None else frozenset(public))
    findings = findings_of(read(write(tmp_path, apk(manifest(), healthy()))), phone)
    assert {finding.code for finding in findings} == codes


def test_of_contexts_for_several_htps_the_phones_count(tmp_path: Path) -> None:
    entries = healthy() | {"assets/v75.bin": CONTEXT + b"x"}
    entries |= {f"{LIB}libQnnHtpV75Stub.so": stub(), f"{LIB}libQnnHtpV75Skel.so": skel()}
    archs = iter([73, 75])
    app = read_app(
        [write(tmp_path, apk(manifest(), entries))],
        lambda pieces: [{**METADATA, "dsp_arch": next(archs)} for _ in pieces],
    )
    assert findings_of(app, Phone("pixel", PHONE)) == []
    assert findings_of(app) == []


def test_a_split_set_is_one_app(tmp_path: Path, snapshot: Snapshot) -> None:
    entries = healthy()
    libraries = {name: data for name, data in entries.items() if name.startswith("lib/")}
    rest = {name: data for name, data in entries.items() if name not in libraries}
    base = write(tmp_path, apk(manifest(), rest), "base.apk")
    split = write(tmp_path, apk(manifest(split="config.arm64_v8a"), libraries), "split.apk")
    other = write(tmp_path, apk(manifest(package="com.other"), {}), "other.apk")
    aab = write(tmp_path, bundle(manifest(), entries), "app.aab")
    assert findings_of(read(split, base)) == []
    assert [finding.code for finding in findings_of(read(base))] == [
        "backend-missing",
        "system-missing",
    ]
    twice = write(tmp_path, apk(manifest(split="feature"), libraries), "feature.apk")
    assert {finding.code for finding in findings_of(read(base, split, twice))} == {"library-copies"}
    archive = write(tmp_path, apk(None, {"universal.apk": b""}), "app.apks")
    aar = write(tmp_path, apk(b"<manifest/>", {"classes.jar": b""}), "lib.aar")
    wrong = ([split], [base, other], [base, base], [aab, base], [archive], [aar])
    os.mkfifo(tmp_path / "pipe")
    for files in (*wrong, [tmp_path / "none"], [tmp_path / "pipe"]):
        with snapshot.raises(ConfigError):
            read(*files)


def test_each_code_is_made_and_each_remedy_is_of_a_code_of_preflight() -> None:
    made = {code for codes, _ in MISTAKES.values() for code in codes}
    assert set(CODES) - made == {"library-not-public", "device-too-old"}
    assert set(REMEDIES) <= set(OF_PREFLIGHT)
