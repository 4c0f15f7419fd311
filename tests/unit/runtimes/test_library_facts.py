"""Kind, SDK build and HTP arch of a library, by name and content; and that they are read once."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.files import LocalFile
from harness.runtimes.runtime import (
    LibraryKind,
    Runtime,
    SdkBuild,
    build_id_of,
    facts_of,
    kind_of,
    library_facts,
    read_library,
)
from tests.snapshots import Snapshot
from tests.unit.runtimes.elf_files import elf_file


@pytest.mark.parametrize(
    ("name", "kind", "arch"),
    [
        ("onnxruntime_qnn/libQnnHtp.so", "backend-htp", None),
        ("libQnnGpu.so", "backend-gpu", None),
        ("jni/arm64-v8a/libQnnHtpV73Stub.so", "stub", 73),
        ("lib/hexagon-v81/unsigned/libQnnHtpV81Skel.so", "skel", 81),
        ("libQnnHtpV73CalculatorStub.so", "other", None),
        ("libQnnSystem.so", "system", None),
        ("libQnnHtpPrepare.so", "prepare", None),
        ("libHtpPrepare.so", "prepare", None),
        ("libonnxruntime.so.1.26.0", "ort", None),
        ("libonnxruntime_providers_qnn.so", "ort-plugin", None),
        ("libonnxruntime_providers_shared.so", "other", None),
        ("onnxruntime_qnn.libs/libc++-71bc274c.so.1.0", "c++-runtime", None),
        ("libunwind-6b740a46.so.1.0", "c++-runtime", None),
        ("libQnnHtp.so.bak", "other", None),
    ],
)
def test_kinds(name: str, kind: LibraryKind, arch: int | None) -> None:
    assert kind_of(name) == (kind, arch)


@pytest.mark.parametrize(
    ("name", "content", "build"),
    [
        ("libQnnHtp.so", b"_v2.51.0.260929181845\0", SdkBuild("2.51.0", "260929181845")),
        # As the logs of older SDKs show it.
        ("libQnnHtp.so", b"v2.28.2.241116104011_103376", SdkBuild("2.28.2", "241116104011")),
        (
            "libQnnHtpV73Skel.so",
            b"hexnn_ver_v2.47.0.260601114230.daf3a0c69\0v2.47.0.260601114230\0",
            SdkBuild("2.47.0", "260601114230"),
        ),
        ("libQnnSystem.so", b"\0\xd5\n260601114230\0Failure", SdkBuild("", "260601114230")),
        ("libQnnSystem.so", b"\000444400000000\0", None),
        ("libQnnHtp.so", b"\000260601114230\0", None),
        ("libQnnGpu.so", b"AISW_VERSION: 2.51.0\0", SdkBuild("2.51.0", "")),
        ("libQnnHtp.so", b"v2.51.0.260929181845\0v2.50.40.260831140417\0", None),
        ("libc++.so.1", b"v2.51.0.260929181845\0", None),
    ],
)
def test_builds(name: str, content: bytes, build: SdkBuild | None) -> None:
    assert library_facts(name, elf_file(content=b"\0" + content)).build == build


@pytest.mark.parametrize(
    ("build", "right", "same"),
    [
        (("2.51.0", "260929181845"), ("", "260929181845"), True),
        (("2.51.0", "260929181845"), ("2.51.0", "260929"), True),
        (("2.51.0", "260929181845"), ("", "260601114230"), False),
        (("2.51.0", ""), ("2.50.40", ""), False),
    ],
)
def test_the_same_build(build: tuple[str, str], right: tuple[str, str], same: bool) -> None:
    assert SdkBuild(*build).agrees_with(SdkBuild(*right)) is same
    assert SdkBuild(*right).agrees_with(SdkBuild(*build)) is same


def test_ort_and_its_plugin() -> None:
    core = library_facts("libonnxruntime.so.1.26.0", elf_file(defines=["VERS_1.26.0"]))
    assert core.ort_version == "1.26.0"
    negotiating = elf_file(content=b"QNN EP requires ORT >= 1.%u (API %u).\0")
    assert library_facts("libonnxruntime_providers_qnn.so", negotiating).negotiates
    assert not library_facts("libonnxruntime_providers_qnn.so", elf_file()).negotiates


def test_files_that_cannot_be_read(tmp_path: Path, snapshot: Snapshot) -> None:
    missing = read_library(tmp_path / "libQnnHtp.so", "libQnnHtp.so")
    assert (missing.kind, missing.elf) == ("backend-htp", None)
    (tmp_path / "libQnnSystem.so").write_bytes(b"")
    others = [read_library(path, "x") for path in (tmp_path / "libQnnSystem.so", tmp_path)]
    assert [library.problem for library in (missing, *others)] == snapshot


@given(st.sampled_from(["libQnnHtp.so", "libQnnSystem.so", "x"]), st.binary(max_size=200))
def test_any_content(name: str, content: bytes) -> None:
    assert library_facts(name, content).elf is None or content[:4] == b"\x7fELF"
    library_facts(name, elf_file(content=content))


def test_facts_are_cached_by_content_and_read_again_where_the_cache_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    library = tmp_path / "libQnnHtp.so"
    needs, build = {"libc.so.6": ["GLIBC_2.34"]}, b"\0v2.49.0.260701120000\0"
    library.write_bytes(elf_file(needed=["libc.so.6"], needs=needs, content=build))
    file = LocalFile(library, library.name, library.stat().st_size, "0" * 64)
    runtime = Runtime("2.49.0", "linux-arm64", tmp_path, (file,))
    facts = facts_of(runtime)
    assert (build_id_of(facts), facts[0].elf.min_glibc) == ("2.49.0.260701120000", (2, 34))
    library.write_bytes(b"other content")
    facts_of.cache_clear()
    assert facts_of(runtime) == facts
    (cached,) = tmp_path.glob("cache/facts/*.json")
    cached.write_bytes(cached.read_bytes()[:-9])
    facts_of.cache_clear()
    (unread,) = facts_of(runtime)
    assert unread.problem is not None
    facts_of.cache_clear()
    assert not facts_of(runtime)[0].elf, "a library with a problem is not cached"
