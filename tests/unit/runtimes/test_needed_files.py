"""Nothing more goes to a device than its backend, driver and HTP arch need."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.core.files import LocalFile
from harness.core.matrix_axes import BACKENDS, Backend
from harness.runtimes.difference import FileChange, difference, plain_name
from harness.runtimes.runtime import DRIVERS, Driver, Runtime, narrowed

ARCHS = (68, 69, 73, 75, 79, 81)


@dataclass(frozen=True)
class OneFile:
    name: str


EVERYTHING = [
    OneFile(f"lib/{name}")
    for name in (
        "libQnnHtp.so",
        *(f"libQnnHtpV{arch}{kind}.so" for arch in ARCHS for kind in ("Stub", "Skel")),
        "libQnnHtpPrepare.so",
        "libQnnHtpNetRunExtensions.so",
        "libQnnGpu.so",
        "libQnnGpuNetRunExtensions.so",
        "libQnnCpu.so",
        "libQnnSystem.so",
        "libQnnSaver.so",
        "libQnnIr.so",
        "libGenie.so",
        "libSNPE.so",
        "libc++_shared.so",
        "libonnxruntime.so",
        "libonnxruntime4j_jni.so",
        "libonnxruntime_providers_qnn.so",
        "libqnn_executorch_backend.so",
    )
] + [OneFile(f"bin/{name}") for name in ("qnn-net-run", "qnn_executor_runner", "snpe-net-run")]

HTP_73 = {"libQnnHtp.so", "libQnnHtpV73Stub.so", "libQnnHtpV73Skel.so", "libQnnSystem.so"}
CXX = {"libc++_shared.so"}


def select(
    files: Iterable[OneFile], backend: str, driver: str, arch: int | None, **more: Any
) -> tuple[OneFile, ...]:
    """Return the files that a phone gets."""
    whole = Runtime("2.51.0", "android-arm64", Path(), tuple(files))
    return narrowed(whole, backend, driver, arch, **more).files


def names(files: tuple[OneFile, ...]) -> set[str]:
    return {file.name.rsplit("/", 1)[-1] for file in files}


PLUGIN = {"libonnxruntime.so", "libonnxruntime_providers_qnn.so"}
PROGRAM = {"libqnn_executorch_backend.so", "qnn_executor_runner"}


@pytest.mark.parametrize(
    ("backend", "driver", "arch", "expected"),
    [
        ("htp", "qnn", 73, HTP_73),
        ("gpu", "qnn", 73, {"libQnnGpu.so", "libQnnSystem.so"}),
        ("cpu", "qnn", None, {"libQnnCpu.so", "libQnnSystem.so"}),
        ("htp", "ort-builtin", 73, HTP_73 | {"libonnxruntime.so"}),
        ("htp", "ort-plugin", 73, HTP_73 | PLUGIN),
        ("cpu", "ort-builtin", 73, {"libQnnCpu.so", "libonnxruntime.so"}),
        ("htp", "program", 73, HTP_73 | PROGRAM),
    ],
)
def test_what_each_process_gets(
    backend: Backend, driver: Driver, arch: int | None, expected: set[str]
) -> None:
    assert names(select(EVERYTHING, backend, driver, arch)) == expected | CXX
    prepared = names(select(EVERYTHING, backend, driver, arch, online_prepare=True))
    assert ("libQnnHtpPrepare.so" in prepared) == (backend == "htp")


def test_an_unknown_arch_takes_every_stub_and_skel_and_a_wheel_its_cxx_runtime() -> None:
    chosen = names(select(EVERYTHING, "htp", "qnn", None))
    assert sum("Stub" in name for name in chosen) == sum("Skel" in name for name in chosen) == 6
    libraries = ("libc++-71bc274c.so.1.0", "libc++abi-0539aa51.so.1.0", "libunwind-6b740a46.so.1.0")
    wheel = [OneFile(f"onnxruntime_qnn.libs/{name}") for name in libraries]
    assert list(select(wheel, "htp", "qnn", 73)) == wheel


def test_what_a_library_needs_comes_along() -> None:
    files = [*EVERYTHING, OneFile("lib/libVendor.so"), OneFile("lib/libDeep.so")]
    needed = {"libQnnGpu.so": ["libVendor.so", "libc.so"], "libVendor.so": ["libDeep.so"]}
    assert {"libVendor.so", "libDeep.so"} <= names(select(files, "gpu", "qnn", None, needed=needed))
    assert not {"libVendor.so", "libDeep.so"} & names(
        select(files, "cpu", "qnn", None, needed=needed)
    )


@given(
    st.lists(st.text(max_size=12)),
    st.sampled_from(BACKENDS),
    st.sampled_from(DRIVERS),
    st.none() | st.integers(0, 99),
    st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3)),
)
def test_any_names_are_survived(
    names: list[str],
    backend: Backend,
    driver: Driver,
    arch: int | None,
    needed: dict[str, list[str]],
) -> None:
    files = [OneFile(name) for name in names]
    chosen = select(files, backend, driver, arch, needed=needed)
    assert set(chosen) <= set(files)
    assert select(chosen, backend, driver, arch, needed=needed) == chosen


def runtime() -> Runtime:
    files = tuple(
        LocalFile(Path(file.name), file.name, 1, f"{index:064x}")
        for index, file in enumerate(EVERYTHING)
    )
    return Runtime("2.51.0", "android-arm64", Path(), files, source="sdk")


def test_a_narrowed_runtime() -> None:
    whole = runtime()
    narrow = narrowed(whole, "htp", "qnn", 73)
    assert {file.path.name for file in narrow.files} == HTP_73 | CXX
    assert narrow.library_dirs == ("lib",)
    assert narrow.key != whole.key
    assert narrow.key == narrowed(narrow, "htp", "qnn", 73).key
    assert whole.htp_archs == ARCHS
    assert narrow.htp_archs == (73,)
    assert narrow.name == "sdk:2.51.0"


@pytest.mark.parametrize(("backend", "driver"), [("dsp", "qnn"), ("htp", "ort")])
def test_a_backend_or_driver_that_does_not_exist(backend: str, driver: str) -> None:
    with pytest.raises(ConfigError, match="unknown"):
        narrowed(runtime(), backend, driver, 73)


def test_files_are_paired_by_their_plain_names() -> None:
    assert plain_name("capi/libonnxruntime.so.1.24.1") == "capi/libonnxruntime.so"
    assert plain_name("x.libs/libstdc++-0a1b2c3d.so.6") == "x.libs/libstdc++.so"
    assert plain_name("libQnnHtpV73Stub.so") == "libQnnHtpV73Stub.so"
    old, new = (
        [LocalFile(Path(name), name, size, digit * 64) for name, size, digit in files]
        for files in (
            [("liba.so.1", 10, "1"), ("libsame.so", 10, "2"), ("libgone.so", 10, "3")],
            [("liba.so.2", 12, "4"), ("libsame.so", 10, "2"), ("libnew.so", 11, "5")],
        )
    )
    changes = difference(old, new)
    assert (changes.gone, changes.new) == ({"libgone.so": 10}, {"libnew.so": 11})
    assert changes.same == ["libsame.so"]
    assert changes.changed == [FileChange(name="liba.so", size_before=10, size_after=12)]
