"""Build of qemu-hexagon with our patch from Debian's source package, cached per patch.

It runs in a temporary folder, as an ordinary user. apt fetches the source, and
verifies the archive's signature; pip fetches meson, which QEMU needs newer than in Debian
12.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, InfraError
from harness.core.verified_folder import locked, work_folder
from harness.dsp import emulator
from harness.dsp.emulator import run_build

SERIES: Final = "10.0."
"""The prefix of the versions that the patch is for: those of Debian 13."""

_SUITE: Final = "trixie"
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PROGRAMS: Final = {
    "ninja": "ninja-build",
    "pkg-config": "pkg-config",
    "flex": "flex",
    "bison": "bison",
    "patch": "patch",
    "xz": "xz-utils",
}
_COMPILERS: Final = ("cc", "gcc", "clang")
_GLIB: Final = "glib-2.0 >= 2.66.0"
_OPTIONS: Final = (
    *("--target-list=hexagon-linux-user", "--without-default-features", "--disable-system"),
    *("--disable-tools", "--disable-docs", "--disable-download", "--disable-install-blobs"),
)
_ALL_S: Final = 3600.0
_MIRROR: Final = re.compile(r"'([^']+/debian)/+dists/[^']+'")

_log = logging.getLogger(__name__)

_Step = Callable[..., None]


def build_qemu(
    cache: Path, *, source: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Return the qemu-hexagon with our patch, built if it is missing.

    `source` is an archive of QEMU's source that the user has, else apt fetches it. Raises
    ConfigError naming all that is missing, or the step that failed; InfraError if something cannot
    be fetched or stored, or it takes longer than an hour. A build that ends early leaves nothing
    behind.
    """
    if not emulator.PATCH.is_dir():
        raise ConfigError("is missing; run this in a checkout of the project", file=emulator.PATCH)
    built = emulator.built_qemu(cache)
    if built.is_file():
        return built
    environment = {**environment, "LC_ALL": "C"}
    with (
        locked(built.with_suffix(".lock"), "building qemu-hexagon", timeout_s=_ALL_S),
        work_folder(built.parent) as work,
    ):
        if not built.is_file():
            deadline = Deadline(_ALL_S)

            def step(*command: str | Path, folder: Path = work, **more: object) -> None:
                run_build(
                    [str(word) for word in command],
                    folder=folder,
                    timeout_s=deadline.remaining(),
                    environment=environment,
                    **more,  # type: ignore[arg-type]
                )

            _check_tools(environment, step, fetched=source is None)
            archive = source or _fetch(work, step)
            _compile(work, archive.absolute(), step).replace(built)
    return built


def _check_tools(environment: Mapping[str, str], step: _Step, *, fetched: bool) -> None:
    path = environment.get("PATH")
    compilers = shlex.split(environment.get("CC", ""))[:1] or _COMPILERS
    lacking = {
        package: name for name, package in _PROGRAMS.items() if not shutil.which(name, path=path)
    }
    if not any(shutil.which(name, path=path) for name in compilers):
        lacking["gcc libc6-dev"] = "a C compiler"
    if find_spec("ensurepip") is None:
        lacking["python3-venv"] = "ensurepip"
    if "pkg-config" not in lacking:
        try:
            step("pkg-config", "--exists", _GLIB)
        except ConfigError:
            lacking["libglib2.0-dev"] = "the headers of GLib 2.66"
    if lacking:
        raise ConfigError(
            f"building qemu-hexagon needs {', '.join(lacking.values())} "
            f"(apt install {' '.join(lacking)})"
        )
    if fetched and not (shutil.which("apt-get", path=path) and _KEYRING.is_file()):
        raise ConfigError(
            "fetching QEMU's source needs apt-get and the keys of Debian (apt install "
            "debian-archive-keyring); without them, give QEMU "
            f"{SERIES}x as a .tar.xz with --source"
        )


