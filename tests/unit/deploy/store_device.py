"""A folder, a shell and its programs: as much of a device as the store's scripts see."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.core.files import LocalFile
from harness.deploy.deploy import plan_push
from harness.deploy.layout import (
    CONDEMNED_TOUCH,
    FileSet,
    StoreView,
    entry_name,
    look_input,
    names_used,
    parse_answer,
    parse_install,
    parse_look,
    stored_at,
)
from harness.deploy.store_client import Eviction, Inventory, ScriptName, parse_inventory, script
from tests.needed import ANDROID, FORMATS, need

ENTER = Path(__file__).parents[2] / "android/enter.sh"
ANDROID_PATH = "/system/bin"
ARM64 = "android arm64"
"""A shell and programs that run under qemu: each takes a third of a second, so not all is tried."""

ROOTS = {"android": "x86_64-android11", ARM64: "arm64-android11"}
PROGRAMS = (
    *("mkdir", "stat", "find", "wc", "df", "tail", "sha256sum", "chmod", "touch", "mv", "ln"),
    *("cp", "rm", "cat", "env", "grep", "tar", "rmdir", "sed", "sleep"),
)
SHELLS = {
    "dash": (["dash"], None),
    "bash": (["bash"], None),
    "mksh with toybox": (["mksh"], "toybox"),
    "busybox": (["busybox", "sh"], "busybox"),
    "android": (["/bin/sh", str(ENTER)], None),
}
BY_DAY = ("dash", "mksh with toybox")
CONTENTS = {
    "lib/one.so": b"first",
    "libs/c++-7.so.1.0": b"runtime" * 73,
    "probe": b"#!/bin/sh\n",
    "empty": b"",
    "block": bytes(512),
}
CLAIM = "host-1-00000000"
LASTS_S = 3600


@dataclass
class ScriptDevice:
    """Runs the scripts like a device would, without adb in between."""

    workdir: Path
    shell: list[str]
    path: str
    local: Path
    deployments: int = field(default=0)
    used_by_other: bool = False
    told_missing: bool = False

    def run(self, name: ScriptName, arguments: list[str], stdin: bytes) -> str:
        completed = subprocess.run(
            [*self.shell, "-c", script(name), "sh", str(self.workdir), *arguments],
            input=stdin,
            env={"PATH": self.path, "TMPDIR": str(self.workdir.parent)},
            capture_output=True,
            timeout=60,
            check=False,
        )
        return completed.stdout.decode()

    def look(
        self, *sets: FileSet, claim: str = CLAIM, using: Collection[str] | None = None
    ) -> StoreView:
        names = names_used(sets) if using is None else using
        stdin = look_input(sets, names)
        return parse_look(self.run("look", [claim, str(LASTS_S)], stdin))

    def prepared(
        self,
        *sets: FileSet,
        push: Collection[str] | None = None,
        contents: Mapping[str, bytes] = {},
        alone: bool = False,
        claim: str = CLAIM,
    ) -> tuple[list[str], bytes]:
        """Does what a host does before it places; arguments and stdin of the script."""
        self.deployments += 1
        end = f"{self.deployments:x}"
        view = self.look(*sets, claim=claim)
        files = {}
        for file_set in sets:
            for file in file_set.files:
                source = self.local / file.name.replace("/", "-")
                source.write_bytes((CONTENTS | dict(contents))[file.name])
                files[entry_name(file)] = replace(file, path=source)
        stored = {e: view.find_entry(e, f.size) or f"{e}.{end}" for e, f in files.items()}
        missing = {e: f for e, f in files.items() if stored[e].endswith(f".{end}")}
        if push is not None:
            missing = {e: f for e, f in missing.items() if e in push}
        orders = [f"unlist {name}" for file_set in sets for name in view.instances(file_set)]
        plan = plan_push(sets, stored, missing, orders, end=end, links=view.links)
        if alone:  # as if they were large
            plan = replace(plan, packed={}, alone={**plan.packed, **plan.alone})
        folder = f"{claim}.{end}"
        for name, file in plan.alone.items():
            self.leave(folder, name, file.path.read_bytes())
        return [folder, view.stored_at_touch], plan.archive()

    def deploy(self, *sets: FileSet, **options: object) -> dict[str, str]:
        arguments, stdin = self.prepared(*sets, **options)  # type: ignore[arg-type]
        return parse_install(self.run("install", arguments, stdin))

    def check(self, entries: list[str]) -> None:
        stdin = "".join(f"{entry}\n" for entry in entries).encode()
        touch = self.look().stored_at_touch
        parse_answer(self.run("check", [touch], stdin))

    def inventory(self) -> Inventory:
        return parse_inventory(self.run("inventory", [str(LASTS_S)], b""))

    def evict(self, eviction: Eviction, *unclaim: str) -> list[str]:
        self.deployments += 1
        arguments = [f"f{self.deployments:x}", str(LASTS_S), CONDEMNED_TOUCH]
        return parse_answer(self.run("evict", arguments, eviction.text(unclaim)))

    def leave(self, folder: str, name: str, content: bytes) -> None:
        """Leaves a file in .incoming, as a push does."""
        path = self.workdir / "store/.incoming" / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o555 if "-x." in name else 0o444)

    def folder(self, file_set: FileSet) -> Path:
        folder = self.look(file_set).find_set(file_set)
        assert folder
        return self.workdir / "sets" / folder

    def stored(self, entry: str) -> Path:
        (path,) = self.workdir.glob(f"store/{entry}.*")
        return path

    def seem_rebooted(self) -> None:
        """Gives everything the time and the claims the boot id of another boot."""
        other = stored_at("another boot")
        for path in (*self.workdir.glob("store/*.*"), *self.workdir.glob("sets/**/*")):
            if path.is_file() and not path.is_symlink():
                os.utime(path, (other, other))
        for claim in self.workdir.glob("inuse/*"):
            _, _, names = claim.read_text().partition("\n")
            claim.write_text(f"another-boot 5\n{names}")

    def without(self, program: str) -> None:
        """Takes a program away."""
        folder = self.workdir.parent / f"without-{program}"
        folder.mkdir()
        for name in (*PROGRAMS, *self.shell[:1]):
            target = shutil.which(name, path=self.path)
            if self.path == ANDROID_PATH:  # that is not on this computer
                target = f"{self.path}/{name}"
            if name != program and target:
                (folder / Path(name).name).symlink_to(target)
        self.path = str(folder)

    @property
    def incoming_files(self) -> list[Path]:
        return [path for path in self.workdir.glob("store/.incoming/*/**/*") if path.is_file()]

    @property
    def leftovers(self) -> list[str]:
        folders = ("store/.incoming/*", "sets/.*", "listed/.*", "inuse/.*", ".try*")
        return [path.name for pattern in folders for path in self.workdir.glob(pattern)]


def needing_shell(name: str) -> object:
    """A parameter of a test that needs this shell, and its programs, on the host."""
    shell, programs = SHELLS["android" if name in ROOTS else name]
    tools = {ANDROID, "unshare"} if name in ROOTS else {shell[0], programs} - {None}
    claims = [pytest.mark.needs(tool) for tool in sorted(map(str, tools))]
    return pytest.param(name, marks=claims if name in BY_DAY else [*claims, pytest.mark.nightly])


def with_all_programs(name: str, tmp_path: Path) -> ScriptDevice:
    """A device that has every program of its kind, and none of this host's."""
    device = device_of(name, tmp_path)
    programs = SHELLS[name][1]
    listed = [programs, *(["--list"] if programs == "busybox" else [])] if programs else []
    for program in subprocess.check_output(listed, text=True).split() if programs else ():
        link = Path(device.path) / program
        link.exists() or link.symlink_to(str(shutil.which(str(programs))))
    return device


