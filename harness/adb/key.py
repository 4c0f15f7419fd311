"""The RSA key with which the harness's own adb server shows who it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from filelock import FileLock, Timeout

from harness.adb.binary import adb_binary
from harness.errors import InfraError

_KEYGEN_S = 30.0


def harness_key(folder: Path) -> Path:
    """The private key file under `folder`, made on first use; its public half is `<key>.pub`.

    The key lies at `<folder>/.android/adbkey`, where adb looks when `folder` is its HOME. Safe
    when several processes ask at once. Raises InfraError if it cannot be made.
    """
    home = folder / ".android"
    key, public = home / "adbkey", home / "adbkey.pub"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(home / "adbkey.lock", timeout=_KEYGEN_S):
            if not (_has_content(key) and _has_content(public)):
                _generate(home, key, public)
            key.chmod(0o600)
    except Timeout as error:
        raise InfraError(f"another process holds {home / 'adbkey.lock'}") from error
    except OSError as error:
        raise InfraError(f"cannot make the harness's adb key: {error}") from error
    return key


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _generate(home: Path, key: Path, public: Path) -> None:
    fresh = home / "adbkey.new"
    fresh_public = home / "adbkey.new.pub"
    command = [str(adb_binary()), "keygen", str(fresh)]
    # HOME keeps adb from making a key of the user's as well
    environment = {"HOME": str(home), "PATH": os.defpath, "LANG": "C"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_KEYGEN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InfraError(f"adb keygen took longer than {_KEYGEN_S:g} s") from error
    if done.returncode != 0 or not (_has_content(fresh) and _has_content(fresh_public)):
        said = done.stderr.decode("utf-8", "replace").strip()
        raise InfraError(f"adb keygen failed ({done.returncode}): {said[-500:]}")
    fresh.chmod(0o600)
    # the private half last: where it is, its public half is there too
    fresh_public.replace(public)
    fresh.replace(key)
