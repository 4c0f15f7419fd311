"""Differences of two sets of libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.core.local_file import LocalFile
from harness.runtimes.difference import difference, plain_name


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.c").write_text("int offered(void) { return 1; }")
    path = folder / "libmade.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-o", str(path), str(folder / "a.c")]
    subprocess.run(command, check=True, timeout=60)
    return path


def test_what_changed(library: Path, tmp_path: Path) -> None:
    (tmp_path / "b.c").write_text("int offered(void) { return 1; } int other(void) { return 0; }")
    other = tmp_path / "libother.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,lib.so", "-o", str(other)]
    subprocess.run(
        [*command, str(tmp_path / "b.c"), "-Wl,--no-as-needed", "-lm"], check=True, timeout=60
    )
    old, new = LocalFile(library, "lib.so", 10, "1" * 64), LocalFile(other, "lib.so", 12, "2" * 64)
    (change,) = difference([old], [new]).changed
    assert (change.size_before, change.size_after, change.problem) == (10, 12, None)
    assert (change.needs_gone, change.needs_new) == ([], ["libm.so.6"])


def test_files_are_paired_by_their_plain_names(library: Path, tmp_path: Path) -> None:
    assert plain_name("capi/libonnxruntime.so.1.24.1") == "capi/libonnxruntime.so"
    assert plain_name("x.libs/libstdc++-0a1b2c3d.so.6") == "x.libs/libstdc++.so"
    assert plain_name("libQnnHtpV73Stub.so") == "libQnnHtpV73Stub.so"
    text = tmp_path / "no.so"
    text.write_text("no library")
    old = [
        LocalFile(library, "liba.so.1", 10, "1" * 64),
        LocalFile(library, "libsame.so", 10, "2" * 64),
        LocalFile(library, "libgone.so", 10, "3" * 64),
    ]
    new = [
        LocalFile(text, "liba.so.2", 12, "4" * 64),
        LocalFile(library, "libsame.so", 10, "2" * 64),
        LocalFile(library, "libnew.so", 11, "5" * 64),
    ]
    changes = difference(old, new)
    assert (changes.gone, changes.new, changes.same) == (
        {"libgone.so": 10},
        {"libnew.so": 11},
        ["libsame.so"],
    )
    (change,) = changes.changed
    assert (change.name, change.problem) == ("liba.so", "it is not an ELF file")
