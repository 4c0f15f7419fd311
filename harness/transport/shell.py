"""Run one script on a device: input, output, exit status, and a certain end at the deadline."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import secrets
import shlex
import signal as signals
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, DeviceRefused, DeviceTimeout, InfraError
from harness.transport.deadline_socket import Channel
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
from harness.transport.transport_errors import device_faults


@dataclass(frozen=True)
class ShellCall:
    """A script to be started; `command` names it in errors.

    With a `token`, all its processes carry that, and it prints its process group first
    (`shell_protocol.Banner`).
    """

    script: str
    deadline: Deadline
    command: str
    token: str | None = None


END_GRACE_S: Final = 2.0
"""Seconds beyond its deadline that a call may take to find its processes, and again to end them."""

MAX_OUTPUT_BYTES: Final = 8 << 20
_MAX_ABANDONED: Final = 64
_MAX_REPLY_BYTES: Final = 64 * 1024
_LOOKED: Final = re.compile(rb"^looked (\d{1,12}\.\d\d)\r?$", re.MULTILINE)
_FOUND: Final = re.compile(rb"^found (\d{1,10}) ([A-Za-z])\r?$", re.MULTILINE)
_ENDED: Final = re.compile(rb"^ended\r?$", re.MULTILINE)


@dataclass(frozen=True)
class RemoteProcesses:
    """The processes of a call on the device, before any of them was ended.

    `uptime_s` is the device's own clock (seconds since boot, sleep included) just before it looked
    for them; None if the device did not answer. `states` has the state letter of /proc by process
    id (R running, S sleeping, D in the kernel, T stopped), without processes that have ended.
    `ended`: certainly none is left.
    """

    uptime_s: float | None = None
    states: Mapping[int, str] = field(default_factory=dict)
    ended: bool = False


def find_script(token: str) -> str:
    """Return a script that prints the processes with the token of a call, and the device's clock.

    Runs in dash, mksh, bash and busybox. The token is searched in the environment of processes and
    in the command line of the shell that set it.
    """
    # the bracket keeps the pattern from matching the process that searches for it
    pattern = shlex.quote(f"{TOKEN_VARIABLE}=[{token[0]}]{token[1:]}")
    # what is inside execve shows neither environment nor command line, and is looked for again; a
    # kernel thread has no exe
    return (
        'g() { read -r s <"/proc/$1/stat" 2>/dev/null||s="x) x x 0";'
        "set -- ${s##*) };c=$1;r=$3;};"
        'e() { for p in $(grep -Ls "" /proc/[0-9]*/cmdline 2>/dev/null);do '
        "[ ! -e ${p%/*}/exe ]||return 0;done;return 1;};"
        f"k() {{ f=$(grep -ls {pattern} /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null);"
        '[ -z "$f" ];};'
        "l() { n=0;while k&&[ $n -lt 5 ];do e||n=4;n=$((n+1));sleep 0.05;done;};"
        "read -r u s </proc/uptime;l;"
        'for p in $f;do p=${p#/proc/};p=${p%/*};g $p;echo "found $p $c";done;echo "looked $u";'
    )


def end_script(token: str, group: int | None) -> str:
    """Return `find_script`, which then ends a call's group and other processes with its token.

    Pass `group` only right after the call: numbers are reused. Prints `ended` when none is left.
    `kill -9 -N` is the only syntax for a group that all shells accept. Each process's group is
    ended as well, unless it is the script's own: a daemon that makes no groups must not be hit.
    """
    kill_group = "" if group is None else f"kill -9 -{group} 2>/dev/null;"
    return (
        find_script(token) + f'{kill_group}g $$;own=$r;i=0;while [ -n "$f" ]&&[ $i -lt 15 ];do '
        "i=$((i+1));for p in $f;do p=${p#/proc/};p=${p%/*};g $p;"
        '[ "$r" -le 1 ]||[ "$r" = "$own" ]||kill -9 -$r 2>/dev/null;kill -9 $p 2>/dev/null;done;'
        'l;[ -z "$f" ]||sleep 0.1;done;[ -n "$f" ]||echo ended'
    )


def parse_processes(output: bytes) -> RemoteProcesses:
    """Parse the output of one of the scripts, as far as it arrived; ignore a cut line (pure)."""
    match = _LOOKED.search(output)
    if match is None:
        return RemoteProcesses()
    states = {int(pid): state.decode() for pid, state in _FOUND.findall(output, 0, match.start())}
    # a process that ended between being listed and being read has no state
    alive = {pid: state for pid, state in states.items() if state not in "xXZ"}
    return RemoteProcesses(float(match[1]), alive, _ENDED.search(output) is not None)


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
    """The exit status and the output of a script.

    Exactly one of `exit_code` and `signal` is set; a truncated run, which was ended because it
    wrote too much, has neither. A status of 129 to 192 counts as a signal (128 + n), be it that of
    the shell or of the last program it ran.
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
    """The deadline of a script passed, with the state of the script on the device.

    `processes` are those found before they were ended. `completed` is the result if the script had
    ended by itself: then only the link was late. `late_bytes` is how much of its output came after
    the deadline, `read_to_end` whether the output was read to its end once the processes were
    ended.
    """

    def __init__(
        self,
        problem: str,
        *,
        serial: str,
        command: str,
        output: bytes,
        processes: RemoteProcesses,
        completed: Completed | None,
        late_bytes: int,
        read_to_end: bool,
    ) -> None:
        super().__init__(problem, serial=serial, command=command, output=output)
        self.processes = processes
        self.completed = completed
        self.late_bytes = late_bytes
        self.read_to_end = read_to_end


