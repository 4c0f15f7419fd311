"""One script run on a device: input, output, exit status, and its certain end at the deadline."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import secrets
import shlex
import signal as signals
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from harness.core.deadline import Deadline
from harness.core.errors import (
    DeviceLost,
    DeviceRefused,
    DeviceTimeout,
    InfraError,
)
from harness.transport.channel import Channel
from harness.transport.faults import device_faults
from harness.transport.shell_protocol import (
    CLOSE_STDIN_PACKET,
    EXIT,
    STDERR,
    STDIN,
    STDOUT,
    TOKEN_VARIABLE,
    Banner,
    PacketReader,
    exit_status,
    header,
)


@dataclass(frozen=True)
class ShellCall:
    """A script to be begun; `command` names it in errors.

    With `token`, all that it starts carries that, and it tells its process group first
    (`shell_protocol.Banner`).
    """

    script: str
    deadline: Deadline
    command: str
    token: str | None = None


class Link(Protocol):
    """Opens shells on one device, each with a connection of its own."""

    @property
    def serial(self) -> str: ...

    def open(self, call: ShellCall) -> Channel:
        """Begins a script and returns the channel to it, which the caller closes.

        Raises DeviceLost if the device is not there, DeviceRefused if we are not let in,
        DeviceTimeout at the deadline.
        """
        ...


END_GRACE_S: Final = 2.0
"""Seconds beyond its deadline that a call may take to find its processes, and again to end them."""

_MAX_SAID_BYTES: Final = 64 * 1024
_LOOKED: Final = re.compile(rb"^looked (\d{1,12}\.\d\d)\r?$", re.MULTILINE)
_FOUND: Final = re.compile(rb"^found (\d{1,10}) ([A-Za-z])\r?$", re.MULTILINE)
_ENDED: Final = re.compile(rb"^ended\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """What was found of a call on the device before anything of it was ended.

    `uptime_s` is the device's own clock (seconds since it booted, sleep included) just before it
    looked; None if the device did not answer. `states` has the state letter of /proc by process
    id: R runs, S sleeps, D is in the kernel, T is stopped; what has ended is not among them.
    `ended`: nothing is left, for certain.
    """

    uptime_s: float | None = None
    states: Mapping[int, str] = field(default_factory=dict)
    ended: bool = False


def find_script(token: str) -> str:
    """A script that tells which processes carry the token of a call, and the device's clock.

    Runs in dash, mksh, bash and busybox. The token is looked for in the environment of processes
    and in the command line of the shell that set it.
    """
    # the bracket keeps the pattern from matching the process that looks for it
    pattern = shlex.quote(f"{TOKEN_VARIABLE}=[{token[0]}]{token[1:]}")
    return (
        'g() { read -r s <"/proc/$1/stat" 2>/dev/null||s="x) x x 0";'
        "set -- ${s##*) };c=$1;r=$3;};"
        f"l() {{ f=$(grep -ls {pattern} /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null);}};"
        "read -r u s </proc/uptime;l;"
        'for p in $f;do p=${p#/proc/};p=${p%/*};g $p;echo "found $p $c";done;echo "looked $u";'
    )


def end_script(token: str, group: int | None) -> str:
    """`find_script`, which then ends a call's process group and whatever else carries its token.

    `group` is to be given only right after the call: numbers are used again. Prints `ended` when
    nothing is left. `kill -9 -N` is the one way to name a group that all shells take. Each
    process's group goes with it, unless that is also our own: a daemon that makes no groups must
    not be hit.
    """
    kill_group = "" if group is None else f"kill -9 -{group} 2>/dev/null;"
    return (
        find_script(token) + f'{kill_group}g $$;own=$r;i=0;while [ -n "$f" ]&&[ $i -lt 15 ];do '
        "i=$((i+1));for p in $f;do p=${p#/proc/};p=${p%/*};g $p;"
        '[ "$r" -le 1 ]||[ "$r" = "$own" ]||kill -9 -$r 2>/dev/null;kill -9 $p 2>/dev/null;done;'
        'l;[ -z "$f" ]||sleep 0.1;done;[ -n "$f" ]||echo ended'
    )


def parse_found(said: bytes) -> Found:
    """What one of the scripts said, as far as it came (pure). A line cut off is not believed."""
    looked = _LOOKED.search(said)
    if looked is None:
        return Found()
    states = {int(pid): state.decode() for pid, state in _FOUND.findall(said, 0, looked.start())}
    # a process that ended between being listed and being asked has no state
    alive = {pid: state for pid, state in states.items() if state not in "xXZ"}
    return Found(float(looked[1]), alive, _ENDED.search(said) is not None)


def ask_for_processes(link: Link, script: str, *, timeout_s: float = END_GRACE_S) -> Found:
    """What one of the scripts says on a device; never raises because of the device."""
    return parse_found(_said(link, script, Deadline(timeout_s)))


def _said(link: Link, script: str, deadline: Deadline) -> bytes:
    said, words = bytearray(), "end the processes of a call"
    with contextlib.suppress(InfraError), device_faults(link.serial, words):
        channel = link.open(ShellCall(script, deadline, words))
        reader = PacketReader()
        with contextlib.closing(channel):
            while b"ended" not in said and len(said) < _MAX_SAID_BYTES:
                for kind, data in reader.feed(channel.receive()):
                    if kind == EXIT:
                        return bytes(said)
                    said += data
    return bytes(said)


DRAIN_GRACE_S = 2.0
"""Seconds beyond its deadline that a call may take to read what is still in its stream."""

LOOK_GRACE_S = 8.0
"""Seconds beyond its deadline that a call may take to look at its processes before it ends them."""

_CHUNK_BYTES = 64 * 1024
_QUEUED_BYTES = 1 << 20
_END_BYTES = 1 << 16

Sink = Callable[[bytes], None]


@dataclass(frozen=True)
class Completed:
    """How a script ended and what it wrote.

    Exactly one of `exit_code` and `signal` is set, but for a truncated run, which has neither: it
    was ended because it wrote more than it was allowed to. A status of 129 to 192 counts as a
    signal (128 + n), be it that of the shell or of the last program it ran.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    signal: int | None
    truncated: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class ScriptTimeout(DeviceTimeout):
    """The deadline of a script passed, and what the device said about it then.

    `found` is what was found of its processes before they were ended. `completed` is its result if
    it had ended by itself all the same: then only the link was late. `late_bytes` is how much of
    its output came after the deadline, `heard_out` whether the output was read to its end once all
    processes were ended.
    """

    def __init__(
        self,
        problem: str,
        *,
        serial: str,
        command: str,
        output: bytes,
        found: Found,
        completed: Completed | None,
        late_bytes: int,
        heard_out: bool,
    ) -> None:
        super().__init__(problem, serial=serial, command=command, output=output)
        self.found = found
        self.completed = completed
        self.late_bytes = late_bytes
        self.heard_out = heard_out