def device_of(name: str, tmp_path: Path) -> ScriptDevice:
    shell, programs = SHELLS["android" if name in ROOTS else name]
    path = os.environ["PATH"]
    if name == ARM64:
        need("qemu-aarch64")
        need(FORMATS)
    if name in ROOTS:
        root = Path(os.environ[ANDROID]) / ROOTS[name]
        shell, path = [*shell, str(root), str(tmp_path), f"{ANDROID_PATH}/sh"], ANDROID_PATH
    if programs:
        folder = tmp_path / "bin"
        folder.mkdir()
        multicall = shutil.which(programs)
        for program in PROGRAMS:
            (folder / program).symlink_to(multicall)
        for program in shell[:1]:
            (folder / program).exists() or (folder / program).symlink_to(str(shutil.which(program)))
        path = str(folder)
    local = tmp_path / "local"
    local.mkdir()
    return ScriptDevice(tmp_path / "a device's work dir", shell, path, local)


def stored_file(name: str, content: bytes, mode: int = 0o644) -> LocalFile:
    digest = hashlib.sha256(content).hexdigest()
    return LocalFile(Path("/dev/null"), name, len(content), digest, mode)


def a_set(name: str = "set-1", *names: str) -> FileSet:
    files = tuple(
        stored_file(file_name, CONTENTS[file_name], 0o755 if file_name == "probe" else 0o644)
        for file_name in names or CONTENTS
    )
    return FileSet(name, name, files)


def flip(path: Path, *, keep_time: float | None = None) -> None:
    """Changes the first byte; the modification time too unless it is given."""
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    if keep_time is not None:
        os.utime(path, (keep_time, keep_time))
