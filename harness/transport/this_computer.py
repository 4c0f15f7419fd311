"""This computer as a device: its shell, its files."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.errors import DeviceError, DeviceRefused, InfraError
from harness.files.whole_file import open_regular
from harness.host.deadline import Deadline
from harness.transport.bridge import Bridge
from harness.transport.device import SHORT_S, Transport
from harness.transport.files import (
    PSEUDO_FOLDERS,
    IncomingFile,
    Progress,
    PushItem,
    RemoteStat,
    local_faults,
    path_bytes,
)
from harness.transport.shell_protocol import v2_script

SERIAL: Final = "this-computer"
_READ_BYTES: Final = 1 << 20


class ThisComputer(Transport):
    """Runs scripts here, with `env` as their whole environment (None: ours).

    A process that a script becomes by `exec` is our own child.
    """

    is_checked = True

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__(SERIAL)
        self._env = None if env is None else {"PATH": os.environ.get("PATH", os.defpath), **env}

    @property
    def features(self) -> frozenset[str]:
        """As if adbd spoke shell_v2."""
        return frozenset({"shell_v2"})

    @property
    def shell_v2(self) -> bool:
        """Whether its shells tell their outputs apart: they do."""
        return True

    def _link(self, deadline: Deadline) -> ThisComputer:
        return self

    def open(
        self,
        script: str,
        deadline: Deadline,
        command: str,
        *,
        token: str | None = None,
        stdin_file: str | None = None,
    ) -> socket.socket:
        """As `Link.open`. Raises InfraError if no shell can be started."""
        try:
            process = subprocess.Popen(
                ["sh", "-c", script if token is None else v2_script(script, token)],
                env=self._env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise InfraError(f"cannot start a shell on this computer: {error}") from error
        return Bridge(process).socket

    def connect(self, *, timeout_s: float) -> None:
        """Nothing: it is here."""

    def reconnect(self, *, timeout_s: float) -> None:
        """Nothing: it is here."""

    def disconnect(self) -> None:
        """Nothing: there is no connection."""

    def is_there(self, *, timeout_s: float) -> bool:
        """Whether it can be asked: it is here."""
        return True

    def reboot(self, *, timeout_s: float) -> None:
        """Raises DeviceRefused: whoever runs the tests runs here, too."""
        raise DeviceRefused("this computer is not rebooted", serial=self.serial, command="reboot")

    def push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """As `Transport.push`: copies them."""
        deadline, sent = Deadline(timeout_s), 0
        for file in files:
            sent += self._copied(file, deadline)
            if progress is not None:
                progress(sent)

    def _copied(self, file: PushItem, deadline: Deadline) -> int:
        remote = Path(os.fsdecode(path_bytes(file.remote)))
        command = f"push {file.remote}"
        try:
            remote.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                remote.unlink()  # it may be running
            if isinstance(file.source, bytes):
                remote.write_bytes(file.source)
                mtime = time.time()
            else:
                with local_faults(file.source):
                    source = open_regular(file.source, file.size)
                with source, remote.open("xb") as target:
                    shutil.copyfileobj(source, target, _READ_BYTES)
                    mtime = os.fstat(source.fileno()).st_mtime
            remote.chmod(file.mode)
            os.utime(remote, (mtime, mtime))
            return remote.stat().st_size
        except OSError as error:
            raise self._refused(error, command) from error

    def stat(
        self, remote: str, *, timeout_s: float = SHORT_S, follow: bool = True
    ) -> RemoteStat | None:
        """As `Transport.stat`."""
        try:
            found = os.stat(path_bytes(remote), follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._refused(error, f"stat {remote}") from error
        return RemoteStat(found.st_mode, found.st_size, int(found.st_mtime))

    def pull(self, remote: str, local: Path, *, timeout_s: float, max_bytes: int) -> None:
        """As `Transport.pull`."""
        command = f"pull {remote}"
        found = self.stat(remote)
        if found is None or not found.is_file:
            why = "No such file or directory" if found is None else "not a regular file"
            raise DeviceRefused(why, serial=self.serial, command=command)
        if not remote.startswith(PSEUDO_FOLDERS) and found.size > max_bytes:
            problem = f"{found.size} bytes, more than the {max_bytes} allowed"
            raise DeviceError(problem, serial=self.serial, command=command)
        with IncomingFile(local) as file:
            try:
                with open(path_bytes(remote), "rb") as source:
                    while block := source.read(_READ_BYTES):
                        if file.size + len(block) > max_bytes:
                            problem = f"more than the {max_bytes} bytes allowed"
                            raise DeviceError(problem, serial=self.serial, command=command)
                        file.write(block)
            except OSError as error:
                raise self._refused(error, command) from error
            file.keep(found)

    def _refused(self, error: OSError, command: str) -> DeviceRefused:
        return DeviceRefused(error.strerror or str(error), serial=self.serial, command=command)
