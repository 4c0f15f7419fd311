"""Builds the stand-ins for backends, which exist for the tests only."""

from __future__ import annotations

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
    library = folder / "libQnnHtp.so"
    shared = [SOURCE_FOLDER / "tensors.c", SOURCE_FOLDER / "json.c"]
    sources = [_FOLDER / "htp_stand_in.c", *shared]
    _compile(["-fvisibility=hidden", f"-I{SOURCE_FOLDER}", *map(str, sources)], library)
    return library


def build_backend(folder: Path, compiler: str = "cc") -> Path:
    """A backend of its own, without any real one: it does what a context binary says."""
    library = folder / "libstand_in.so"
    source = _FOLDER.parent / "integration/probe/stand_in_backend.c"
    _compile([f"-I{SOURCE_FOLDER}", str(source)], library, compiler)
    return library


def build_ort(folder: Path, compiler: str = "cc") -> Path:
    """libonnxruntime.so that does what a model says."""
    library = folder / "libonnxruntime.so"
    source = _FOLDER.parent / "integration/probe/stand_in_ort.c"
    _compile([f"-I{SOURCE_FOLDER}", str(source)], library, compiler)
    return library


def _compile(arguments: list[str], library: Path, compiler: str = "cc") -> None:
    command = [compiler, *_FLAGS, *arguments, "-o", str(library), "-ldl", "-pthread"]
    subprocess.run(command, check=True, timeout=60)
