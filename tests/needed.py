"""Tools that tests need. Missing ones are named, or fail where all are required."""

import os
import shutil
import subprocess

import pytest

from harness.core.errors import HarnessError
from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import HMX, VECTOR_FLOAT, find_qemu, why_no_loader

INSIST = "QNN_HARNESS_INSIST"
"""Set by .ci/run, which installs everything: there nothing may be left out."""

LEFT_OUT = "needs "
"""What the reason of every test begins with that is left out for this."""

ROOT = "root"
ANDROID = "QNN_HARNESS_ANDROID_ROOTS"
"""A folder with Android's files (tests/android/kit.sh); .ci/run sets it wherever there is a kit."""

FORMATS = "binfmt_misc for user namespaces (Linux 6.7)"
"""How a kernel runs programs of another CPU for us alone."""

HEXAGON = "qemu-hexagon with vector float and HMX (qnn-harness simulator build-dsp)"
"""An emulator of a DSP that executes all of a skel."""

DSP = "a DSP in this computer: a qemu-hexagon for v68 (see build-dsp) and ziglang"
"""What runs a skel."""

NOT_EVERYWHERE = frozenset({ANDROID, FORMATS})
"""What .ci/run cannot install: without it tests are left out, by name, there too."""

C_COMPILERS = ("cc", "gcc", "clang")


def need(*any_of: str) -> None:
    """Leaves a test out, or fails it, where none of these is here.

    Each is a program, a variable in capitals that holds a path, `root`, `FORMATS`, `DSP` or
    `HEXAGON`.
    """
    if any(map(_here, any_of)):
        return
    tool = " or ".join(any_of)
    if os.environ.get(INSIST) and not NOT_EVERYWHERE.issuperset(any_of):
        kind = "not set" if tool.isupper() else "missing"
        pytest.fail(f"{tool} is {kind} and every test is insisted on", pytrace=False)
    pytest.skip(f"{LEFT_OUT}{tool}")


def _here(tool: str) -> bool:
    if tool == ROOT:
        return os.getuid() == 0
    if tool == DSP:
        return has_dsp()
    if tool == FORMATS:
        mount = "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc"
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
        return subprocess.run(unshare, capture_output=True, check=False).returncode == 0
    if tool == HEXAGON:
        return (_abilities() or frozenset()) >= {VECTOR_FLOAT, HMX}
    return bool(os.environ.get(tool) if tool.isupper() else shutil.which(tool))


def has_dsp() -> bool:
    """Return whether this computer can simulate a DSP."""
    return _abilities() is not None and why_no_loader(cache_root() / BOARDS) is None


def _abilities() -> frozenset[str] | None:
    """Return the abilities of this computer's qemu-hexagon, None without one."""
    try:
        return find_qemu(cache_root() / BOARDS).can
    except HarnessError:
        return None
