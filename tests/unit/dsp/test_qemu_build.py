"""qemu-hexagon is built from an archive or what apt fetches: whole, once, or not at all."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from harness.core.errors import ConfigError, InfraError
from harness.dsp import emulator
from harness.dsp.qemu_build import build_qemu
from tests.snapshots import Snapshot
from tests.unit.core.test_guarded_process import wait_gone

CONFIGURE = "#!/bin/sh\nchmod 700 .\n"
PATCH = """--- a/target/hexagon/old.c
+++ b/target/hexagon/old.c
@@ -1,6 +1,7 @@
 nil
 nought
 one
+and a half
 two
 three
 four
"""
OLD = "nil\nnought\none\ntwo\nthree\nfour\n"
# runs everything, and says which version it is
BUILT = "#!/bin/sh\n[ $1 = --version ] && echo qemu-hexagon version 10.0.99\nexit 0\n"
MOCK_NINJA = f"""grep -q half ../target/hexagon/old.c && test -f ../target/hexagon/own.c || exit 9
echo "$PWD" >> "$LOG"
echo '[1/2] one'
echo '[2/2] two'
cat > qemu-hexagon <<'X'
{BUILT}X
chmod 700 qemu-hexagon"""
MOCK_APT = """case "$*" in
*print-uris*) echo "'http://mirror/ubuntu/dists/noble/InRelease' mirror_ubuntu 0"
  echo "'http://mirror/debian-security/dists/bookworm-security/InRelease' mirror_security 0"
  echo "'http://mirror/debian/dists/bookworm/InRelease' mirror_debian 0";;
*source*) cp "$ARCHIVE" qemu_10.0.99.orig.tar.xz;;
*update*) for one in "$@"; do
  case $one in -oDir::Etc::SourceList=*) cat "${one#*=}" >> "$LOG";; esac; done;;
