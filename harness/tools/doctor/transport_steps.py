"""Steps of an acceptance below the probe: shells, files there and back, the store."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Final

from harness.device.store.claims import own_claim
from harness.device.store.deploy import Deployer
from harness.device.transport.files import PushItem
from harness.device.transport.shell import ScriptTimeout
from harness.ground.errors import DeviceLost
from harness.ground.files.scratch import scratch_folder
from harness.tools.doctor.check import Answer
from harness.tools.doctor.ground import CountingDevice, Ground

_SHELL_S: Final = 20.0
_PUSH_S: Final = 120.0
_MB: Final = 1_000_000
_INPUT_BYTES: Final = 300_000
_PUSHED_BYTES: Final = 8 * _MB
_FILE_BYTES: Final = 3 * _MB
_FILES: Final = 3
_NAME: Final = "a file's name, \u00e4.bin"


def shells(ground: Ground) -> Answer:
    """Exit codes, a signal, input, output and its end, a deadline."""
    way = ground.device.transport
    wrong = []
    told = {f"exit {code}": (code, None) for code in (0, 1, 7, 126)}
    for script, ends in {**told, "sh -c 'kill -9 $$'": (None, 9)}.items():
        done = way.shell(script, timeout_s=_SHELL_S)
        if (done.exit_code, done.signal) != ends:
            wrong.append(f"`{script}`: exit code {done.exit_code}, signal {done.signal}")
    data = os.urandom(_INPUT_BYTES)
    if way.shell("cat", stdin=data, timeout_s=_SHELL_S).stdout != data:
        wrong.append(f"{len(data)} bytes of input did not come back as they were")
    said = way.shell("echo out; echo err >&2", timeout_s=_SHELL_S)
    if (said.stdout, said.stderr) != (b"out\n", b"err\n"):
        wrong.append(f"stdout {said.stdout[:40]!r}, stderr {said.stderr[:40]!r}")
    endless = "while :; do echo endless; done"
    if not way.shell(endless, timeout_s=_SHELL_S, max_output_bytes=1 << 16).truncated:
        wrong.append("endless output came to an end")
    try:
        way.shell("sleep 60", timeout_s=2.0)
        wrong.append("`sleep 60` ended within 2 s")
    except ScriptTimeout as late:
        if not late.found.ended:
            wrong.append("what ran past its deadline could not be ended")
    if wrong:
        return Answer(
            "fail", "; ".join(wrong), "its shell, or what leads to it, does what no other does"
        )
    tried = "exit codes, a signal, input, stdout and stderr apart, a deadline, endless output"
    return Answer("ok", tried)


def push(ground: Ground) -> Answer:
    """A file there and back."""
    way, content = ground.device.transport, os.urandom(_PUSHED_BYTES)
    remote = f"{ground.folder}/{_NAME}"
    began = time.monotonic()
    way.push([PushItem(content, remote)], timeout_s=_PUSH_S)
    there = time.monotonic()
    with scratch_folder() as folder:
        way.pull(remote, folder / "back", timeout_s=_PUSH_S, max_bytes=len(content))
        back = (folder / "back").read_bytes()
    if back != content:
        return Answer("fail", f"{len(content)} bytes came back as {len(back)} others", _CABLE)
    rates = (there - began, time.monotonic() - there)
    to, fro = (f"{len(content) / _MB / max(took, 0.001):.0f} MB/s" for took in rates)
    return Answer("ok", f"{len(content) // _MB} MB as they were, {to} there and {fro} back")


def resume(ground: Ground) -> Answer:
    """A push that is cut, and goes on where it ended."""
    workdir, claim = f"{ground.folder}/resume", own_claim()
    with scratch_folder() as folder:
        files = _files(folder, _FILES)
        total = sum(path.stat().st_size for path in files.values())
        cut = Deployer(CountingDevice(ground.device.transport, 1).way, workdir, claim=claim)
        try:
            cut.deploy_files("cut", files)
            return Answer("fail", "what was cut off arrived all the same")
        except DeviceLost:
            pass
        counting = CountingDevice(ground.device.transport)
        Deployer(counting.way, workdir, claim=claim).deploy_files("cut", files)
    left = counting.pushed_bytes
    if left >= total:
        return Answer("fail", f"after the cut all {total} bytes travelled again", _STORE)
    return Answer("ok", f"after the cut {left // _MB} of {total // _MB} MB travelled, not all")


def store(ground: Ground) -> Answer:
    """What was used longest ago goes, what is there does not travel again, damage is noticed."""
    way, workdir = ground.device.transport, f"{ground.folder}/store"
    cap, wrong = 2 * _FILE_BYTES - 1, []
    with scratch_folder() as folder:
        first, second = _files(folder, 2).items()
        before = Deployer(way, workdir, cap_bytes=cap)
        gone = before.deploy_files("first", dict([first]))
        before.release()
        kept = Deployer(way, workdir, cap_bytes=cap).deploy_files("second", dict([second]))
        if way.stat(f"{gone}/{first[0]}") is not None:
            wrong.append("what nobody uses did not make room")
        counting = CountingDevice(way)
        if Deployer(counting.way, workdir).deploy_files("second", dict([second])) != kept:
            wrong.append("what is there went to another folder")
        if counting.pushed_bytes:
            wrong.append(f"{counting.pushed_bytes} bytes that are there travelled again")
        file = shlex.quote(f"{kept}/{second[0]}")
        way.shell(f"chmod u+w {file}; echo damage >>{file}", timeout_s=_SHELL_S)
        mended = Deployer(way, workdir).deploy_files("second", dict([second]))
        found = way.stat(f"{mended}/{second[0]}")
        if found is None or found.size != second[1].stat().st_size:
            wrong.append("a file that was written to was taken for the one it had been")
    if wrong:
        return Answer("fail", "; ".join(wrong), _STORE)
    return Answer("ok", "room is made, nothing travels twice, damage is noticed and mended")


_CABLE: Final = "another cable or port; if that does not help, its flash"
_STORE: Final = "its shell or file system does what no other does"


def _files(folder: Path, number: int) -> dict[str, Path]:
    made = {f"{at}.bin": folder / f"{at}.bin" for at in range(number)}
    for path in made.values():
        path.write_bytes(os.urandom(_FILE_BYTES))
    return made