class _Call:
    """The exchange with a device that speaks shell_v2, and its output so far, bounded."""

    def __init__(
        self, token: str, limit: int, on_stdout: Sink | None, on_stderr: Sink | None, *, whole: bool
    ) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.length = 0
        self.full = False
        self.status: int | None = None
        self._limit = limit
        self._whole = whole
        self._on = {STDOUT: on_stdout, STDERR: on_stderr}
        self._banner = Banner(token)
        self._reader = PacketReader()

    def read(self, parts: Iterator[tuple[int, bytes]], serial: str, command: str) -> None:
        """Collect output as it arrives, until there is too much of it."""
        for kind, data in self._mapped(parts, serial, command):
            room = self._limit - self.length
            self.full = len(data) > room
            if piece := data[:room]:
                self.length += len(piece)
                collected = self.stdout if kind == STDOUT else self.stderr
                collected.extend(piece)
                if not self._whole:
                    del collected[:-_END_BYTES]
                if (sink := self._on[kind]) is not None:
                    sink(piece)
            if self.full:
                return

    def _mapped(
        self, parts: Iterator[tuple[int, bytes]], serial: str, command: str
    ) -> Iterator[tuple[int, bytes]]:
        # errors of callbacks are none of the device's
        with device_faults(serial, command, self.so_far):
            yield from parts

    def so_far(self) -> bytes:
        return bytes(self.stdout + self.stderr)

    def completed(self) -> Completed:
        status = None if self.full else self.status
        code, signal = (None, None) if status is None else exit_status(status)
        return Completed(bytes(self.stdout), bytes(self.stderr), code, signal, self.full)

    @property
    def group(self) -> int | None:
        return self._banner.group

    def output(
        self, channel: Channel, stdin: bytes | Iterable[bytes]
    ) -> Iterator[tuple[int, bytes]]:
        """Feed stdin and yield (stream, data) until the exit status arrives."""
        chunks = _chunks([stdin] if isinstance(stdin, bytes) else stdin)
        has_input = True
        while True:
            while has_input and channel.queued_bytes < _QUEUED_BYTES:
                chunk = next(chunks, None)
                if chunk is None:
                    channel.queue(CLOSE_STDIN_PACKET)
                    has_input = False
                else:
                    channel.queue(header(STDIN, len(chunk)), chunk)
            yield from self._received(channel, room_below=_QUEUED_BYTES // 2 if has_input else 0)
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
        yield from self._split(received)

    def _split(self, received: bytes) -> Iterator[tuple[int, bytes]]:
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
    """Return the eight hex digits that begin the tokens of all calls from here to a device."""
    return hashlib.sha256(f"{socket.gethostname()}\0{serial}".encode()).hexdigest()[:8]


class RemoteShell(ABC):
    """The shell of a device, whose calls end for certain; `serial` names the device in errors."""

    def __init__(self, serial: str) -> None:
        self.serial = serial
        self._abandoned: deque[str] = deque(maxlen=_MAX_ABANDONED)

    @abstractmethod
    def open(self, call: ShellCall) -> Channel:
        """Start a script and return the channel to it, which the caller closes.

        Raises DeviceLost if the device cannot be reached, DeviceRefused if it denies access,
        DeviceTimeout at the deadline.
        """

    def shell(
        self,
        script: str,
        *,
        stdin: bytes | Iterable[bytes] = b"",
        timeout_s: float,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        before_end: Callable[[Deadline], None] | None = None,
        doing: str = "",
        collect: bool = True,
    ) -> Completed:
        """Run a POSIX shell script; wait for it and for every process that keeps its output open.

        `doing` names the purpose in errors, as in "read its facts".

        A non-zero exit code is no exception. `on_stdout` and `on_stderr` get the output as it
        arrives; it is collected as well, without `collect` only its end. When `max_output_bytes`
        (both streams together) is exceeded, the script is ended and the result is `truncated`. At
        the deadline, at Ctrl-C and when a callback raises, the script's process group is killed
        with SIGKILL, and so is everything that it started elsewhere. A connection that ends without
        an exit status raises DeviceLost.

        `before_end` is called when the deadline has passed, if the device reports within 2 s that
        processes are still there. It has a deadline of its own (8 s more); an InfraError from it is
        ignored.

        Past the deadline ScriptTimeout is raised, with the processes that the device reported, and
        the result if they had ended by themselves and only the link was late.

        Processes that could not be ended, because the link was gone, are ended before the next
        script.
        """
        serial, deadline = self.serial, Deadline(timeout_s)
        if self._abandoned:
            self.end_abandoned(timeout_s=deadline.at_most(END_GRACE_S).seconds)
        token = call_mark(serial) + secrets.token_hex(6)
        command = doing or script
        call = _Call(token, max_output_bytes, on_stdout, on_stderr, whole=collect)
        is_open = False

        def end() -> RemoteProcesses:
            ending = self._query_processes(end_script(token, call.group))
            if not ending.ended:
                self._abandoned.append(token)
            return ending

        with contextlib.ExitStack() as cleanup:
            try:
                channel = self.open(ShellCall(script, deadline, command, token))
                cleanup.callback(channel.close)
                is_open = True
                call.read(call.output(channel, stdin), serial, command)
            except (DeviceLost, DeviceRefused):
                if is_open:
                    self._abandoned.append(token)
                raise
            except BaseException as error:
                # the deadline, Ctrl-C, or an error in a callback
                late = is_open and isinstance(error, DeviceTimeout)
                processes, ending = RemoteProcesses(), RemoteProcesses()
                try:
                    if before_end is not None and late:
                        processes = self._query_processes(find_script(token))
                        if processes.states:
                            with contextlib.suppress(InfraError):
                                before_end(Deadline(LOOK_GRACE_S))
                finally:
                    ending = end()
                if not isinstance(error, DeviceTimeout):
                    raise
                processes = replace(processes, ended=ending.ended) if processes.states else ending
                length = call.length
                if late and processes.uptime_s is not None:
                    channel.stop_sending(Deadline(DRAIN_GRACE_S))
                    with contextlib.suppress(InfraError):
                        call.read(call.rest(channel), serial, command)
                    if processes.ended and not processes.states and call.status is None:
                        # it may have started only just now: the next script searches again
                        self._abandoned.append(token)
                completed = call.completed()
                killed_by_us = bool(processes.states) and completed.signal == signals.SIGKILL
                ended_itself = call.status is not None and not call.full and not killed_by_us
                fate = "its processes may still run"
                if ended_itself:
                    fate = "the command had ended, but its exit status arrived too late"
                elif processes.ended:
                    fate = "its processes were killed"
                raise ScriptTimeout(
                    f"not done within {deadline.seconds:g} s; {fate}",
                    serial=serial,
                    command=command,
                    output=call.so_far(),
                    processes=processes,
                    completed=completed if ended_itself else None,
                    late_bytes=call.length - length,
                    read_to_end=call.status is not None,
                ) from error
            if call.full:
                end()
        return call.completed()

    def end_abandoned(self, *, timeout_s: float) -> bool:
        """End the processes that earlier calls of this object left when their link was lost.

        Return whether certainly none is left. Only processes with a call's mark are touched.
        """
        deadline = Deadline(timeout_s)
        for token in tuple(self._abandoned):
            script = end_script(token, None)
            if self._query_processes(script, timeout_s=deadline.remaining()).ended:
                with contextlib.suppress(ValueError):  # another thread was quicker
                    self._abandoned.remove(token)
        return not self._abandoned

    def end_leftovers(self, *, timeout_s: float) -> bool:
        """End all processes that calls from this computer have left running on this device.

        Only for exclusive users of the device: calls of other processes are ended, too. Return
        whether certainly none is left. Never raises because of the device.
        """
        script = end_script(call_mark(self.serial), None)
        return self._query_processes(script, timeout_s=timeout_s).ended

    def _query_processes(self, script: str, *, timeout_s: float = END_GRACE_S) -> RemoteProcesses:
        """Run `find_script` or `end_script`; never raises because of the device."""
        output, command = bytearray(), "end the processes of a call"
        deadline = Deadline(timeout_s)
        with contextlib.suppress(InfraError), device_faults(self.serial, command):
            reader = PacketReader()
            with contextlib.closing(self.open(ShellCall(script, deadline, command))) as channel:
                while b"ended" not in output and len(output) < _MAX_REPLY_BYTES:
                    for kind, data in reader.feed(channel.receive()):
                        if kind == EXIT:
                            return parse_processes(bytes(output))
                        output += data
        return parse_processes(bytes(output))
