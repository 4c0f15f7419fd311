"""Each finding of preflight: a set that has it, and the clean set it was made of that has none."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.runtimes.preflight import ContextFacts, PreflightInput, TargetFacts, preflight
from harness.runtimes.preflight_findings import CODES, Finding
from harness.runtimes.runtime import LibraryFacts, SdkBuild, kind_of, library_facts
from tests.properties import reached, reaches
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file

BUILD = b"\0v2.51.0.260929181845\0"
OTHER = b"\0v2.50.40.260831140417\0"
LINUX = ["libc.so.6", "libstdc++.so.6", "ld-linux-aarch64.so.1"]
BOARD = TargetFacts("linux-arm64", soc="SM8550", glibc="2.35")
PHONE = TargetFacts("android-arm64", soc="SM8550", android_api=34)


def library(
    name: str,
    machine: str = "aarch64",
    *,
    glibc: str = "GLIBC_2.34",
    android_api: int | None = None,
    **more: Any,
) -> LibraryFacts:
    needs = {} if android_api is not None or machine == "hexagon" else {"libc.so.6": [glibc]}
    options = {"needed": LINUX, "content": BUILD, "pages": 0} | more
    data = elf_file(machine, needs=needs, android_api=android_api, **options)
    return library_facts(name, data)


def skel(arch: int, pages: int = 0) -> LibraryFacts:
    options = {"bits": 32, "flags": int(str(arch), 16), "needed": ["libc++.so.1", "libc++abi.so.1"]}
    return library(f"libQnnHtpV{arch}Skel.so", "hexagon", pages=pages, **options)


def stub(arch: int, content: bytes = BUILD) -> LibraryFacts:
    needed = [*LINUX, "libcdsprpc.so"]
    return library(f"libQnnHtpV{arch}Stub.so", needed=needed, content=content)


BACKEND = library("libQnnHtp.so")
STAMP = b"\000260929181845\0"
OTHER_STAMP = b"\000260831140417\0"
SYSTEM = library("libQnnSystem.so", content=STAMP)
SYSTEM_4K = library("libQnnSystem.so", content=STAMP, pages=4096)
PLUGIN = library("libonnxruntime_providers_qnn.so", content=b"QNN EP requires ORT >= 1.%u")
SILENT = library("libonnxruntime_providers_qnn.so", content=b"")
CLEAN = (BACKEND, SYSTEM, stub(73), skel(73))


def without(*names: str) -> tuple[LibraryFacts, ...]:
    return tuple(file for file in CLEAN if file.name not in names)


def with_(*files: LibraryFacts) -> tuple[LibraryFacts, ...]:
    return (*without(*(file.name for file in files)), *files)


def ort(version: str) -> LibraryFacts:
    return library("libonnxruntime.so.1", defines=[f"VERS_{version}"])


ON_BOARD = PreflightInput(CLEAN, BOARD, qnn_version="2.51.0")
LARGE_PAGES = replace(ON_BOARD, device=replace(BOARD, page_bytes=16384))


def android(name: str) -> LibraryFacts:
    return library(name, needed=["libc.so", "libcdsprpc.so"], android_api=30)


PHONE_FILES = tuple(
    android(name) for name in ("libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV73Stub.so")
)
ON_PHONE = PreflightInput((*PHONE_FILES, skel(73)), PHONE)
X64 = {"machine": "x86-64", "needed": ["libc.so.6", "ld-linux-x86-64.so.2"]}
SIMULATOR = PreflightInput(
    (library("libQnnHtp.so", **X64), library("libQnnSystem.so", **X64)),  # type: ignore[arg-type]
    TargetFacts("linux-x64", glibc="2.36"),
)
SIMULATOR_73 = replace(SIMULATOR, device=replace(SIMULATOR.device, htp_arch=73))

C = ContextFacts
TOO_LARGE = C("c.bin", "2.51.0", 73, 16 << 20, (3840 << 20) + 1)
CLEAN_ONES = [
    ON_BOARD,
    ON_PHONE,
    SIMULATOR,
    replace(ON_BOARD, qnn_version="2.51.0.260929"),
    replace(ON_BOARD, files=(*CLEAN, stub(68), skel(68), library("libQnnHtpPrepare.so"))),
    replace(ON_BOARD, files=(*CLEAN, PLUGIN, ort("1.31.1"))),
    replace(ON_BOARD, files=(*CLEAN, SILENT, ort("1.26.0"))),
    replace(ON_BOARD, files=(*CLEAN, PLUGIN)),
    replace(ON_BOARD, contexts=[C("a", "2.51.0", 73), C("b", "2.47.0", 73), C("c", "v2.51")]),
    replace(ON_BOARD, contexts=[C("a", "v2.51.0.260929181845_193", 73), C("b", "what?")]),
    replace(ON_BOARD, device=TargetFacts("linux-arm64")),
    replace(ON_BOARD, files=with_(SYSTEM_4K)),
    replace(LARGE_PAGES, files=with_(library("libQnnSystem.so", content=STAMP, pages=16384))),
    replace(LARGE_PAGES, files=with_(skel(73, pages=4096))),
    replace(ON_BOARD, files=(library("libQnnCpu.so"),), backend="cpu"),
    replace(SIMULATOR, contexts=[C("a", "2.51.0", 81)]),
    replace(SIMULATOR, contexts=[C("a", "2.51.0", None, 16 << 20, 5 << 30)]),
    replace(ON_BOARD, contexts=[C("a", "2.51.0", 73, 8 << 20, 3840 << 20)]),
    replace(ON_BOARD, files=(library("libQnnGpu.so"),), backend="gpu", contexts=[TOO_LARGE]),
    # the same SoC under its other name, one that was not chosen, and a device that is not known
    *(replace(ON_BOARD, contexts=[C("a", "2.51.0", 73, soc_model=soc)]) for soc in (43, 0)),
    replace(
        ON_BOARD, device=replace(BOARD, soc=None), contexts=[C("a", "2.51.0", 73, soc_model=57)]
    ),
    replace(SIMULATOR, contexts=[C("a", "2.51.0", 73, soc_model=57)]),
]


@pytest.mark.parametrize("subject", CLEAN_ONES)
def test_nothing_is_found_in_a_clean_set(subject: PreflightInput) -> None:
    assert preflight(subject) == []


S = "libQnnHtpV73Stub.so"
K = "libQnnHtpV73Skel.so"
HTP = "libQnnHtp.so"
SYSTEM_SO = "libQnnSystem.so"
PREPARE = "libQnnHtpPrepare.so"
STUB_75 = stub(75)
DSP_68 = replace(ON_BOARD, files=(*without(S, K), stub(68), skel(68)))


def board(*files: LibraryFacts, **changed: Any) -> PreflightInput:
    """The clean set, in which some files are others."""
    return replace(ON_BOARD, files=with_(*files), **changed)


def more(*files: LibraryFacts, **changed: Any) -> PreflightInput:
    return replace(ON_BOARD, files=(*CLEAN, *files), **changed)


def on(soc: str | None, *contexts: ContextFacts, **facts: Any) -> PreflightInput:
    """The clean set and contexts on a board with this SoC."""
    return replace(ON_BOARD, device=replace(BOARD, soc=soc, **facts), contexts=contexts)


def on_phone(**library_: Any) -> PreflightInput:
    """The phone's set and one more library."""
    return replace(ON_PHONE, files=[*ON_PHONE.files, library("x.so", **library_)])


