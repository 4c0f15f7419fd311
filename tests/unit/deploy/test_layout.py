"""The scripts that keep a device's store, run by the shells that devices have."""

import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.verified_folder import valid_name
from harness.deploy.layout import StoreAnswerError, entry_name, parse_look
from harness.deploy.store_client import Eviction
from tests.properties import reached, reaches
from tests.unit.deploy.store_device import (
    ARM64,
    CONTENTS,
    SHELLS,
    ScriptDevice,
    a_set,
    device_of,
    flip,
    needing_shell as needing,
)


@pytest.fixture(params=map(needing, SHELLS))
def device(request: pytest.FixtureRequest, tmp_path: Path) -> ScriptDevice:
    return device_of(request.param, tmp_path)


@pytest.fixture(params=[needing(ARM64)])
def arm64_device(request: pytest.FixtureRequest, tmp_path: Path) -> ScriptDevice:
    return device_of(request.param, tmp_path)


@pytest.fixture(params=map(needing, ["dash", "mksh with toybox"]))
def poor_device(request: pytest.FixtureRequest, tmp_path: Path) -> ScriptDevice:
    """One that programs can be taken from; busybox has its own in its shell."""
    return device_of(request.param, tmp_path)


def test_a_new_device_has_nothing(device: ScriptDevice) -> None:
    view = device.look(a_set())
    assert (view.sets, view.entries, view.incoming) == ({}, {}, {})
    assert view.hashing
    assert view.links == "hard"
    assert view.boot
    assert view.claims == {"host-1-00000000"}
    assert view.free_bytes > 10**6
    assert not view.find_set(a_set())


@pytest.mark.parametrize("alone", [False, True])
def test_a_set_is_deployed_and_found_again(alone: bool, device: ScriptDevice) -> None:
    file_set = a_set("set-" + "n" * 60)  # in an archive, a long name is a member of its own kind
    device.deploy(file_set, alone=alone)
    view = device.look(file_set)
    name = view.find_set(file_set)
    assert name
    assert all(view.find_entry(entry_name(file), file.size) for file in file_set.files)
    folder = device.workdir / "sets" / name
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert folder.joinpath("probe").stat().st_mode & 0o777 == 0o555
    assert folder.joinpath("lib/one.so").stat().st_mode & 0o777 == 0o444
    assert folder.joinpath("lib/one.so").stat().st_nlink == 2
    assert device.leftovers == []
    assert not view.unchecked_entry(entry_name(file_set.files[0]), file_set.files[0].size)


def test_the_short_path_on_arm64(arm64_device: ScriptDevice) -> None:
    device, file_set = arm64_device, a_set()
    device.deploy(file_set)
    folder = device.folder(file_set)
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
    inventory = device.inventory()
    assert set(inventory.claims) == {"host-1-00000000"}
    device.evict(Eviction((), (), (), 0))
    assert device.folder(file_set) == folder
    assert device.leftovers == []


@pytest.mark.parametrize("place", ["store", "sets"])
def test_a_changed_file_is_noticed_and_replaced(place: str, device: ScriptDevice) -> None:
    file_set = a_set()
    device.deploy(file_set)
    file = file_set.files[0]
    old = device.look(file_set).find_set(file_set)
    assert old
    entry = device.look(file_set).find_entry(entry_name(file), file.size)
    flip(device.workdir / {"store": f"store/{entry}", "sets": f"sets/{old}/{file.name}"}[place])
    view = device.look(file_set)
    assert not view.find_set(file_set)
    assert not view.find_entry(entry_name(file), file.size)
    assert view.find_entry(entry_name(file_set.files[1]), file_set.files[1].size)
    device.deploy(file_set, push=[entry_name(file)])
    folder = device.look(file_set).find_set(file_set)
    assert folder
    assert folder != old
    assert (device.workdir / "sets" / folder / file.name).read_bytes() == CONTENTS[file.name]
    assert device.look(file_set).instances(file_set) == [folder]
    assert device.leftovers == []


def test_a_file_too_many_does_not_matter_one_too_few_does(device: ScriptDevice) -> None:
    file_set = a_set()
    device.deploy(file_set)
    (device.folder(file_set) / "left by a run").write_text("x")
    assert device.look(file_set).find_set(file_set)
    (device.folder(file_set) / "probe").unlink()
    assert not device.look(file_set).find_set(file_set)
    device.deploy(file_set, push=())
    assert device.look(file_set).find_set(file_set)


@pytest.mark.parametrize("content", [b"f1rst", b"fir", b""])
def test_what_arrives_damaged_is_told(content: bytes, device: ScriptDevice) -> None:
    file_set = a_set("set-1", "lib/one.so", "probe")
    entry = entry_name(file_set.files[0])
    # no archive is made of a file that has changed its size
    whole = len(content) == len(CONTENTS["lib/one.so"])
    placed = device.deploy(file_set, contents={"lib/one.so": content}, alone=not whole)
    assert list(placed) == [entry]
    assert placed[entry]
    assert device.leftovers == []
    view = device.look(file_set)
    assert not view.sets
    assert entry not in view.entries
    assert view.find_entry(entry_name(file_set.files[1]), file_set.files[1].size)
    assert device.deploy(file_set, push=[entry]) == {}


