"""Files kept on a host behind ssh: what several of its devices are pushed goes there once.

    <folder>/<sha256>         a content; `<sha256>-x` if it may be executed
    <folder>/.put.<random>    one that is being sent

The host's own adb pushes them. The scripts are in host/, one a file. A content has its name once it
was hashed there, and is hashed again each time before it is used; what arrives on a device is
checked there as ever. So nothing here has to be believed. Where anything does not work, the files
are pushed through the tunnel, which then says what is wrong with the device.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files as resources
from typing import Final, Literal

from filelock import FileLock

from harness.device.adb.address import SshAddress
from harness.device.adb.device import AdbDevice
from harness.device.transport.channel import Channel
from harness.device.transport.device import Transport
from harness.device.transport.files import BLOCK_BYTES
from harness.device.transport.questions import PREFIX
from harness.ground.files.local_file import LocalFile
from harness.ground.files.whole_file import open_regular
from harness.ground.host.deadline import Deadline
from harness.ground.host.socket_folder import host_file

_log = logging.getLogger(__name__)

KEPT_FROM_BYTES: Final = 256 << 10
"""A smaller file is pushed before a host has been asked for it."""

_MOST_FILES: Final = 500  # their names stand in one argument, of which 128 KiB are allowed
# a host may be one that asks for something, or waits, in place of running a command
_BEGIN_S: Final = 15.0
_MOST_SAID: Final = 256 << 10
# a file may be removed to make room between being sent and being pushed
_ROUNDS: Final = 3

HostProgress = Callable[[str, int], None]

_refusing: Final[set[SshAddress]] = set()


class _Refused(Exception):
    """A host cannot keep files, and would say so again."""


def push_from_host(
    device: Transport,
    files: Mapping[str, LocalFile],
    folder: str,
    deadline: Deadline,
    progress: HostProgress,
) -> list[str]:
    """Has the host that a device hangs on push files, and sends it before what it lacks of them.

    `files` are local ones by their names in `folder` on the device, large ones first. Returns those
    that are there now: so many of the first, in their order. It is none where the host keeps
    nothing or anything went wrong, though some may have arrived. `progress` is told what is being
    done, and with how many bytes it was.
    """
    host = device.server.address if isinstance(device, AdbDevice) else None
    if not isinstance(host, SshAddress) or host in _refusing:
        return []
    kept = _kept(files, host.cache_mb * 1_000_000)
    try:
        for _ in range(_ROUNDS if kept else 0):
            missing = _push(host, device.serial, kept, folder, deadline, progress)
            if not missing:
                return list(kept)
            for name in missing:
                _put(host, name, kept[name], deadline, progress)
        if kept:
            raise ConnectionError("what it was sent was gone again")
    except _Refused as error:
        _refusing.add(host)
        _log.info(f"nothing is kept on {host}, its devices are sent copies of their own: {error}")
    except OSError as error:
        _log.info(f"{host} did not push to {device.serial}, the tunnel is used: {error}")
    return []


def _kept(files: Mapping[str, LocalFile], limit: int) -> dict[str, LocalFile]:
    """Those that go by the host; only the first so many, since a device waits for them in order."""
    kept: dict[str, LocalFile] = {}
    for name, file in files.items():
        limit -= file.size
        if limit < 0 or file.size < KEPT_FROM_BYTES or len(kept) == _MOST_FILES:
            break
        kept[name] = file
    return kept


def _push(
    host: SshAddress,
    serial: str,
    files: Mapping[str, LocalFile],
    folder: str,
    deadline: Deadline,
    progress: HostProgress,
) -> list[str]:
    """Pushes all, or answers which are missing there."""
    behind = "127.0.0.1" if host.behind == "localhost" else host.behind
    # adb never starts or ends a server that -H says is on another computer, as any number does
    arguments = (behind, str(host.port), serial, folder, *files)
    missing, pushed = set(), 0
    with _script("push", host, arguments, deadline) as script:
        for word, name in script.said():
            if word == "missing":
                missing.add(name)
            elif word == "pushed" and name in files:
                pushed += files[name].size
                progress("pushing", pushed)
    return [name for name in files if name in missing]


def _put(
    host: SshAddress, name: str, file: LocalFile, deadline: Deadline, progress: HostProgress
) -> None:
    """Sends a file, unless somebody else has done so meanwhile."""
    entry = name.partition(".")[0]
    limit = host.cache_mb * 1_000_000
    arguments = (entry, str(file.size), str(limit), secrets.token_hex(8))
    # whoever waits for another file of the same first digit waits for the same uplink
    with (
        FileLock(host_file(host, f"put-{entry[0]}"), timeout=deadline.remaining()),
        _script("put", host, arguments, deadline) as script,
    ):
        for word, _ in script.said():
            if word == "send":
                script.send(file, progress)


@contextlib.contextmanager
def _script(
    name: Literal["push", "put"], host: SshAddress, arguments: Sequence[str], deadline: Deadline
) -> Iterator[_Script]:
    text = resources("harness.device.store").joinpath("host", f"{name}.sh").read_text("ascii")
    command = shlex.join(("sh", "-c", text, "sh", host.cache_folder or "", *arguments))
    with host.tunnel.running(command, deadline.at_most(_BEGIN_S)) as channel:
        yield _Script(channel, deadline)


class _Script:
    """A script at work on a host."""

    def __init__(self, channel: Channel, deadline: Deadline) -> None:
        self._channel = channel
        self._heard = b""
        self._deadline = deadline

    def said(self) -> Iterator[tuple[str, str]]:
        """What it says, as it comes: a word, and what of. Raises _Refused, OSError."""
        done, other, size = False, "it ended early", 0
        for line in self._lines():
            size += len(line) + 1
            if size > _MOST_SAID:
                raise ConnectionError("it says too much")
            text = line.decode("utf-8", "replace").strip()[:300]
            word, _, rest = text.removeprefix(PREFIX).partition(" ")
            if not text.startswith(PREFIX):
                other = text or other
            elif word == "begun":
                self._channel.go_on(self._deadline)
            elif word == "fail":
                raise _Refused(rest)
            else:
                done = word == "done"
                yield word, rest
        if not done:
            raise ConnectionError(other)

    def _lines(self) -> Iterator[bytes]:
        with contextlib.suppress(EOFError):
            while len(self._heard) < _MOST_SAID:
                *lines, self._heard = self._heard.split(b"\n")
                yield from lines
                self._heard += self._channel.receive()

    def send(self, local: LocalFile, progress: HostProgress) -> None:
        """Sends a file's content, unless it ends before."""
        sent = 0
        with open_regular(local.path, local.size) as file, contextlib.suppress(EOFError):
            while block := file.read(BLOCK_BYTES):
                self._channel.queue(block)
                while self._channel.queued_bytes >= BLOCK_BYTES:
                    self._heard += self._channel.receive(room_below=BLOCK_BYTES)
                sent += len(block)
                progress("sending to its host", sent)
