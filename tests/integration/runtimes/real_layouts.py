"""QAIRT trees, AARs, Maven repositories and folders, laid out as the real ones, of real files."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path

from harness.core.local_file import LocalFile
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
    """A plain folder with these files."""
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


def aar(path: Path, files: Iterable[LocalFile]) -> Path:
    """An AAR with the libraries in jni/arm64-v8a."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("AndroidManifest.xml", "<manifest package='qnn'/>")
        for file in files:
            archive.write(file.path, f"jni/arm64-v8a/{file.path.name}")
    return path


def maven_repository(path: Path, version: str, files: Iterable[LocalFile]) -> Path:
    """A repository with qnn-runtime in one version: list, POM, AAR and their checksums."""
    artifact = path / "com/qualcomm/qti/qnn-runtime"
    folder = artifact / version
    archive = aar(folder / f"qnn-runtime-{version}.aar", files)
    (folder / f"qnn-runtime-{version}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><groupId>com.qualcomm.qti</groupId>'
        f"<artifactId>qnn-runtime</artifactId><version>{version}</version></project>"
    )
    (artifact / "maven-metadata.xml").write_text(
        f"<metadata><versioning><versions><version>{version}</version></versions>"
        "</versioning></metadata>"
    )
    digest = hashlib.sha1(archive.read_bytes()).hexdigest()
    archive.with_name(f"{archive.name}.sha1").write_text(digest)
    return path
