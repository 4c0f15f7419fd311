"""Runs the real adbd of a Debian root in namespaces of its own, behind one loopback port.

That adbd accepts every key and listens on all addresses, so it gets a network namespace with
nothing in it; this program, inside, carries bytes between adbd and a listening socket that was
made outside and handed in. Its /data is a folder of the host's or a small file system of its own.
With an Android root (tests/android/kit.sh) its shell and all programs beside it are Android's, and
with one for arm64 the kernel hands programs for that to qemu, as far as this device goes.
Run as `unshare ... python -I -S real_adbd.py LISTENING_FD ROOT DATA MOUNT_OPTIONS ANDROID`, where
ANDROID is `Android` as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from harness.core.guarded_process import GuardedProcess

_PORT = 5555
_NAMESPACES = ("--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child")
# adb's shell on a phone whose build is "user"
_SHELL_USER = 2000
_CLONE_NEWUSER = 0x10000000
_ANDROID = {
    "PATH": "/product/bin:/system/bin",
    "ANDROID_ROOT": "/system",
    "ANDROID_DATA": "/data",
    "HOME": "/",
    "TMPDIR": "/data/local/tmp",
}
# Linux 6.7 and later have one table of such formats for each user namespace.
_FORMATS = "proc/sys/fs/binfmt_misc"
_ARM64 = (
    r":arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    ":/host/arm64:P"
)
# A stream that is to be opened: Debian's adbd refuses this one, so this program does what adbd and
# init do on a phone.
_REBOOT = re.compile(rb"OPEN(.{4}).{16}reboot:", re.DOTALL)
_REBOOT_BYTES = 31
_STREAM = 1 << 24  # far from the numbers that adbd gives
_RUN_ARM64 = """#!/system/bin/sh
program=$1 name=$2
shift 2
exec /host/{loader} --library-path "/host/{libraries}" \\
  /host/{qemu} -0 "$name" -L /arm64 {preload} "$program" "$@"
"""


@dataclass(frozen=True)
class Android:
    """Folders of this host that make a device one with Android.

    `root` has its shell, linker and programs; what lies in `programs` comes first in its PATH.
    `vendor` is its /vendor; with one it has the node of a DSP. `arm64` is the root for arm64
    programs, which the program `qemu` runs, each with the library `preload` of `programs`.
    """

    root: str
    programs: str = ""
    vendor: str = ""
    arm64: str = ""
    qemu: str = ""
    preload: str = ""


class RealDevice:
    """A real adbd on `root` (see real_adb.sh), started and stopped like a SimulatedDevice.

    `storage` is the host's folder that its /data is; without one it gets an empty one, gone when
    it stops. `storage_limit_bytes` gives it a /data of that size in memory instead;
    `read_only` makes it one that nobody can write to. With `android` its programs run as the user
    2000, and a reboot ends them all; without, as root.
    """

    def __init__(
        self,
        root: Path,
        *,
        storage: Path | None = None,
        storage_limit_bytes: int | None = None,
        read_only: bool = False,
        android: Android | None = None,
    ) -> None:
        self.root = root
        self.address = ""
        self._storage = storage
        self._limit = storage_limit_bytes
        self._read_only = read_only
        self._android = () if android is None else (json.dumps(asdict(android)),)
        self._process: GuardedProcess | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        from harness.core.guarded_process import spawn_guarded

        data, options = self._data()
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(16)
            self.address = f"127.0.0.1:{listening.getsockname()[1]}"
            descriptor = listening.fileno()
            self._process = spawn_guarded(
                [
                    *("unshare", *_NAMESPACES),
                    *(sys.executable, "-I", "-S", __file__, str(descriptor), str(self.root)),
                    *(data, options, *self._android),
                ],
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                pass_fds=[descriptor],
                stderr=None,
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _data(self) -> tuple[str, str]:
        """Return the source of /data and its mount options."""
        protection = ["ro"] if self._read_only else []
        if self._limit is not None:
            return "tmpfs", ",".join([f"size={self._limit}", *protection])
        if self._storage is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="adbd-data-")
        data = Path(self._temporary.name) if self._temporary else self._storage
        (data / "local/tmp").mkdir(parents=True, exist_ok=True)
        return str(data), ",".join(["bind", *protection])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _raise_loopback() -> None:
    with socket.socket() as control:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS


def _compose(debian: Path, android: Android) -> Path:
    """A root with adbd and its libraries, and for all else what Android has."""
    root = debian / "mnt"
    _mounted("-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", root)
    for name in ("proc", "dev", "sys", "data", "system", "usr", "etc", "product/bin", "vendor"):
        (root / name).mkdir(parents=True)
    for name, target in (("lib", "usr/lib"), ("lib64", "usr/lib64"), ("bin", "/system/bin")):
        (root / name).symlink_to(target)
    (root / "sdcard").symlink_to("/data/media")
    _mounted("--rbind", "/sys", root / "sys")
    shown = {debian / "usr": "usr", debian / "etc": "etc", f"{android.root}/system": "system"}
    shown |= {android.programs: "product/bin", android.vendor: "vendor"}
    if android.arm64:
        shown |= {"/usr": "host/usr", android.arm64: "arm64"}
        _run_arm64(root, android)
    for source, place in shown.items():
        if source:
            (root / place).mkdir(parents=True, exist_ok=True)
            _mounted("--bind", source, root / place)
            _mounted("-o", "remount,bind,ro", root / place)
    return root


def _run_arm64(root: Path, android: Android) -> None:
    """Has the kernel run arm64 programs below a root by this host's qemu, with its libraries."""
    completed = subprocess.run(["ldd", android.qemu], capture_output=True, text=True, check=True)
    libraries_found = [
        Path(word).resolve() for word in completed.stdout.split() if word.startswith("/")
    ]
    libraries = ":/host".join(dict.fromkeys(str(event.parent) for event in libraries_found))
    loader = next(str(event) for event in libraries_found if event.name.startswith("ld-linux"))
    preload = f"-E LD_PRELOAD=/product/bin/{android.preload}" if android.preload else ""
    words = {"loader": loader, "libraries": libraries, "qemu": Path(android.qemu).resolve()}
    program = root / "host/arm64"
    program.parent.mkdir()
    program.write_text(
        _RUN_ARM64.format(preload=preload, **{key: str(word)[1:] for key, word in words.items()})
    )
    program.chmod(0o755)
    _mounted("-t", "binfmt_misc", "binfmt_misc", f"/{_FORMATS}")
    Path(f"/{_FORMATS}/register").write_text(_ARM64)