def test_what_others_left_stays_for_a_day(device: ScriptDevice) -> None:
    """Not only until the second after: toybox's find takes `-ctime +0` for that."""
    device.look(a_set())
    device.leave("other-9-0000abcd.77", f"{'0' * 64}.77", b"half")
    evicting = device.workdir / "listed/.gone-0000ffff"
    evicting.mkdir()
    time.sleep(1.1)
    assert device.deploy(a_set()) == {}
    device.evict(Eviction((), (), (), 0))
    assert len(device.incoming_files) == 1
    assert evicting.exists()


def test_a_set_is_not_made_of_what_is_not_there(device: ScriptDevice) -> None:
    device.look(a_set())
    placed = device.deploy(a_set(), push=())
    assert set(placed.values()) == {""}
    assert sorted(placed) == sorted(entry_name(file) for file in a_set().files)
    assert not device.look(a_set()).sets


def test_after_a_reboot_contents_are_hashed_again(device: ScriptDevice) -> None:
    file_set = a_set()
    device.deploy(file_set)
    device.seem_rebooted()
    lost = file_set.files[0]
    path = device.stored(entry_name(lost))
    time = path.stat().st_mtime
    flip(path, keep_time=time)
    view = device.look(file_set)
    assert not view.find_set(file_set)
    doubtful = [view.unchecked_entry(entry_name(file), file.size) for file in file_set.files]
    assert all(doubtful)
    device.check([name for name in doubtful if name])
    view = device.look(file_set)
    assert not view.find_entry(entry_name(lost), lost.size)
    assert not view.unchecked_entry(entry_name(lost), lost.size)
    assert all(view.find_entry(entry_name(file), file.size) for file in file_set.files[1:])
    assert device.deploy(file_set, push=[entry_name(lost)]) == {}
    assert device.look(file_set).find_set(file_set)


def test_folders_that_cannot_be_made(device: ScriptDevice) -> None:
    device.workdir.write_text("a file in the way")
    with pytest.raises(StoreAnswerError, match="cannot make folders"):
        device.look(a_set())


def test_without_sha256sum_what_arrives_is_taken(poor_device: ScriptDevice) -> None:
    poor_device.without("sha256sum")
    file_set = a_set("set-1", "lib/one.so")
    assert not poor_device.look(file_set).hashing
    assert poor_device.deploy(file_set) == {}
    assert poor_device.look(file_set).find_set(file_set)


def test_without_stat_sizes_count(poor_device: ScriptDevice) -> None:
    poor_device.without("stat")
    file_set = a_set()
    assert poor_device.deploy(file_set) == {}
    assert poor_device.look(file_set).find_set(file_set)
    path = poor_device.folder(file_set) / "probe"
    path.unlink()
    path.write_text("longer than it was")
    assert not poor_device.look(file_set).find_set(file_set)


@pytest.mark.parametrize("without", ["hard", "any"])
def test_where_links_are_not_allowed(without: str, poor_device: ScriptDevice) -> None:
    real = shutil.which("ln", path=poor_device.path)
    poor_device.without("ln")
    refuse = "exit 1" if without == "any" else f'[ "$1" = -s ] || exit 1; exec {real} "$@"'
    (Path(poor_device.path) / "ln").write_text(f"#!/bin/sh\n{refuse}\n")
    (Path(poor_device.path) / "ln").chmod(0o755)
    file_set = a_set()
    assert poor_device.look(file_set).links == {"hard": "soft", "any": "copy"}[without]
    assert poor_device.deploy(file_set) == {}
    path = poor_device.folder(file_set) / "lib/one.so"
    assert path.is_symlink() == (without == "hard")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o444
    flip(path)
    assert not poor_device.look(file_set).find_set(file_set)


ENTRY = "0" * 64
ANSWER = f"@qnn-harness:file 5|946684800|store/{ENTRY}.1\n@qnn-harness:df /dev/x 9 5 4 60% /\n"
DONE = "@qnn-harness:done\n"


@pytest.mark.parametrize("output", ["", ANSWER, f"{ANSWER}@qnn-harness:fail no room\n"])
def test_an_answer_that_is_none(output: str) -> None:
    with pytest.raises(StoreAnswerError, match="no room" if "fail" in output else None):
        parse_look(output)


def test_an_answer_with_noise() -> None:
    view = parse_look(f"WARNING: linker\n{ANSWER}{DONE}more noise\n")
    assert view.entries == {ENTRY: [(f"{ENTRY}.1", 5, 946684800)]}
    assert (view.store_bytes, view.free_bytes) == (5, 4096)


@reaches(0.3)
@given(st.text(max_size=300))
def test_any_answer_is_read_or_refused(text: str) -> None:
    for output in (text, f"@qnn-harness:{text}\n{DONE}", f"@qnn-harness:file {text}\n{DONE}"):
        try:
            view = parse_look(output)
        except StoreAnswerError:
            continue
        reached()
        assert view.free_bytes is None or view.free_bytes >= 0


NAMES = ["context.bin", "x.libs/libc++-71bc274c.so.1.0", "a/b/c"]
NO_NAMES = ["", "/a", "a/", "a//b", "..", "a/../b", "a b", "a\nb", "$(x)", "-rf", "a/-rf", "é"]


def test_names_in_a_set() -> None:
    assert [name for name in NAMES + NO_NAMES if valid_name(name)] == NAMES
