"""Paths that every phone has and clients rely on: /data/local/tmp and /sdcard.

On the simulated device they are folders of its storage. For files that adb transfers,
`map_fixed_paths` translates names. For commands, which run on this computer, a boot enters a mount
namespace in which the folders lie there (`enter_namespace`), and passes it on to its commands. The
rest of the root stays as it is, so paths of the host keep their meaning. No root is needed where
user namespaces are allowed; the user stays who they are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Final

FIXED_PATHS: Final[Mapping[str, str]] = {"/data/local/tmp": "data/local/tmp", "/sdcard": "sdcard"}
"""Paths on the device, and the folders of the storage behind them."""

_CLONE_NEWNS: Final = 0x20000
_CLONE_NEWUSER: Final = 0x10000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
_MNT_DETACH: Final = 2


def map_fixed_paths(root: str) -> dict[str, str]:
    """Return the fixed paths with their folders in the storage `root` (real paths).

    Leaves out a path that is a link on this computer, or leads to the storage itself.
    """
    return {
        path: f"{root}/{folder}"
        for path, folder in FIXED_PATHS.items()
        if os.path.realpath(path) == path and not f"{root}/".startswith(f"{path}/")
    }


def enter_namespace(paths: Mapping[str, str], base: str) -> str | None:
    """Give this process and its children a root in which `paths` lead to their folders.

    `base` is an empty folder, empty again afterwards. Returns why that is impossible on this
    computer, None if it was done. The process must have no threads.
    """
    pid = os.fork()
    if pid == 0:  # tried in a child first, since half of it cannot be undone
        try:
            _enter(paths, base)
        except OSError as error:
            os._exit(error.errno or 1)
        except BaseException:
            os._exit(255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        return f"no mount namespace can be made here: {os.strerror(code)}"
    _enter(paths, base)
    return None


def _enter(paths: Mapping[str, str], base: str) -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", flags=_REC | _SLAVE)
    _mount("tmpfs", base, "tmpfs", _NOSUID | _NODEV)
    for name in ("old", "new"):
        os.mkdir(f"{base}/{name}")
    # the old root is moved away first: bound in its place, it would contain the new one
    _call("pivot_root", base.encode(), f"{base}/old".encode())
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _NOSUID | _NODEV, b"mode=755")
    _build("/old", "/new", {path.strip("/"): folder for path, folder in paths.items()})
    _mount("none", "/new", flags=_REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    os.chdir("/new")
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _build(old: str, new: str, paths: Mapping[str, str]) -> None:
    """Make `new` show the content of `old`, with folders in the place of some relative `paths`."""
    below: dict[str, dict[str, str]] = {}
    for path, folder in paths.items():
        name, _, rest = path.partition("/")
        below.setdefault(name, {})[rest] = folder
    for name in os.listdir(old) if os.path.isdir(old) else ():
        if name not in below:
            _show(f"{old}/{name}", f"{new}/{name}")
    for name, inner in below.items():
        os.mkdir(f"{new}/{name}")
        if "" in inner:
            _mount(f"/old{inner['']}", f"{new}/{name}", flags=_BIND | _REC)
        else:
            _build(f"{old}/{name}", f"{new}/{name}", inner)


def _show(old: str, new: str) -> None:
    if os.path.islink(old):
        os.symlink(os.readlink(old), new)
        return
    if os.path.isdir(old):
        os.mkdir(new)
    else:
        os.close(os.open(new, os.O_CREAT | os.O_CLOEXEC))
    _mount(old, new, flags=_BIND | _REC)


def _mount(source: str, target: str, kind: str = "none", flags: int = 0, data: bytes = b"") -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode())
    _call("mount", *arguments, ctypes.c_ulong(flags), data)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