def _fetch(folder: Path, step: _Step) -> Path:
    """Fetch QEMU's verified source from a mirror of Debian by apt. Raises InfraError."""
    mirror = _mirror(step)
    _log.info(f"fetching QEMU's source (40 MB) from {mirror}")
    (folder / "lists").write_text(f"deb-src [signed-by={_KEYRING}] {mirror} {_SUITE} main\n")
    (folder / "status").touch()
    for name in ("state/lists/partial", "cache/archives/partial", "source"):
        (folder / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": folder / "lists",
        "Dir::Etc::SourceParts": "-",
        "Dir::State": folder / "state",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",  # for root: nobody else can enter this folder
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]
    with _network_errors("QEMU's source"):
        step(*apt, "update")
        step(*apt, "source", "--download-only", "qemu", folder=folder / "source")
    archives = sorted((folder / "source").glob("qemu_*.orig.tar.xz"))
    if len(archives) != 1:
        raise InfraError(f"{mirror} does not have exactly one .orig.tar.xz of qemu")
    return archives[0]


def _mirror(step: _Step) -> str:
    """Return the mirror of Debian that apt uses here. Raises ConfigError if there is none."""
    lines: list[str] = []
    step("apt-get", "--print-uris", "update", on_line=lines.append)
    for line in lines:
        if match := _MIRROR.match(line):
            return match[1]
    raise ConfigError(
        f"apt on this computer has no Debian mirror; give QEMU {SERIES}x as a .tar.xz with --source"
    )


def _compile(folder: Path, archive: Path, step: _Step) -> Path:
    """Compile the program from the source; raises as `build_qemu`."""
    _log.info(f"unpacking {archive.name}")
    tree = folder / "tree"
    tree.mkdir()
    # firmware of other machines is two thirds of all files
    step("tar", "xf", archive, "--strip-components=1", "--exclude=*/roms/*", "-C", tree)
    version = _version(tree, archive)
    shutil.copytree(emulator.PATCH / "target", tree / "target", dirs_exist_ok=True)
    try:
        options = ("-p1", "--batch", "--forward", "--fuzz=1")
        step("patch", *options, "-i", emulator.PATCH / "glue.patch", folder=tree)
    except ConfigError as error:
        raise ConfigError(f"the patch does not apply to QEMU {version}: {error}") from error
    _bring_meson(tree, step)
    _log.info(f"configuring QEMU {version}")
    build = tree / "build"
    build.mkdir()
    step("../configure", f"--python={sys.executable}", *_OPTIONS, folder=build)
    _log.info(f"building qemu-hexagon {version} (some minutes)")
    step("ninja", "qemu-hexagon", folder=build)
    program = build / "qemu-hexagon"
    step("strip", program)
    can = emulator.probe_abilities(program, folder)[1]
    if can != {emulator.VECTOR_FLOAT, emulator.HMX}:
        known = ", ".join(sorted(can)) or "none"
        raise ConfigError(f"the built QEMU lacks instructions of the patch; it executes: {known}")
    return program


def _version(tree: Path, archive: Path) -> str:
    try:
        version = (tree / "VERSION").read_text(encoding="ascii").strip()[:30]
    except (OSError, ValueError):
        raise ConfigError("is not an archive of QEMU's source", file=archive) from None
    if not version.startswith(SERIES):
        raise ConfigError(f"is QEMU {version}, but the patch is for {SERIES}x", file=archive)
    return version


def _bring_meson(tree: Path, step: _Step) -> None:
    """Download the Python packages of QEMU's build into its folder for wheels."""
    wheels = tree / "python" / "wheels"
    if any(wheels.glob("meson*.whl")):
        return
    try:
        packages = tomllib.loads((tree / "pythondeps.toml").read_text())["meson"]
        pins = [f"{name}=={package['installed']}" for name, package in packages.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"QEMU's pythondeps.toml cannot be read: {error}") from error
    _log.info(f"fetching {', '.join(pins)}")
    pip = (sys.executable, "-m", "pip", "--quiet", "download", "--no-deps")
    with _network_errors("QEMU's build system"):
        step(*pip, "--only-binary=:all:", "-d", wheels, *pins)


@contextlib.contextmanager
def _network_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise InfraError(f"{name} cannot be fetched: {error}") from error
