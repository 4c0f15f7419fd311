"""What a call left running on a device: found, told and ended, over a connection of its own."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.device.transport.faults import device_faults
from harness.device.transport.link import Link, ShellCall
from harness.device.transport.shell_protocol import EXIT, TOKEN_VARIABLE, PacketReader
from harness.ground.errors import InfraError
from harness.ground.host.deadline import Deadline

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
