"""The scripts that keep a device's store, run by the shells that devices have."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runtimes.device_store import (
    LOOK_SCRIPT,
    PLACE_SCRIPT,
    FileSet,
    StoreAnswerError,
    StoredFile,
    StoreView,
    check_place,
    entry_name,
    incoming_name,
    look_input,
    parse_look,
    place_arguments,
    place_input,
    valid_name,
)

PROGRAMS = (
    "mkdir stat find wc df tail sha256sum chmod touch mv ln cp rm cat env".split()  # noqa: SIM905
)
SHELLS = {
    "dash": (["dash"], None),
    "bash": (["bash"], None),
    "mksh with toybox": (["mksh"], "toybox"),
    "busybox": (["busybox", "sh"], "busybox"),
}
CONTENTS = {"lib/one.so": b"first", "libs/c++-7.so.1.0": b"runtime", "probe": b"#!/bin/sh\n"}


@dataclass
class Device:
    """A folder, a shell and its programs: as much of a device as the scripts see."""

    workdir: Path
    shell: list[str]
    path: str

    def run(self, script: str, arguments: list[str], stdin: bytes) -> str:
        done = subprocess.run(
            [*self.shell, "-c", script, "sh", *arguments],
            input=stdin,
            env={"PATH": self.path, "TMPDIR": str(self.workdir.parent)},
            capture_output=True,
            timeout=20,
            check=False,
        )
        return done.stdout.decode()

    def look(self, *sets: FileSet) -> StoreView:
        return parse_look(self.run(LOOK_SCRIPT, [str(self.workdir)], look_input(sets)))

    def place(self, arrived: dict[str, int], *sets: FileSet, random: str = "r4nd0m") -> None:
        arguments = list(place_arguments(str(self.workdir), random))
        check_place(self.run(PLACE_SCRIPT, arguments, place_input(arrived, sets)))

    def push(self, content: bytes, entry: str, random: str = "r4nd0m") -> None:
        (self.workdir / incoming_name(random, entry)).write_bytes(content)

    def without(self, program: str) -> None:
        """Takes a program away."""
        folder = self.workdir.parent / f"without-{program}"
        folder.mkdir()
        for name in (*PROGRAMS, *self.shell[:1]):
            found = shutil.which(name, path=self.path)
            if name != program and found:
                (folder / name).symlink_to(found)
        self.path = str(folder)

    def deploy(self, *sets: FileSet) -> None:
        self.look(*sets)
        arrived = {}
        for one in sets:
            for file in one.files:
                self.push(CONTENTS[file.name], file.entry)
                arrived[file.entry] = file.size
        self.place(arrived, *sets)

    @property
    def leftovers(self) -> list[str]:
        incoming = self.workdir / "store/.incoming"
        return [*os.listdir(incoming), *(p.name for p in self.workdir.glob("sets/.*"))]


def needing(name: str) -> object:
    shell, programs = SHELLS[name]
    tools = {shell[0], programs} - {None}
    return pytest.param(name, marks=[pytest.mark.needs(tool) for tool in sorted(map(str, tools))])


@pytest.fixture(params=map(needing, SHELLS))
def device(request: pytest.FixtureRequest, tmp_path: Path) -> Device:
    return device_of(request.param, tmp_path)


@pytest.fixture(params=map(needing, ["dash", "mksh with toybox"]))
def poor_device(request: pytest.FixtureRequest, tmp_path: Path) -> Device:
    """One that programs can be taken from; busybox has its own in its shell."""
    return device_of(request.param, tmp_path)


def device_of(name: str, tmp_path: Path) -> Device:
    shell, programs = SHELLS[name]
    path = os.environ["PATH"]
    if programs:
        folder = tmp_path / "bin"
        folder.mkdir()
        found = shutil.which(programs)
        assert found is not None
        for name in PROGRAMS:
            (folder / name).symlink_to(found)
        for name in shell[:1]:
            (folder / name).exists() or (folder / name).symlink_to(str(shutil.which(name)))
        path = str(folder)
    return Device(tmp_path / "a device's work dir", shell, path)


def stored(name: str, content: bytes, mode: int = 0o644) -> StoredFile:
    digest = hashlib.sha256(content).hexdigest()
    return StoredFile(name, Path("/dev/null"), len(content), entry_name(digest, mode))


def a_set(name: str = "set-1", *names: str) -> FileSet:
    files = tuple(
        stored(one, CONTENTS[one], 0o755 if one == "probe" else 0o644) for one in names or CONTENTS
    )
    return FileSet(name, name, files)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


def test_a_new_device_has_nothing(device: Device) -> None:
    view = device.look(a_set())
    assert view.files == {}
    assert view.hashing
    assert view.free_bytes is not None
    assert view.free_bytes > 10**6
    assert not view.has_set(a_set())


def test_a_set_is_deployed_and_found_again(device: Device) -> None:
    wanted = a_set()
    device.deploy(wanted)
    view = device.look(wanted)
    assert view.has_set(wanted)
    assert all(view.has_entry(file.entry, file.size) for file in wanted.files)
    folder = device.workdir / "sets/set-1"
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert folder.joinpath("probe").stat().st_mode & 0o777 == 0o555
    assert folder.joinpath("lib/one.so").stat().st_mode & 0o777 == 0o444
    assert folder.joinpath("lib/one.so").stat().st_nlink == 2
    assert device.leftovers == []


def test_a_second_set_of_the_same_files_needs_none_of_them(device: Device) -> None:
    device.deploy(a_set())
    other = a_set("set-2", "probe", "lib/one.so")
    view = device.look(other)
    assert not view.has_set(other)
    assert all(view.has_entry(file.entry, file.size) for file in other.files)
    device.place({}, other)
    assert device.look(other).has_set(other)


@pytest.mark.parametrize("where", ["store", "sets"])
def test_a_changed_file_is_noticed_and_replaced(where: str, device: Device) -> None:
    wanted = a_set()
    device.deploy(wanted)
    file = wanted.files[0]
    flip(
        device.workdir / {"store": f"store/{file.entry}", "sets": f"sets/set-1/{file.name}"}[where]
    )
    view = device.look(wanted)
    assert not view.has_set(wanted)
    assert not view.has_entry(file.entry, file.size)
    assert view.has_entry(wanted.files[1].entry, wanted.files[1].size)
    device.push(CONTENTS[file.name], file.entry)
    device.place({file.entry: file.size}, wanted)
    assert device.look(wanted).has_set(wanted)
    assert (device.workdir / "sets/set-1" / file.name).read_bytes() == CONTENTS[file.name]
    assert device.leftovers == []


def test_a_set_with_a_file_missing_is_made_again(device: Device) -> None:
    wanted = a_set()
    device.deploy(wanted)
    (device.workdir / "sets/set-1/probe").unlink()
    (device.workdir / "sets/set-1/left by a run").write_text("x")
    assert not device.look(wanted).has_set(wanted)
    device.place({}, wanted)
    assert device.look(wanted).has_set(wanted)


def test_a_file_a_run_left_in_a_set_does_not_matter(device: Device) -> None:
    wanted = a_set()
    device.deploy(wanted)
    (device.workdir / "sets/set-1/left by a run").write_text("x")
    assert device.look(wanted).has_set(wanted)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"f1rst", "arrived damaged"),
        (b"fir", "arrived with 3 bytes instead of 5"),
        (None, "arrive"),
    ],
)
def test_what_arrives_damaged_is_refused(content: bytes | None, told: str, device: Device) -> None:
    wanted = a_set("set-1", "lib/one.so")
    (file,) = wanted.files
    device.look(wanted)
    if content is not None:
        device.push(content, file.entry)
    device.push(b"other", "unrelated")
    with pytest.raises(StoreAnswerError, match=told):
        device.place({file.entry: file.size}, wanted)
    assert device.leftovers == []
    assert not (device.workdir / "store" / file.entry).exists()
    assert not (device.workdir / "sets/set-1").exists()


def test_another_hosts_incoming_files_stay(device: Device) -> None:
    device.look(a_set())
    device.push(b"half", "entry", random="0ther")
    device.deploy(a_set())
    assert device.leftovers == ["0ther.entry"]


def test_a_set_is_not_made_of_what_is_not_there(device: Device) -> None:
    device.look(a_set())
    with pytest.raises(StoreAnswerError, match="is not in the store"):
        device.place({}, a_set())
    assert not (device.workdir / "sets/set-1").exists()


def test_folders_that_cannot_be_made(device: Device) -> None:
    device.workdir.write_text("a file in the way")
    with pytest.raises(StoreAnswerError, match="cannot make folders in"):
        device.look(a_set())


def test_without_sha256sum_sizes_count(poor_device: Device) -> None:
    poor_device.without("sha256sum")
    wanted = a_set("set-1", "lib/one.so")
    view = poor_device.look(wanted)
    assert not view.hashing
    poor_device.deploy(wanted)
    assert poor_device.look(wanted).has_set(wanted)
    poor_device.push(b"long", wanted.files[0].entry)
    with pytest.raises(StoreAnswerError, match="instead of 5"):
        poor_device.place({wanted.files[0].entry: 5}, wanted)


def test_without_stat_sizes_count(poor_device: Device) -> None:
    poor_device.without("stat")
    wanted = a_set()
    poor_device.deploy(wanted)
    view = poor_device.look(wanted)
    assert view.has_set(wanted)
    (poor_device.workdir / "sets/set-1/probe").unlink()
    (poor_device.workdir / "sets/set-1/probe").write_text("longer than it was")
    assert not poor_device.look(wanted).has_set(wanted)


@pytest.mark.parametrize("without", ["hard", "any"])
def test_where_links_are_not_allowed(without: str, poor_device: Device) -> None:
    real = shutil.which("ln", path=poor_device.path)
    poor_device.without("ln")
    refuse = "exit 1" if without == "any" else f'[ "$1" = -s ] || exit 1; exec {real} "$@"'
    (Path(poor_device.path) / "ln").write_text(f"#!/bin/sh\n{refuse}\n")
    (Path(poor_device.path) / "ln").chmod(0o755)
    wanted = a_set()
    poor_device.deploy(wanted)
    assert poor_device.look(wanted).has_set(wanted)
    path = poor_device.workdir / "sets/set-1/lib/one.so"
    assert path.is_symlink() == (without == "hard")
    assert path.read_bytes() == b"first"
    flip(path)
    assert not poor_device.look(wanted).has_set(wanted)


def test_many_sets_in_one_look(device: Device) -> None:
    sets = [a_set(f"set-{number}") for number in range(60)]
    device.deploy(*sets)
    view = device.look(*sets, a_set("absent"))
    assert all(view.has_set(one) for one in sets)
    assert not view.has_set(a_set("absent"))


ANSWER = "@qnn-harness:file 5|946684800|store/a\n@qnn-harness:df /dev/x 9 5 4 60% /\n{}"
DONE = "@qnn-harness:done\n"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "did not come to an end"),
        (ANSWER.format(""), "did not come to an end"),
        (ANSWER.format("@qnn-harness:fail no room\n"), "no room"),
        ("sh: syntax error\n", "did not come to an end"),
    ],
)
def test_an_answer_that_is_none(output: str, told: str) -> None:
    with pytest.raises(StoreAnswerError, match=told):
        parse_look(output)


def test_an_answer_with_noise() -> None:
    view = parse_look("WARNING: linker\n" + ANSWER.format(DONE) + "more noise\n")
    assert view.files == {"store/a": (5, 946684800)}
    assert view.free_bytes == 4096
    assert parse_look(DONE).free_bytes is None


@given(st.text(max_size=300))
def test_any_answer_is_read_or_refused(text: str) -> None:
    for output in (text, f"@qnn-harness:{text}\n{DONE}", f"@qnn-harness:file {text}\n{DONE}"):
        try:
            parse_look(output)
        except StoreAnswerError:
            continue


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("context.bin", True),
        ("onnxruntime_qnn.libs/libc++-71bc274c.so.1.0", True),
        ("a/b/c", True),
        ("", False),
        ("/a", False),
        ("a/", False),
        ("a//b", False),
        ("..", False),
        ("a/../b", False),
        ("a b", False),
        ("a\nb", False),
        ("$(x)", False),
        ("-rf", False),
        ("a/-rf", False),
        ("é", False),
    ],
)
def test_names_in_a_set(name: str, valid: bool) -> None:
    assert valid_name(name) == valid


def test_executables_have_entries_of_their_own() -> None:
    assert entry_name("ab", 0o644) == "ab"
    assert entry_name("ab", 0o755) == "ab-x"
