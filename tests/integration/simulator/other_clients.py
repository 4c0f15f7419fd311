"""Actions of other adb clients: each function is one action of one client.

All take the device as a `Target`, and raise what the client says where it is refused. They work
below /data/local/tmp, as such clients do.
"""

from __future__ import annotations

import filecmp
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import adbutils
import numpy as np
import pytest
from adb_shell.adb_device import AdbDeviceTcp
from adb_shell.auth.sign_pythonrsa import PythonRSASigner
from mobly.controllers.android_device_lib.adb import AdbError, AdbProxy
from ppadb.client import Client as PpadbClient
from ppadb.device import Device as PpadbDevice

from tests.integration.simulator.conftest import AdbClient, wait_for
from tests.integration.simulator.executorch_wheel import HTP, simple_adb_class

TEMP = "/data/local/tmp"
BLOB = os.urandom(1_000_000)
MANY = 2000
LARGE_BYTES = 100_000_000
COMMAND_S = 300.0
CLIENT_S = 20.0


class Refused(Exception):
    """The output of the adb command line when it failed, or where it cannot fail."""


@dataclass(frozen=True)
class Target:
    """A device on both servers. `folder` is the host's folder that its /data/local/tmp is."""

    serial: str
    folder: Path
    newest: AdbClient
    oldest: AdbClient | None
    scratch: Path

    def blob(self) -> Path:
        """A file of the host to push."""
        file = self.scratch / "blob"
        file.write_bytes(BLOB)
        return file


def call(adb: AdbClient, target: Target, *words: object, stdin: bytes = b"") -> bytes:
    """The output of an adb command. Raises Refused with all of it if it fails."""
    completed = subprocess.run(
        [adb.program, "-s", target.serial, *map(str, words)],
        env=adb.environment,
        input=stdin,
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
    )
    if completed.returncode != 0:
        raise Refused((completed.stdout + completed.stderr).decode())
    return completed.stdout


# --- the command line -----------------------------------------------------------------------------


def shell(adb: AdbClient, target: Target) -> None:
    assert call(adb, target, "shell", "tr a-z A-Z", stdin=b"abc") == b"ABC"
    with pytest.raises(Refused):
        call(adb, target, "shell", "exit 7")


def exec_in(adb: AdbClient, target: Target) -> None:
    # a real adbd hangs up on whatever the shell would do after that
    call(adb, target, "exec-in", f"cat >{TEMP}/whole", stdin=BLOB)
    whole = target.folder / "whole"
    wait_for("all has arrived", lambda: whole.exists() and whole.stat().st_size == len(BLOB))
    assert whole.read_bytes() == BLOB
    whole.unlink()


def exec_out(adb: AdbClient, target: Target) -> None:
    (target.folder / "blob").write_bytes(BLOB)
    assert call(adb, target, "exec-out", f"cat {TEMP}/blob") == BLOB


def many_files(adb: AdbClient, target: Target) -> None:
    here, back = target.scratch / f"many-{adb.port}", target.scratch / f"back-{adb.port}"
    for number in range(MANY):
        file = here / f"{number % 20}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(BLOB[number : number + number % 700])
    call(adb, target, "push", here, f"{TEMP}/many-{adb.port}")
    call(adb, target, "pull", f"{TEMP}/many-{adb.port}", back)
    sent, received = (
        {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}
        for top in (here, back)
    )
    assert received == sent
    assert len(sent) == MANY