class _Output:
    """What a call has written so far, bounded."""

    def __init__(
        self, limit: int, on_stdout: Sink | None, on_stderr: Sink | None, *, collect: bool = True
    ) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.full = False
        self._room = limit
        self._collect = collect
        self._on = {STDOUT: on_stdout, STDERR: on_stderr}

    def take(self, kind: int, data: bytes) -> None:
        if len(data) > self._room:
            data = data[: self._room]
            self.full = True
        if not data:
            return
        self._room -= len(data)
        kept = self.stdout if kind == STDOUT else self.stderr
        kept.extend(data)
        if not self._collect:
            del kept[:-_END_BYTES]
        sink = self._on[kind]
        if sink is not None:
            sink(data)

    def so_far(self) -> bytes:
        return bytes(self.stdout + self.stderr)


class _Call:
    """The exchange with a device that speaks shell_v2."""

    def __init__(self, token: str) -> None:
        self._banner = Banner(token)
        self._reader = PacketReader()
        self.status: int | None = None

    @property
    def group(self) -> int | None:
        return self._banner.group

    def output(
        self, channel: Channel, stdin: bytes | Iterable[bytes]
    ) -> Iterator[tuple[int, bytes]]:
        """Feeds stdin and gives (stream, data) until the exit status is there."""
        chunks = _chunks([stdin] if isinstance(stdin, bytes) else stdin)
        left = True
        while True:
            while left and channel.queued_bytes < _QUEUED_BYTES:
                chunk = next(chunks, None)
                if chunk is None:
                    channel.queue(CLOSE_STDIN_PACKET)
                    left = False
                else:
                    channel.queue(header(STDIN, len(chunk)), chunk)
            yield from self._received(channel, room_below=_QUEUED_BYTES // 2 if left else 0)
            if self.status is not None:
                return

    def rest(self, channel: Channel) -> Iterator[tuple[int, bytes]]:
        while self.status is None:
            yield from self._received(channel)

    def _received(self, channel: Channel, *, room_below: int = 0) -> Iterator[tuple[int, bytes]]:
        try:
            received = channel.receive(room_below=room_below)
        except EOFError:
            yield STDERR, self._banner.rest()
            raise
        yield from self._take(received)

    def _take(self, received: bytes) -> Iterator[tuple[int, bytes]]:
        for kind, data in self._reader.feed(received):
            if kind == EXIT:
                yield STDERR, self._banner.rest()
                self.status = data[0]
                return
            yield kind, self._banner.feed(data) if kind == STDERR else data


def _chunks(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in pieces:
        for start in range(0, len(piece), _CHUNK_BYTES):
            yield memoryview(piece)[start : start + _CHUNK_BYTES]


@functools.cache
def call_mark(serial: str) -> str:
    """Eight hex digits that the tokens of all calls from this computer to a device begin with."""
    return hashlib.sha256(f"{socket.gethostname()}\0{serial}".encode()).hexdigest()[:8]


def run_script(
    link: Link,
    script: str,
    *,
    stdin: bytes | Iterable[bytes] = b"",
    deadline: Deadline,
    on_stdout: Sink | None = None,
    on_stderr: Sink | None = None,
    max_output_bytes: int,
    abandoned: Callable[[str], None],
    before_end: Callable[[Deadline], None] | None = None,
    doing: str = "",
    collect: bool = True,
) -> Completed:
    """Runs `script` in the device's shell; see `Transport.shell`.

    `stdin` is whole, or comes in pieces as they are wanted. `abandoned` gets the token of a call
    whose processes may have been left running, for `end_script` to find them by when the device can
    be reached again. `before_end` is as for `Transport.shell`. Behind it the rest of the stream is
    read, and ScriptTimeout is raised.
    """
    serial = link.serial
    token = call_mark(serial) + secrets.token_hex(6)
    output = _Output(max_output_bytes, on_stdout, on_stderr, collect=collect)
    words = doing or script
    call = _Call(token)
    begun = False
    asked = functools.partial(ask_for_processes, link)

    def end() -> Found:
        ending = asked(end_script(token, call.group))
        if not ending.ended:
            abandoned(token)
        return ending

    with contextlib.ExitStack() as cleanup:
        try:
            channel = link.open(ShellCall(script, deadline, words, token))
            cleanup.callback(channel.close)
            begun = True
            for kind, data in _mapped(call.output(channel, stdin), serial, words, output):
                output.take(kind, data)
                if output.full:
                    break
        except (DeviceLost, DeviceRefused):
            if begun:
                abandoned(token)
            raise
        except BaseException as error:
            # the deadline, Ctrl-C, or an error of the caller's in a sink
            late = begun and isinstance(error, DeviceTimeout)
            found, ending = Found(), Found()
            try:
                if before_end is not None and late:
                    found = asked(find_script(token))
                    if found.states:
                        with contextlib.suppress(InfraError):
                            before_end(Deadline(LOOK_GRACE_S))
            finally:
                ending = end()
            if not isinstance(error, DeviceTimeout):
                raise
            found = replace(found, ended=ending.ended) if found.states else ending
            late_bytes = 0
            if late and found.uptime_s is not None:
                late_bytes = _drain(call, channel, serial, words, output)
                if found.ended and not found.states and call.status is None:
                    # it may only just have begun: the next script looks again
                    abandoned(token)
            completed = _completed(call, output)
            ours = bool(found.states) and completed.signal == signals.SIGKILL
            ended_itself = call.status is not None and not output.full and not ours
            raise ScriptTimeout(
                f"not done within {deadline.seconds:g} s; {_end_in_words(found, ended_itself)}",
                serial=serial,
                command=words,
                output=output.so_far(),
                found=found,
                completed=completed if ended_itself else None,
                late_bytes=late_bytes,
                heard_out=call.status is not None,
            ) from error
        if output.full:
            end()
    return _completed(call, output)


def _drain(call: _Call, channel: Channel, serial: str, script: str, output: _Output) -> int:
    """Reads the rest of the stream of a call that was ended; returns its length in bytes."""
    count = 0
    channel.go_on(Deadline(DRAIN_GRACE_S))
    with contextlib.suppress(InfraError):
        for kind, data in _mapped(call.rest(channel), serial, script, output):
            count += len(data)
            output.take(kind, data)
            if output.full:
                break
    return count


def _completed(call: _Call, output: _Output) -> Completed:
    status = None if output.full else call.status
    code, signal = (None, None) if status is None else exit_status(status)
    return Completed(
        stdout=bytes(output.stdout),
        stderr=bytes(output.stderr),
        exit_code=code,
        signal=signal,
        truncated=output.full,
    )


def _end_in_words(found: Found, ended_itself: bool) -> str:
    if ended_itself:
        return "it had ended by itself, and its end was heard of too late"
    return "its processes were ended" if found.ended else "its processes may still run"


def _mapped(
    parts: Iterator[tuple[int, bytes]], serial: str, script: str, output: _Output
) -> Iterator[tuple[int, bytes]]:
    with device_faults(serial, script, output.so_far):
        yield from parts
