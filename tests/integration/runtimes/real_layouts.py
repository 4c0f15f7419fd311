"""QAIRT trees and folders, laid out as the real ones, of real files."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness.core.files import LocalFile
from harness.runtimes.runtime import Runtime

TOOLCHAINS = {"linux-x64": "x86_64-linux-clang", "linux-arm64": "aarch64-oe-linux-gcc11.2"}


def linked(file: LocalFile, folder: Path, name: str | None = None) -> None:
    """Puts a file into a folder without copying its bytes where that is possible."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / (name or file.path.name)
    try:
        os.link(file.path, target)
    except OSError:
        target.write_bytes(file.path.read_bytes())


def folder_of(path: Path, files: Iterable[LocalFile]) -> Path:
    for file in files:
        linked(file, path)
    return path


def qairt_tree(path: Path, *runtimes: Runtime) -> Path:
    """lib/<toolchain> and lib/hexagon-vXX/unsigned, as the QAIRT installer leaves them."""
    for runtime in runtimes:
        for file in runtime.files:
            name = file.path.name
            if "Skel" in name:
                arch = name.removeprefix("libQnnHtpV")[:2]
                linked(file, path / "lib" / f"hexagon-v{arch}" / "unsigned")
            else:
                linked(file, path / "lib" / TOOLCHAINS[runtime.target])
        version = runtime.qnn_version
    (path / "sdk.yaml").write_text(f"version: {version}\nname: qairt\n")
    return path