def a_large_file(adb: AdbClient, target: Target) -> None:
    here, back = target.scratch / "large", target.scratch / "large-back"
    with here.open("wb") as file:
        for _ in range(LARGE_BYTES // len(BLOB)):
            file.write(BLOB)
    call(adb, target, "push", here, f"{TEMP}/large")
    call(adb, target, "pull", f"{TEMP}/large", back)
    assert back.stat().st_size == LARGE_BYTES
    assert filecmp.cmp(here, back, shallow=False)
    for path in (back, target.folder / "large"):
        path.unlink()


# --- adb-shell, which speaks to the device without an adb server ----------------------------------


def adb_shell(target: Target) -> None:
    host, _, port = target.serial.partition(":")
    key = target.newest.public_key
    signer = PythonRSASigner(key.read_text(), key.with_suffix("").read_text())
    device = AdbDeviceTcp(host, int(port), default_transport_timeout_s=CLIENT_S)
    device.connect(rsa_keys=[signer], auth_timeout_s=CLIENT_S)
    try:
        assert device.shell("echo out; echo err >&2") == "out\nerr\n"
        assert device.exec_out("printf 'a\\nb'") == "a\nb"
        assert "".join(device.streaming_shell("echo 1; echo 2")) == "1\n2\n"
        device.push(str(target.blob()), f"{TEMP}/of-adb-shell")
        assert device.stat(f"{TEMP}/of-adb-shell")[1] == len(BLOB)
        names = [bytes(entry.filename) for entry in device.list(TEMP)]
        assert b"of-adb-shell" in names
        back = target.scratch / "from-adb-shell"
        device.pull(f"{TEMP}/of-adb-shell", str(back))
        assert back.read_bytes() == BLOB
    finally:
        device.close()


# --- pure-python-adb ------------------------------------------------------------------------------


def _ppadb(target: Target) -> PpadbDevice:
    return PpadbClient("127.0.0.1", target.newest.port).device(target.serial)


def ppadb_files(target: Target) -> None:
    device = _ppadb(target)
    assert device.shell("echo hi") == "hi\n"
    assert (device.get_state(), device.get_serial_no()) == ("device", target.serial)
    folder = target.scratch / "of-ppadb"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(BLOB)
    device.push(str(folder), TEMP)
    back = target.scratch / "from-ppadb"
    device.pull(f"{TEMP}/of-ppadb/file", str(back))
    assert back.read_bytes() == BLOB


# --- adbutils -------------------------------------------------------------------------------------


def _adbutils(target: Target) -> adbutils.AdbDevice:
    client = adbutils.AdbClient("127.0.0.1", target.newest.port, socket_timeout=CLIENT_S)
    return client.device(target.serial)


def adbutils_shell(target: Target) -> None:
    device = _adbutils(target)
    assert device.shell("echo hi") == "hi"
    assert device.shell(["echo", "a b"]) == "a b"
    for v2 in (False, True):
        completed = device.shell2("echo out; (exit 3)", v2=v2)
        assert (completed.returncode, completed.output) == (3, "out\n")
    with device.shell("cat", stream=True) as stream:
        stream.conn.sendall(b"there\n")
        assert stream.read_string(5) == "there"
    assert device.get_state() == "device"
    assert device.get_serialno() == target.serial
    assert "shell_v2" in device.get_features()
    assert device.get_devpath() == "unknown"
    assert device.getprop("no.such") in ("", "/bin/sh: 1: getprop: not found")


def adbutils_files(target: Target) -> None:
    device, path = _adbutils(target), f"{TEMP}/of-adbutils"
    device.shell(f"rm -rf {path}")
    device.shell(f"mkdir {path}")
    assert device.sync.push(target.blob(), f"{path}/blob") == len(BLOB)
    device.sync.push(b"text", f"{path}/sub/text", mode=0o600)
    assert device.sync.stat(f"{path}/blob").size == len(BLOB)
    assert device.sync.exists(f"{path}/sub/text")
    assert not device.sync.exists(f"{path}/none")
    assert {entry.path for entry in device.sync.list(path)} >= {"blob", "sub"}
    assert device.sync.read_text(f"{path}/sub/text") == "text"
    assert b"".join(device.sync.iter_content(f"{path}/blob")) == BLOB
    back = target.scratch / "from-adbutils"
    device.sync.pull(f"{path}/blob", back)
    assert back.read_bytes() == BLOB
    folder = target.scratch / "folder-from-adbutils"
    device.sync.pull_dir(path, folder)
    assert (folder / "sub/text").read_text() == "text"
    device.remove(f"{path}/blob")
    device.rmtree(path)
    assert not device.sync.exists(path)


# --- mobly ----------------------------------------------------------------------------------------


def mobly(target: Target) -> None:
    proxy, path = AdbProxy(target.serial), f"{TEMP}/of-mobly"
    assert proxy.shell("echo hi") == b"hi\n"
    with pytest.raises(AdbError) as caught:
        proxy.shell("echo said >&2; exit 3")
    assert (caught.value.ret_code, caught.value.stderr) == (3, b"said\n")
    assert proxy.has_shell_command("ls")
    assert not proxy.has_shell_command("no-such-program")
    proxy.push([str(target.blob()), path])
    back = target.scratch / "from-mobly"
    proxy.pull([path, str(back)])
    assert back.read_bytes() == BLOB
    proxy.wait_for_device()


def mobly_getprop(target: Target) -> None:
    names = ["ro.product.model", "ro.build.version.sdk"]
    assert set(AdbProxy(target.serial).getprops(names)) == set(names)


# --- ExecuTorch's SimpleADB -----------------------------------------------------------------------

RUNNER = """#!/bin/sh
# Not ExecuTorch's runner: it copies its inputs to where that one would put outputs.
while [ $# -gt 1 ]; do
  case $1 in
    --model_path) model=$2 ;;
    --output_folder_path) out=$2 ;;
    --input_list_path) list=$2 ;;
    --etdump_path) echo dump >"$2" ;;
  esac
  shift
done
[ -s "$model" ] && [ -s libQnnHtp.so ] && [ "$LD_LIBRARY_PATH" = . ] || exit 9
n=0
while read -r input; do cat "$input" >"$out/output_${n}_0.raw"; n=$((n + 1)); done <"$list"
"""


def simple_adb(target: Target) -> None:
    """Its files and its runner are stand-ins; its steps and its scripts are its own."""
    build, sdk = target.scratch / "build", Path(os.environ["QNN_SDK_ROOT"])
    runner = build / "examples/qualcomm/executor_runner/qnn_executor_runner"
    runner.parent.mkdir(parents=True, exist_ok=True)
    runner.write_text(RUNNER)
    names = ("libQnnSystem.so", "libQnnHtp.so", "libQnnHtpV73Stub.so", "libQnnHtpPrepare.so")
    files = [sdk / "lib/aarch64-android" / name for name in names]
    files.append(sdk / "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so")
    files += [build / "backends/qualcomm/libqnn_executorch_backend.so", target.scratch / "m.pte"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("stand-in")
    config = SimpleNamespace(
        build_folder=str(build),
        direct_build_folder=None,
        pre_gen_pte=None,
        soc_model="SM8550",
        backend=HTP,
        target="aarch64-android",
        device=target.serial,
        host=None,
        skip_push=False,
        shared_buffer=False,
        dump_intermediate_outputs=False,
    )
    simple = simple_adb_class()(
        config, str(target.scratch / "m.pte"), f"{TEMP}/executorch", error_only=True
    )
    inputs = [(np.float32([1, 2]),), (np.float32([3, 4]),)]
    simple.push(inputs=inputs)
    simple.execute()
    output: list[str] = []
    simple.execute(
        custom_runner_cmd=f"cd {TEMP}/executorch && ls",
        output_callback=lambda completed: output.append(completed.stdout),
    )
    assert {"m.pte", "input_list.txt", "outputs", "etdump.etdp"} <= set(output[0].split())
    simple.pull(str(target.scratch))
    simple.pull_etdump(str(target.scratch / "etdump"))
    assert (target.scratch / "etdump").read_text() == "dump\n"
    outputs = [target.scratch / f"outputs/output_{n}_0.raw" for n in range(len(inputs))]
    for (values,), file in zip(inputs, outputs, strict=True):
        assert np.array_equal(np.fromfile(file, dtype=np.float32), values)
