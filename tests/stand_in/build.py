"""Builds the stand-ins for backends, which exist for the tests only."""

import shutil
import subprocess
from pathlib import Path

from harness.probe.plan import SOURCE_FOLDER
from tests.needed import C_COMPILERS, need

_FOLDER = Path(__file__).parent
_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-D_GNU_SOURCE", "-shared", "-fPIC")


def c_compiler() -> str:
    need(*C_COMPILERS)
    return next(path for name in C_COMPILERS if (path := shutil.which(name)))


def build_htp(folder: Path) -> Path:
    """libQnnHtp.so: the real library with behaviours added; see htp_stand_in.c for which."""
    shared = [str(SOURCE_FOLDER / name) for name in ("tensors.c", "json.c")]
    return _compile(["htp_stand_in.c", "-fvisibility=hidden", *shared], folder / "libQnnHtp.so")


def build_backend(folder: Path, compiler: str = "cc") -> Path:
    """A backend of its own, without any real one: it does what a context binary says."""
    return _compile(["stand_in_backend.c"], folder / "libstand_in.so", compiler)


def build_ort(folder: Path, compiler: str = "cc") -> Path:
    """libonnxruntime.so that does what a model says."""
    return _compile(["stand_in_ort.c"], folder / "libonnxruntime.so", compiler)


def _compile(arguments: list[str], library: Path, compiler: str = "cc") -> Path:
    command = [compiler, *_FLAGS, f"-I{SOURCE_FOLDER}", *arguments, "-o", str(library)]
    subprocess.run([*command, "-ldl", "-pthread"], check=True, timeout=60, cwd=_FOLDER)
    return library