esac"""


def archive(folder: Path, version: str = "10.0.99\n", old: str = OLD) -> Path:
    """An archive with the files of QEMU's source that the build examines."""
    files = {
        "VERSION": version,
        "configure": CONFIGURE,
        "python/wheels/meson-1.whl": "",
        "target/hexagon/old.c": old,
    }
    path = folder / "qemu.tar.xz"
    with tarfile.open(path, "w:xz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(f"qemu-x/{name}")
            member.size, member.mode = len(text), 0o700
            packed.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Tools that only say that they are there, ninja that makes a program, and a patch."""
    patch = tmp_path / "patch"
    (patch / "target" / "hexagon").mkdir(parents=True)
    (patch / "target" / "hexagon" / "own.c").write_text("own")
    (patch / "glue.patch").write_text(PATCH)
    monkeypatch.setattr(emulator, "PATCH", patch)
    mocks = tmp_path / "mocks"
    mocks.mkdir()
    simple = dict.fromkeys(("pkg-config", "flex", "bison", "strip", "cc"), "exit 0")
    for name, text in (simple | {"ninja": MOCK_NINJA, "apt-get": MOCK_APT}).items():
        (mocks / name).write_text(f"#!/bin/sh\n{text}\n")
        (mocks / name).chmod(0o700)
    path = f"{mocks}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LOG": str(tmp_path / "log")}


def unfinished(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name.startswith(".unfinished")]


def test_it_is_built_once(tmp_path: Path, environment: dict[str, str]) -> None:
    cache, source = tmp_path / "cache", archive(tmp_path)
    built = build_qemu(cache, source=source, environment=environment)
    assert built.read_text() == BUILT
    assert built == emulator.built_qemu(cache)
    assert unfinished(cache) == []
    assert build_qemu(cache, source=source, environment=environment) == built
    assert len((tmp_path / "log").read_text().splitlines()) == 1


NO_ROUTE = """#!/bin/sh
case "$*" in
*print-uris*) echo "'http://mirror/debian/dists/trixie/InRelease' mirror_debian 0";;
*) echo no route; exit 100;;
esac
"""


def test_apt_fetches_it_from_the_mirror_of_this_computer(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    key = tmp_path / "key"
    key.touch()
    monkeypatch.setattr("harness.dsp.qemu_build._KEYRING", key)
    environment["ARCHIVE"] = str(archive(tmp_path))
    assert build_qemu(tmp_path / "cache", environment=environment).is_file()
    commands = (tmp_path / "log").read_text().splitlines()
    assert commands[0] == f"deb-src [signed-by={key}] http://mirror/debian trixie main"
    (tmp_path / "mocks" / "apt-get").write_text(NO_ROUTE)
    with pytest.raises(InfraError, match="no route"):
        build_qemu(tmp_path / "c", environment=environment)
    (tmp_path / "mocks" / "apt-get").write_text("#!/bin/sh\necho\n")
    with snapshot.raises(ConfigError):
        build_qemu(tmp_path / "c", environment=environment)
    key.unlink()
    with snapshot.raises(ConfigError):
        build_qemu(tmp_path / "c", environment=environment)


def test_all_that_is_missing_is_named_at_once(
    tmp_path: Path, environment: dict[str, str], snapshot: Snapshot
) -> None:
    (tmp_path / "mocks" / "pkg-config").write_text("#!/bin/sh\nexit 1\n")
    for variables in ({}, {"PATH": str(tmp_path)}):  # without GLib's headers, without anything
        with snapshot.raises(ConfigError):
            build_qemu(
                tmp_path / "cache", source=archive(tmp_path), environment=environment | variables
            )


@pytest.mark.parametrize(
    ("version", "old", "words"),
    [
        ("11.1.3\n", OLD, "patch"),
        ("10.0.99\n", "uno\ndue\ntre\n", "patch"),
        ("10.0.99\n", OLD.replace("two", "and a half\ntwo"), "patch"),
        ("10.0.99\n", f"other\n{OLD[:-5]}4\n", None),
        (None, OLD, "tar"),
    ],
    ids=["version", "other", "patched", "moved", "no archive"],
)
def test_a_source_is_the_patchs_or_refused(
    tmp_path: Path, environment: dict[str, str], version: str | None, old: str, words: str | None
) -> None:
    source = archive(tmp_path, version or "", old)
    if version is None:
        source.write_text("none")
    if words is None:
        assert build_qemu(tmp_path / "cache", source=source, environment=environment).is_file()
        return
    with pytest.raises(ConfigError, match=words):
        build_qemu(tmp_path / "cache", source=source, environment=environment)


@pytest.mark.parametrize("fault", ["exit 3", "echo > qemu-hexagon", "kill -9 $$"])
def test_a_build_that_fails_leaves_nothing(
    tmp_path: Path, environment: dict[str, str], fault: str
) -> None:
    cache, source = tmp_path / "cache", archive(tmp_path)
    (tmp_path / "mocks" / "ninja").write_text(f"#!/bin/sh\n{fault}\n")
    with pytest.raises((ConfigError, InfraError)):
        build_qemu(cache, source=source, environment=environment)
    assert unfinished(cache) == []
    assert not emulator.built_qemu(cache).exists()


def test_one_that_lacks_the_instructions_is_not_kept(
    tmp_path: Path, environment: dict[str, str], snapshot: Snapshot
) -> None:
    few = MOCK_NINJA.replace("exit 0", '! od -An -tx4 -j116 -N4 "$1" | grep -q a6e0c011')
    (tmp_path / "mocks" / "ninja").write_text(f"#!/bin/sh\n{few}\n")
    with snapshot.raises(ConfigError):
        build_qemu(tmp_path / "cache", source=archive(tmp_path), environment=environment)
    assert not emulator.built_qemu(tmp_path / "cache").exists()


CHILD = """import sys
from pathlib import Path
from harness.dsp import emulator
from harness.dsp.qemu_build import build_qemu
emulator.PATCH = Path(sys.argv[1])
build_qemu(Path(sys.argv[2]), source=Path(sys.argv[3]))
"""


def test_a_build_ends_with_whoever_wanted_it(tmp_path: Path, environment: dict[str, str]) -> None:
    mock_ninja = '#!/bin/sh\nsleep 100 &\necho $$ $! > "$LOG.new"\nmv "$LOG.new" "$LOG"\nwait\n'
    (tmp_path / "mocks" / "ninja").write_text(mock_ninja)
    arguments = [tmp_path / "patch", tmp_path / "cache", archive(tmp_path)]
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as child:
        while not (tmp_path / "log").exists():
            time.sleep(0.05)
        pids = list(map(int, (tmp_path / "log").read_text().split()))
        child.send_signal(signal.SIGINT)
        child.wait(20)
    wait_gone(pids, 20)
    assert unfinished(tmp_path / "cache") == []
    assert not list((tmp_path / "cache").rglob("qemu-hexagon/*/qemu-hexagon"))


def test_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setattr(emulator, "PATCH", tmp_path / "absent")
    with snapshot.raises(ConfigError):
        build_qemu(tmp_path / "cache")
