"""Exported symbols as nm tells them, nothing but ElfError for damage, and what two sides share."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from harness.ground.files.local_file import LocalFile
from harness.libraries.runtimes.difference import NameList, difference, plain_name
from harness.libraries.runtimes.elf import ElfError, exported_symbols

SOURCE = """
int offered(void) { return 1; }
int offered_too = 2;
__attribute__((weak)) int weak(void) { return 3; }
__attribute__((visibility("hidden"))) int hidden(void) { return 4; }
static int own(void) { return 5; }
int wanted(void);
int user(void) { return wanted() + own() + hidden(); }
"""
NAMES = {"offered", "offered_too", "weak", "user"}


@pytest.fixture(scope="module", params=["gnu", "sysv"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.c").write_text(SOURCE)
    made = folder / "libmade.so"
    command = ["cc", "-shared", "-fPIC", "-nostdlib", f"-Wl,--hash-style={request.param}"]
    subprocess.run([*command, "-o", str(made), str(folder / "a.c")], check=True, timeout=60)
    return made


def test_exported_symbols(library: Path) -> None:
    assert exported_symbols(library.read_bytes()) >= NAMES
    assert not exported_symbols(library.read_bytes()) & {"hidden", "own", "wanted"}


@pytest.mark.needs("nm")
def test_they_are_what_nm_says(library: Path) -> None:
    import ctypes.util

    libraries = [library, *Path("/lib/x86_64-linux-gnu").glob("libm.so.6")]
    assert ctypes.util.find_library("m")
    for path in libraries:
        told = subprocess.run(
            ["nm", "-D", "--defined-only", "--without-symbol-versions", path],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        rows = [line.split() for line in told.splitlines()]
        # nm names version definitions, too, as absolute symbols
        expected = {row[-1] for row in rows if row[-2] != "A"}
        found = exported_symbols(path.read_bytes())
        assert found >= expected
        assert not {name for name in found - expected if not name.startswith("GLIBC_")}


def test_damage_is_an_elf_error_and_nothing_else(library: Path) -> None:
    whole = library.read_bytes()
    dice = random.Random(6)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        cut = bytes(data[: dice.randint(0, len(data))]) if dice.random() < 0.3 else bytes(data)
        with contextlib.suppress(ElfError):
            assert len(exported_symbols(cut)) <= len(cut)


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
    assert {"offered_too", "weak", "user"} <= set(change.symbols_gone.names)
    assert "offered" not in change.symbols_gone.names
    assert change.symbols_new.names == ["other"]
    assert (change.needs_gone.count, change.needs_new.names) == (0, ["libm.so.6"])


def test_long_lists_are_cut_and_tell_their_length() -> None:
    listed = NameList.of({f"n{number:03}" for number in range(300)})
    assert (listed.count, len(listed.names), listed.names[0]) == (300, 200, "n000")


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
    found = difference(old, new)
    assert (found.gone, found.new, found.same) == (
        {"libgone.so": 10},
        {"libnew.so": 11},
        ["libsame.so"],
    )
    (change,) = found.changed
    assert (change.name, change.problem) == ("liba.so", "it is not an ELF file")