def _show_dsp(dev: Path) -> None:
    """In place of this host's devices those that every program wants, and the node of a DSP."""
    _mounted("-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", dev)
    for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"):
        (dev / name).touch()
        _mounted("--bind", f"/dev/{name}", dev / name)
    (dev / "pts").mkdir()
    _mounted("--rbind", "/dev/pts", dev / "pts")
    (dev / "adsprpc-smd").touch()


def _mounted(*arguments: object) -> None:
    subprocess.run([shutil.which("mount") or "mount", *map(str, arguments)], check=True)


def _mount(root: Path, data: str, options: str) -> None:
    kind = "tmpfs" if data == "tmpfs" else "none"
    options_given, _, protection = options.partition(",")
    for arguments in (
        ("-t", "proc", "proc", root / "proc"),
        ("--rbind", "/dev", root / "dev"),
        ("-t", kind, "-o", options_given, data, root / "data"),
    ):
        _mounted(*arguments)
    if (root / "tmp").exists():  # not on Android
        _mounted("-t", "tmpfs", "-o", "size=64m", "tmpfs", root / "tmp")
    for folder in ("local/tmp", "media"):
        (root / "data" / folder).mkdir(parents=True, exist_ok=True)
    if protection:
        _mounted("-o", f"remount,bind,{protection}", root / "data")


def _connect() -> socket.socket:
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", _PORT))
        except OSError:
            time.sleep(0.01)
    raise SystemExit("adbd does not listen")


def _carry(source: socket.socket, sink: socket.socket, reboots: threading.Event | None) -> None:
    before = b""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 20):
            # what opens a stream and its name may come one after the other
            before = before[-_REBOOT_BYTES:] + data
            if reboots is None or (match := _REBOOT.search(before)) is None:
                sink.sendall(data)
                continue
            stream = struct.pack("<I", _STREAM) + match[1]
            source.sendall(b"OKAY" + stream + bytes(8) + bytes(byte ^ 0xFF for byte in b"OKAY"))
            time.sleep(0.5)  # as on a phone, where adbd answers before init ends it
            reboots.set()
            os.kill(-1, signal.SIGKILL)  # all but this process
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, reboots: threading.Event | None) -> None:
    while True:
        outer, _ = listening.accept()
        inner = _connect()
        for end in (outer, inner):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for way in ((outer, inner, reboots), (inner, outer, None)):
            threading.Thread(target=_carry, args=way, daemon=True).start()


def _boot_anew(root: Path) -> None:
    """Another boot, by its id."""
    boot_id = root / "proc/sys/kernel/random/boot_id"
    subprocess.run([shutil.which("umount") or "umount", boot_id], capture_output=True, check=False)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"{uuid.uuid4()}\n")
        file.flush()
        Path(file.name).chmod(0o444)
        _mounted("--bind", file.name, boot_id)


def _become(user: int) -> None:
    """Goes on as this user, who with the next exec loses all that root may do here."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    for kind in ("uid", "gid"):
        Path(f"/proc/self/{kind}_map").write_text(f"{user} 0 1")


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    root = Path(sys.argv[2])
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    _raise_loopback()
    android = Android(**json.loads(sys.argv[5])) if sys.argv[5:] else None
    if android:
        root, environment = _compose(root, android), _ANDROID
    _mount(root, sys.argv[3], sys.argv[4])
    if android:
        card = root / "data/media"
        _mounted("--bind", card, card)
        _mounted("-o", "remount,bind,noexec", card)  # as /sdcard is on every phone
        if android.vendor:
            _show_dsp(root / "dev")
        _mounted("-o", "remount,ro", root)
    reboots = threading.Event() if android else None
    threading.Thread(target=_serve, args=(listening, reboots), daemon=True).start()
    booted = False
    while not booted or (reboots is not None and reboots.is_set()):
        booted = True
        if reboots is not None:
            reboots.clear()
            _boot_anew(root)
        adbd = os.fork()
        if adbd == 0:
            listening.close()
            if android:
                _become(_SHELL_USER)
            os.chroot(root)
            os.chdir("/")
            os.execve("/usr/sbin/adbd", ["adbd"], environment | {"ADBD_PORT": str(_PORT)})
        # the first process of a PID namespace inherits every orphan
        while os.wait()[0] != adbd:
            pass


if __name__ == "__main__":
    main()