FLOATS_73 = [C("c.bin", "2.51.0", 73, has_floats=True), C("d.bin", "2.51.0", 73)]
FLOATS = [C("c.bin", "2.51.0", 68, has_floats=True), C("d.bin", "2.51.0", 68)]


def floats(place: PreflightInput) -> PreflightInput:
    return replace(place, device=replace(place.device, soc=None, htp_arch=68), contexts=FLOATS)


FAULTS: list[tuple[Any, ...]] = [
    (board(stub(73, OTHER)), "sdk-mix", "error", S, HTP),
    (more(library(PREPARE, content=OTHER)), "sdk-mix", "error", PREPARE, HTP),
    (board(library(SYSTEM_SO, content=OTHER_STAMP)), "sdk-mix", "warning", SYSTEM_SO, HTP),
    (replace(ON_BOARD, qnn_version="2.50.40"), "version-label", "warning", HTP),
    (more(replace(BACKEND, name=f"more/{HTP}")), "library-twice", "error", HTP, f"more/{HTP}"),
    (replace(ON_BOARD, files=without(HTP)), "backend-missing", "error"),
    (replace(ON_BOARD, files=without(SYSTEM_SO)), "system-missing", "warning"),
    (replace(ON_BOARD, files=(*without(S), STUB_75)), "stub-missing", "error", STUB_75.name),
    (replace(ON_BOARD, files=without(K)), "skel-missing", "error"),
    (on("QCS610"), "no-htp", "error"),
    (on("SM8650", htp_arch=73), "soc-arch", "warning"),
    (on("SM9999", htp_arch=73), "soc-unknown", "warning"),
    (on("SM8550", C("c.bin", "2.52.0", 73)), "context-newer", "error", "c.bin"),
    (on("SM8550", C("c.bin", "2.51.0", 75)), "context-arch", "error", "c.bin"),
    (on("SM8550", C("c.bin", "2.51.0", 69)), "context-arch", "warning", "c.bin"),
    (replace(SIMULATOR_73, contexts=[C("c.bin", "2.51.0", 81)]), "context-arch", "info", "c.bin"),
    (on("sm8550", C("c.bin", "2.51.0", 73, (8 << 20) + 1)), "context-vtcm", "error", "c.bin"),
    (on("QCS9100", C("c.bin", "2.51.0", 73, soc_model=43)), "context-soc", "warning", "c.bin"),
    (on("SM8550", C("c.bin", "2.51.0", 73, soc_model=9999)), "context-soc", "warning", "c.bin"),
    (floats(DSP_68), "context-floats", "warning", "c.bin"),
    (floats(SIMULATOR), "context-floats", "info", "c.bin"),
    (on("SM8550", *FLOATS_73, lacks_floats=True), "emulator-floats", "warning", "c.bin"),
    (on(None, TOO_LARGE), "context-memory", "error", "c.bin"),
    (board(library_facts(SYSTEM_SO, b"<html>")), "elf-damaged", "error", SYSTEM_SO),
    (board(library(SYSTEM_SO, **X64)), "wrong-machine", "error", SYSTEM_SO),
    (board(library(SYSTEM_SO, "arm", bits=32)), "wrong-machine", "error", SYSTEM_SO),
    (board(library(K)), "wrong-machine", "error", K),
    (board(android(SYSTEM_SO)), "wrong-libc", "error", SYSTEM_SO),
    (on_phone(), "wrong-libc", "error", "x.so"),
    (board(library(SYSTEM_SO, glibc="GLIBC_2.38")), "glibc-too-old", "error", SYSTEM_SO),
    (on_phone(needed=["libc.so"], android_api=35), "android-api", "warning", "x.so"),
    (replace(LARGE_PAGES, files=with_(SYSTEM_4K)), "page-size", "error", SYSTEM_SO),
    (board(library(SYSTEM_SO, needed=["libc++-7.so.1"])), "needed-missing", "error", SYSTEM_SO),
    (on_phone(needed=["libc++_shared.so"], android_api=30), "needed-missing", "error", "x.so"),
    (on("SM8550", libraries=frozenset(LINUX)), "needed-missing", "error", S),
    (more(PLUGIN, ort("1.22.0")), "ort-too-old", "error", PLUGIN.name, "libonnxruntime.so.1"),
    (more(SILENT, ort_version="1.20.1"), "ort-too-old", "error", PLUGIN.name),
    (more(SILENT, ort("1.31.1")), "ort-too-new", "error", PLUGIN.name, "libonnxruntime.so.1"),
    (more(PLUGIN, library("libonnxruntime.so")), "ort-unknown", "info", PLUGIN.name),
]
"""Each: a set of libraries, code and severity of its only finding, the files at fault."""


