"""Runtimes out of the real wheels: whole, of the version asked for, and nothing superfluous."""

import hashlib

import pytest

from harness.runtimes.catalog import Catalog
from tests.integration.conftest import RuntimeFor
from tests.logged import Logged

X64 = {"libQnnHtp.so", "libQnnSystem.so", "libQnnGpu.so", "libc++", "libc++abi", "libunwind"}


@pytest.mark.parametrize(
    ("version", "names", "megabytes"),
    [("2.51.0", X64, 127), ("2.47.0", X64 | {"libQnnCpu.so"}, 126)],
)
def test_a_runtime_of_this_host(
    version: str, names: set[str], megabytes: int, runtime_for: RuntimeFor
) -> None:
    runtime = runtime_for(version)
    file_names = [file.path.name for file in runtime.files]
    assert {n if n.startswith("libQnn") else n.split("-")[0] for n in file_names} == names
    assert round(sum(file.size for file in runtime.files) / 1e6) == megabytes
    assert runtime.library_dirs == ("onnxruntime_qnn", "onnxruntime_qnn.libs")
    for file in runtime.files:
        assert file.path == runtime.root / file.name
        with file.path.open("rb") as content:
            assert hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def test_a_cached_runtime_needs_no_network(
    catalog: Catalog, runtime_for: RuntimeFor, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_for("2.51.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert catalog.is_cached("2.51.0", "linux-x64")
    again = Catalog(runtime.root.parents[1])
    assert again.runtime("2.51.0", "linux-x64") == runtime
    # tests beside this one look into the same cache
    warnings = [text for text in logged.warnings if not text.startswith("waiting for ")]
    assert (logged.progress, warnings) == ([], [])


def test_orts_library_of_a_linux_board(catalog: Catalog) -> None:
    runtime = catalog.with_ort("2.47.0", "1.26.0", "linux-arm64")
    names = {file.path.name for file in runtime.files}
    assert {"libonnxruntime.so.1.26.0", "libonnxruntime_providers_qnn.so"} <= names
    assert runtime.library("libonnxruntime.so.1.26.0").read_bytes()[18] == 0xB7  # EM_AARCH64


def test_the_compilers_ort_and_that_of_devices_leave_each_other_alone(
    catalog: Catalog, logged: Logged
) -> None:
    """Both are of one wheel, and take other files of it."""
    host = catalog.compiler_host("2.51.0")
    catalog.with_ort("2.51.0", host.ort_version, "linux-x64")
    assert Catalog(catalog._cache_root).compiler_host("2.51.0") == host
    assert host.ort_root.parent.name != "unpacked"
    assert not [line for line in logged.warnings if "unpacking" in line]
