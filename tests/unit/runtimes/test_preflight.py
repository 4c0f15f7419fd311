"""Each finding of preflight: a set that has it, and the clean set it was made of that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.runtimes.findings import CODES, Finding
from harness.runtimes.preflight import (
    ContextFacts,
    PreflightInput,
    TargetFacts,
    preflight,
)
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
    needed: Sequence[str] = LINUX,
    content: bytes = BUILD,
    bits: int = 64,
    flags: int = 0,
    glibc: str = "GLIBC_2.34",
    android_api: int | None = None,
    defines: Sequence[str] = (),
    pages: int = 0,
) -> LibraryFacts:
    needs = {} if android_api is not None or machine == "hexagon" else {"libc.so.6": [glibc]}
    data = elf_file(
        machine,
        bits=bits,
        flags=flags,
        needed=needed,
        needs=needs,
        android_api=android_api,
        content=content,
        defines=defines,
        pages=pages,
    )
    return library_facts(name, data)


def skel(
    arch: int, content: bytes = BUILD, name: str | None = None, pages: int = 0
) -> LibraryFacts:
    return library(
        name or f"libQnnHtpV{arch}Skel.so",
        "hexagon",
        bits=32,
        flags=int(str(arch), 16),
        needed=["libc++.so.1", "libc++abi.so.1"],
        content=content,
        pages=pages,
    )


def stub(arch: int, content: bytes = BUILD) -> LibraryFacts:
    needed = [*LINUX, "libcdsprpc.so"]
    return library(f"libQnnHtpV{arch}Stub.so", needed=needed, content=content)


BACKEND = library("libQnnHtp.so")
STAMP = b"\000260929181845\0"
SYSTEM = library("libQnnSystem.so", content=STAMP)
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

C = ContextFacts
TOO_LARGE = C("c.bin", "2.51.0", 73, 16 << 20, (3840 << 20) + 1)
CLEAN_ONES = [
    ON_BOARD,
    ON_PHONE,
    SIMULATOR,
    replace(ON_BOARD, qnn_version="2.51"),
    replace(ON_BOARD, qnn_version="2.51.0.260929"),
    replace(ON_BOARD, files=(*CLEAN, stub(68), skel(68), library("libQnnHtpPrepare.so"))),
    replace(ON_BOARD, files=(*CLEAN, PLUGIN, ort("1.31.1"))),
    replace(ON_BOARD, files=(*CLEAN, SILENT, ort("1.26.0"))),
    replace(ON_BOARD, files=(*CLEAN, PLUGIN)),
    replace(ON_BOARD, contexts=[C("a", "2.51.0", 73), C("b", "2.47.0", 73), C("c", "v2.51")]),
    replace(ON_BOARD, contexts=[C("a", "v2.51.0.260929181845_193", 73), C("b", "what?")]),
    replace(ON_BOARD, device=TargetFacts("linux-arm64")),
    replace(ON_BOARD, files=with_(library("libQnnSystem.so", content=STAMP, pages=4096))),
    replace(LARGE_PAGES, files=with_(library("libQnnSystem.so", content=STAMP, pages=16384))),
    replace(LARGE_PAGES, files=with_(skel(73, pages=4096))),
    replace(ON_BOARD, files=(library("libQnnGpu.so"),), backend="gpu"),
    replace(ON_BOARD, files=(library("libQnnCpu.so"),), backend="cpu"),
    replace(SIMULATOR, contexts=[C("a", "2.51.0", 81)]),
    replace(SIMULATOR, contexts=[C("a", "2.51.0", None, 16 << 20, 5 << 30)]),
    replace(ON_BOARD, contexts=[C("a", "2.51.0", 73, 8 << 20, 3840 << 20)]),
    replace(ON_BOARD, files=(library("libQnnGpu.so"),), backend="gpu", contexts=[TOO_LARGE]),
    # the same SoC under its other name, one that was not chosen, and a device that is not known
    replace(
        ON_BOARD,
        device=replace(BOARD, soc="SM8550"),
        contexts=[C("a", "2.51.0", 73, soc_model=43), C("b", "2.51.0", 73, soc_model=0)],
    ),
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
SYSTEM_NAME = "libQnnSystem.so"
DSP_68 = replace(ON_BOARD, files=(*without(S, K), stub(68), skel(68)))
Fault = tuple[PreflightInput, str, str, tuple[str, ...]]


def fault(subject: PreflightInput, code: str, severity: str, *files: str) -> Fault:
    """A set of libraries, its only finding, and the files that are at fault."""
    return subject, code, severity, files


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


def floats(place: PreflightInput) -> PreflightInput:
    """Contexts for v68 with and without floats."""
    device = replace(place.device, soc=None, htp_arch=68)
    contexts = [C("c.bin", "2.51.0", 68, has_floats=True), C("d.bin", "2.51.0", 68)]
    return replace(place, device=device, contexts=contexts)


FAULTS: list[Fault] = [
    fault(board(stub(73, OTHER)), "sdk-mix", "error", S, "libQnnHtp.so"),
    fault(board(skel(73, OTHER)), "sdk-mix", "error", K, "libQnnHtp.so"),
    fault(
        more(library("libQnnHtpPrepare.so", content=OTHER)),
        *("sdk-mix", "error", "libQnnHtpPrepare.so", "libQnnHtp.so"),
    ),
    fault(
        board(library(SYSTEM_NAME, content=b"\000260831140417\0")),
        *("sdk-mix", "warning", SYSTEM_NAME, "libQnnHtp.so"),
    ),
    fault(replace(ON_BOARD, qnn_version="2.50.40"), "version-label", "warning", "libQnnHtp.so"),
    fault(
        more(replace(BACKEND, name="more/libQnnHtp.so")),
        *("library-twice", "error", "libQnnHtp.so", "more/libQnnHtp.so"),
    ),
    fault(replace(ON_BOARD, files=without("libQnnHtp.so")), "backend-missing", "error"),
    fault(replace(ON_BOARD, files=without(SYSTEM_NAME)), "system-missing", "warning"),
    fault(
        replace(ON_BOARD, files=(*without(S), stub(75))),
        *("stub-missing", "error", "libQnnHtpV75Stub.so"),
    ),
    fault(replace(ON_BOARD, files=without(K)), "skel-missing", "error"),
    fault(on("QCS610"), "no-htp", "error"),
    fault(on("SM8650", htp_arch=73), "soc-arch", "warning"),
    fault(on("SM9999", htp_arch=73), "soc-unknown", "warning"),
    fault(on("SM8550", C("c.bin", "2.52.0", 73)), "context-newer", "error", "c.bin"),
    fault(on("SM8550", C("c.bin", "2.51.0", 75)), "context-arch", "error", "c.bin"),
    fault(on("SM8550", C("c.bin", "2.51.0", 69)), "context-arch", "warning", "c.bin"),
    fault(
        replace(
            SIMULATOR,
            device=replace(SIMULATOR.device, htp_arch=73),
            contexts=[C("c.bin", "2.51.0", 81)],
        ),
        *("context-arch", "info", "c.bin"),
    ),
    fault(on("sm8550", C("c.bin", "2.51.0", 73, (8 << 20) + 1)), "context-vtcm", "error", "c.bin"),
    fault(on("SM8550", C("c.bin", "2.51.0", 73, 16 << 20)), "context-vtcm", "error", "c.bin"),
    fault(on("QCS9100", C("c.bin", "2.51.0", 73, soc_model=43)), "context-soc", "warning", "c.bin"),
    fault(
        on("SM8550", C("c.bin", "2.51.0", 73, soc_model=9999)), "context-soc", "warning", "c.bin"
    ),
    fault(floats(DSP_68), "context-floats", "warning", "c.bin"),
    fault(floats(SIMULATOR), "context-floats", "info", "c.bin"),
    fault(
        on(
            "SM8550",
            C("c.bin", "2.51.0", 73, has_floats=True),
            C("d.bin", "2.51.0", 73),
            lacks_floats=True,
        ),
        *("emulator-floats", "warning", "c.bin"),
    ),
    fault(on(None, TOO_LARGE), "context-memory", "error", "c.bin"),
    fault(board(library_facts(SYSTEM_NAME, b"<html>")), "elf-damaged", "error", SYSTEM_NAME),
    fault(board(library(SYSTEM_NAME, **X64)), "wrong-machine", "error", SYSTEM_NAME),  # type: ignore[arg-type]
    fault(board(library(SYSTEM_NAME, "arm", bits=32)), "wrong-machine", "error", SYSTEM_NAME),
    fault(board(library(K)), "wrong-machine", "error", K),
    fault(board(android(SYSTEM_NAME)), "wrong-libc", "error", SYSTEM_NAME),
    fault(
        replace(ON_PHONE, files=(*ON_PHONE.files[:1], *ON_PHONE.files[2:], SYSTEM)),
        *("wrong-libc", "error", SYSTEM_NAME),
    ),
    fault(board(library(SYSTEM_NAME, glibc="GLIBC_2.38")), "glibc-too-old", "error", SYSTEM_NAME),
    fault(on_phone(needed=["libc.so"], android_api=35), "android-api", "warning", "x.so"),
    fault(
        replace(LARGE_PAGES, files=with_(library(SYSTEM_NAME, content=STAMP, pages=4096))),
        *("page-size", "error", SYSTEM_NAME),
    ),
    fault(
        board(library(SYSTEM_NAME, needed=["libc++-71bc274c.so.1"])),
        *("needed-missing", "error", SYSTEM_NAME),
    ),
    fault(on_phone(needed=["libc++_shared.so"], android_api=30), "needed-missing", "error", "x.so"),
    fault(on("SM8550", libraries=frozenset(LINUX)), "needed-missing", "error", S),
    fault(more(PLUGIN, ort("1.22.0")), "ort-too-old", "error", PLUGIN.name, "libonnxruntime.so.1"),
    fault(more(SILENT, ort_version="1.20.1"), "ort-too-old", "error", PLUGIN.name),
    fault(more(SILENT, ort("1.31.1")), "ort-too-new", "error", PLUGIN.name, "libonnxruntime.so.1"),
    fault(more(PLUGIN, library("libonnxruntime.so")), "ort-unknown", "info", PLUGIN.name),
    fault(replace(ON_BOARD, executorch="1.5.1"), "executorch-device", "error", "libQnnHtp.so"),
]


def test_a_fault_is_the_only_thing_found(snapshot: Snapshot) -> None:
    texts = []
    for subject, code, severity, files in FAULTS:
        findings = preflight(subject)
        assert [(finding.code, finding.severity, finding.files) for finding in findings] == [
            (code, severity, files)
        ]
        assert findings[0].thread == CODES[code].thread
        texts.append(f"{findings[0].explanation} {findings[0].fix}")
    assert texts == snapshot


def test_every_code_is_in_the_table_of_faults() -> None:
    assert {fault[1] for fault in FAULTS} == set(CODES)


def test_the_worst_comes_first() -> None:
    subject = replace(ON_BOARD, files=with_(stub(73, b""))[1:], qnn_version="2.50.40")
    assert [finding.severity for finding in preflight(subject)] == ["error", "warning"]


def test_a_finding_as_a_line(snapshot: Snapshot) -> None:
    assert str(preflight(board(stub(73, OTHER)))[0]) == snapshot


def test_a_wrong_file_is_not_told_twice() -> None:
    """An Android stub on Linux: that its libc.so is missing follows from that."""
    findings = preflight(board(android(S)))
    assert [finding.code for finding in findings] == ["wrong-libc"]


def test_the_codes_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs/preflight.md").read_text()
    for code in CODES.values():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{code.name}` |")]
        assert code.severity in row
        assert code.thread is None or code.thread in row


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