def test_a_fault_is_the_only_thing_found(snapshot: Snapshot) -> None:
    texts = []
    for subject, *fault in FAULTS:
        (finding,) = preflight(subject)
        assert [finding.code, finding.severity, *finding.files] == fault
        assert finding.thread == CODES[finding.code].thread
        texts.append(f"{finding.explanation} {finding.fix}")
    assert texts == snapshot


def test_every_code_is_in_the_table_of_faults() -> None:
    assert {fault[1] for fault in FAULTS} == set(CODES) - {"executorch-device"}  # of an engine


def test_the_worst_comes_first() -> None:
    subject = replace(ON_BOARD, files=with_(stub(73, b""))[1:], qnn_version="2.50.40")
    assert [finding.severity for finding in preflight(subject)] == ["error", "warning"]


def test_a_finding_as_a_line(snapshot: Snapshot) -> None:
    assert str(preflight(board(stub(73, OTHER)))[0]) == snapshot


names = st.sampled_from(["libQnnHtp.so", S, K, "libQnnSystem.so", "libonnxruntime.so", PLUGIN.name])
facts = st.builds(
    lambda name, build, ort_version: LibraryFacts(
        name, *kind_of(name), BACKEND.elf, None, build, ort_version
    ),
    names,
    st.none() | st.builds(SdkBuild, st.text(max_size=9), st.text("0123456789", max_size=12)),
    st.none() | st.text(max_size=9),
)


@reaches(0.5)
@given(
    st.lists(facts, max_size=5),
    st.sampled_from([BOARD, PHONE, SIMULATOR.device]),
    st.none() | st.text(max_size=9),
)
def test_any_facts(files: list[LibraryFacts], device: TargetFacts, version: str | None) -> None:
    context = ContextFacts("c", version, 73)
    findings: list[Finding] = preflight(
        PreflightInput(files, device, contexts=[context], qnn_version=version, ort_version=version)
    )
    if findings:
        reached()
    assert all(finding.explanation and finding.fix for finding in findings)
