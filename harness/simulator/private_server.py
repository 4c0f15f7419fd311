"""The harness's own adb server, with a socket that nobody else can reach, and a key."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.guarded_process import GuardedProcess, spawn_guarded
from harness.core.socket_folder import new_socket_path
from harness.transport.adb_address import UnixAddress
from harness.transport.adb_server import AdbServer, adb_binary

_START_S = 10.0
_KEYGEN_S = 30.0


class PrivateAdbServer:
    """The harness's adb server for devices connected by TCP; the user's is not touched.

    It runs adb of the adbutils wheel with `key_folder` as its HOME, and the harness's key. It
    looks for no USB devices, emulators or mDNS services, and listens on a Unix socket in a folder
    that no other account can enter. It ends with `stop`, and within 2 s when our process ends in
    any way; the folder goes with it.
    """

    def __init__(self, *, key_folder: Path, adb: Path | None = None) -> None:
        self._home = key_folder
        self._adb = adb
        self._process: GuardedProcess | None = None
        self._server: AdbServer | None = None

    @property
    def server(self) -> AdbServer:
        if self._server is None:
            raise InfraError("the harness's adb server is not running")
        return self._server

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exit_code

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.command_pid()

    def start(self) -> None:
        """Start it and return when it answers. Raises InfraError with adb's output."""
        if self._process is not None:
            return
        harness_key(self._home)
        with (
            socket.socket(socket.AF_UNIX) as listening,
            # unnamed: read for an error message, and removed with this process
            tempfile.TemporaryFile(dir=self._home) as log,
        ):
            path = new_socket_path()
            listening.bind(str(path))
            path.chmod(0o600)
            listening.listen(64)
            descriptor = listening.fileno()
            self._process = spawn_guarded(
                [self._adb or adb_binary(), "-L", f"acceptfd:{descriptor}", "nodaemon", "server"],
                env=_private_environment(self._home),
                cwd=self._home,
                stderr=log,
                pass_fds=[descriptor],
                remove=path.parent,
            )
            server = AdbServer(UnixAddress(str(path)))
            # ours must be closed, or a request to a server that has ended would wait for ever
            listening.close()
            try:
                server.version(deadline=Deadline(_START_S))
            except BaseException as error:
                self.stop()
                if not isinstance(error, InfraError):
                    raise
                log.seek(0)
                why = log.read(4000).decode("utf-8", "replace").strip() or error
                raise InfraError(f"the harness's adb server does not start: {why}") from error
        self._server = server

    def stop(self) -> None:
        self._server = None
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _private_environment(home: Path) -> dict[str, str]:
    """Return the whole environment of our server: no key, port or USB device of the user's."""
    off = ("ADB_MDNS", "ADB_MDNS_OPENSCREEN", "ADB_MDNS_AUTO_CONNECT", "ADB_USB", "ADB_EMU")
    return dict.fromkeys(off, "0") | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.defpath,
        "LANG": "C",
        "ADB_VENDOR_KEYS": str(home / ".android" / "adbkey"),
        "ADB_LOCAL_TRANSPORT_MAX_PORT": "5553",  # below the first port adb would scan
    }


def harness_key(folder: Path) -> Path:
    """Return the private key file below `folder`, created on first use; `<key>.pub` is public.

    The key lies at `<folder>/.android/adbkey`, where adb looks when `folder` is its HOME. Safe
    when several processes call it at once. Raises InfraError if it cannot be created.
    """
    home = folder / ".android"
    key, public = home / "adbkey", home / "adbkey.pub"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(home / "adbkey.lock", timeout=_KEYGEN_S):
            if not (_has_content(key) and _has_content(public)):
                fresh = _generate(home)
                fresh.chmod(0o600)
                # the private half last: where it is, its public half is there too
                fresh.with_suffix(".pub").replace(public)
                fresh.replace(key)
            key.chmod(0o600)
    except Timeout as error:
        raise InfraError(f"another process has locked {home / 'adbkey.lock'}") from error
    except OSError as error:
        raise InfraError(f"cannot make the harness's adb key: {error}") from error
    return key


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _generate(home: Path) -> Path:
    fresh = home / "new"
    try:
        finished = subprocess.run(
            [str(adb_binary()), "keygen", str(fresh)],
            # HOME keeps adb from creating a key for the user as well
            env={"HOME": str(home), "PATH": os.defpath, "LANG": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KEYGEN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfraError(f"adb keygen took longer than {_KEYGEN_S:g} s") from error
    if finished.returncode or not all(map(_has_content, (fresh, fresh.with_suffix(".pub")))):
        errors = finished.stderr.decode("utf-8", "replace").strip()
        raise InfraError(f"adb keygen failed ({finished.returncode}): {errors[-500:]}")
    return fresh
