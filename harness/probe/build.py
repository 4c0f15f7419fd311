"""The probe for a target: that of the package, or built once per source, flags and compiler.

A wheel has probes in `shipped` (`python -m harness.cli.build_probes` makes them), so that its users
need no compiler.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError
from harness.core.files import read_bounded
from harness.core.socs import PLATFORMS, TARGETS
from harness.core.verified_folder import make_file
from harness.dsp.emulator import find_zig
from harness.probe import bionic
from harness.probe.plan import SOURCE_FOLDER
from harness.runtimes.elf import ElfError, read_elf
from harness.simulator.board import HOST_COMPILERS, ZIG_TARGET, find_compiler, run_program

SHIPPED: Final = Path(__file__).with_name("shipped")
"""Folder of probes in the package, if it has any."""
_NAME: Final = "qnn-probe"
_MAX_BYTES: Final = 64 << 20
_IDENTITY: Final = re.compile(rb"qnn-probe protocol=\d{1,4} source=([0-9a-zA-Z]{1,64}) ")


def shipped_probe(target: str, *, source: str) -> Path | None:
    """Return the package's probe; None if it has none, or one of other sources."""
    path = SHIPPED / f"{_NAME}-{target}"
    match = _IDENTITY.search(_read(path)) if path.exists() else None
    return path if match is not None and match[1].decode() == source else None


def check_probe(path: Path, target: str) -> Path:
    """Return a program that was just built. Raises ConfigError unless it is for the target."""
    platform = PLATFORMS[target]
    try:
        facts = read_elf(_read(path))
    except ElfError as error:
        raise ConfigError(f"not a 64-bit program for {target}: {error}", file=path) from None
    if facts.bits != 64 or facts.machine != platform.machine:
        description = f"{facts.bits} bits, {facts.machine}"
        raise ConfigError(f"not a 64-bit program for {target}: it is for {description}", file=path)
    if facts.libc not in (None, platform.libc):
        raise ConfigError(
            f"it is linked with {facts.libc}, but {target} has {platform.libc}", file=path
        )
    return path


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read the probe: {error.strerror or error}", file=path) from error


PROBE_NAME: Final = "qnn-probe"
BUILD_TIMEOUT_S: Final = 120.0

_FLAGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE")
_RELEASE: Final = ("-O2", "-fPIE", "-pie")
_LIBRARIES: Final = ("-ldl", "-pthread")
_CXX_FLAGS: Final = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O2", "-fPIE")
# Headers that come with ExecuTorch's wheel, as its own CMake files include them.
_EXECUTORCH_HEADERS: Final = ("include", "include/executorch/runtime/core/portable_type/c10")
_EXECUTORCH_DEFINES: Final = ("-DC10_USING_CUSTOM_GENERATED_MACROS",)
# They register themselves when they are loaded; none of their functions is called by name.
_EXECUTORCH_LIBRARIES: Final = (
    "-Wl,--no-as-needed,-rpath,$ORIGIN",
    "-lexecutorch",
    "-lexecutorch_backend_qnn",
    "-lexecutorch_kernels_optimized",
)
_KEPT_ERROR_CHARS: Final = 4000


@dataclass(frozen=True)
class _Target:
    """Compilers for a target: the host's own, or the first of these that exists."""

    native_on: str
    variable: str
    cross_compilers: tuple[str, ...]
    package: str
    zig: str

    @property
    def chosen_by(self) -> str:
        return "CC" if self.native_on == os.uname().machine else self.variable


_ANDROID: Final = "android-arm64"
_TARGETS: Final[Mapping[str, _Target]] = {
    "linux-x64": _Target(
        "x86_64",
        "CC_LINUX_X64",
        ("x86_64-linux-gnu-gcc",),
        package="x86-64-linux-gnu",
        zig="x86_64-linux-gnu.2.28",
    ),
    "linux-arm64": _Target(
        "aarch64",
        "CC_LINUX_ARM64",
        ("aarch64-linux-gnu-gcc",),
        package="aarch64-linux-gnu",
        zig=ZIG_TARGET,
    ),
}


def built_by_zig(zig: str) -> dict[str, str]:
    """Return variables that make a builder use zig for all targets, with old C libraries.

    Such a probe has no debug information, and no path of this computer.
    """
    return {known.chosen_by: f"{zig} cc -target {known.zig} -s" for known in _TARGETS.values()}


CAME_ALONG: Final = "not needed: the probe came with the package"
"""Answer of `ProbeBuilder.origin` for a probe of the package."""


@dataclass(frozen=True)
class ProbeBuilder:
    """Builder of probes with a `cache`; safe to use from several processes at once.

    `environment` names compilers: CC for this host's own architecture; CC_LINUX_X64 and
    CC_LINUX_ARM64 for the others, which never fall back to the host's. For Android it is always the
    wheel `ziglang`.
    """

    cache: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def build(self, target: str = "linux-x64") -> Path:
        """Return the probe for a target, built if its sources, flags or compiler are new.

        Raises ConfigError if there is no compiler for the target, or it does not accept the
        sources. Raises InfraError if it hangs or the result cannot be stored.
        """
        sources = read_sources()
        digest = source_hash(sources)
        if target in TARGETS and (shipped := shipped_probe(target, source=digest)) is not None:
            return self._runnable(shipped, digest)
        compiler = self.compiler(target)
        flags = (*_FLAGS, *(bionic.FLAGS if target == _ANDROID else _RELEASE))
        linked_with = bionic.identity() if target == _ANDROID else ""
        identity = (*compiler, _identity(compiler), *flags, linked_with, digest)

        def compile_in(folder: Path) -> None:
            files = [str(folder / file) for file in sources if file.endswith(".c")]
            command = [*compiler, *flags, f'-DPROBE_SOURCE="{digest}"', f"-I{folder}", *files]
            if target == _ANDROID:
                _compile(command, folder / bionic.OBJECT)
                for output, arguments in bionic.links(folder, PROBE_NAME):
                    _compile([*compiler[: -len(bionic.CC)], *arguments], output)
            else:
                _compile(command, folder / PROBE_NAME, _LIBRARIES)

        return self._once(target, target, identity, sources, compile_in)

    def _runnable(self, shipped: Path, digest: str) -> Path:
        """Return an executable copy: unpacking a package loses such permissions."""
        file = self.cache / f"{shipped.name}-{digest[:24]}" / PROBE_NAME

        def compile_in(folder: Path) -> Path:
            copy = Path(shutil.copyfile(shipped, folder / PROBE_NAME))
            copy.chmod(0o755)
            return copy

        return make_file(file, compile_in, doing="copying the probe", timeout_s=BUILD_TIMEOUT_S)

    def build_with_executorch(self, executorch: Path, identity: str) -> Path:
        """Return the probe for linux-x64 with ExecuTorch, whose libraries belong beside it.

        `executorch` is the folder of that name in the unpacked wheel, `identity` identifies the
        wheel. Raises as `build`; ConfigError, too, if there is no C++ compiler.
        """
        target = "linux-x64"
        sources = read_sources() | read_sources("*.cpp")
        digest = source_hash(sources)
        cc, cxx = self.compiler(target), self.cxx_compiler()
        compilers = [part for command in (cc, cxx) for part in (*command, _identity(command))]
        whole = (*compilers, *_CXX_FLAGS, *_EXECUTORCH_LIBRARIES, identity, digest)
        headers = [f"-isystem{executorch / part}" for part in _EXECUTORCH_HEADERS]
        commands = {
            ".c": [*cc, *_FLAGS, *_RELEASE[:2], f'-DPROBE_SOURCE="{digest}"'],
            ".cpp": [*cxx, *_CXX_FLAGS, *_EXECUTORCH_DEFINES, *headers],
        }

        def compile_in(folder: Path) -> None:
            objects = []
            for file in filter(lambda file: Path(file).suffix in commands, sources):
                command = [*commands[Path(file).suffix], "-c", str(folder / file)]
                _compile(command, folder / f"{file}.o")
                objects.append(str(folder / f"{file}.o"))
            libraries = (f"-L{executorch / 'lib'}", *_EXECUTORCH_LIBRARIES, *_LIBRARIES)
            _compile([*cxx, "-pie", *objects], folder / PROBE_NAME, libraries)

        return self._once(f"executorch-{target}", target, whole, sources, compile_in)

    def cxx_compiler(self) -> tuple[str, ...]:
        """Return the command that compiles C++ for this host. Raises ConfigError."""
        if command := self._find("CXX", ("c++", "g++", "clang++")):
            return command
        raise ConfigError(
            "no C++ compiler found to build ExecuTorch's runner; install g++ or "
            "clang++ (apt install g++), or set CXX"
        )

    def _once(
        self,
        name: str,
        target: str,
        identity: Sequence[str],
        sources: Mapping[str, bytes],
        compile_in: Callable[[Path], None],
    ) -> Path:
        """Return the cached probe, else the one that `compile_in` makes in a folder of sources."""
        key = hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()
        file = self.cache / f"{name}-{key[:24]}" / PROBE_NAME

        def checked(folder: Path) -> Path:
            for source, content in sources.items():
                (folder / source).write_bytes(content)
            compile_in(folder)
            program = check_probe(folder / PROBE_NAME, target)
            program.chmod(0o755)
            return program

        return make_file(file, checked, doing="building the probe", timeout_s=BUILD_TIMEOUT_S)

    def origin(self, target: str) -> str:
        """Return the origin of a target's probe. Raises ConfigError saying what to install."""
        if shipped_probe(target, source=source_hash(read_sources())) is not None:
            return CAME_ALONG
        return " ".join(self.compiler(target))

    def compiler(self, target: str) -> tuple[str, ...]:
        """Return the command that compiles for a target, or raise ConfigError with advice."""
        if target == _ANDROID:
            if (zig := find_zig()) is None:
                raise ConfigError(f"no C compiler found for {target}; pip install ziglang")
            return (*zig, *bionic.CC)
        known = _TARGETS.get(target)
        if known is None:
            raise ConfigError(f"unknown target {target!r}", field="target", choices=TARGETS)
        variable = known.chosen_by
        native = variable == "CC"
        names = HOST_COMPILERS if native else known.cross_compilers
        if command := self._find(variable, names, zig_target=known.zig):
            return command
        if native:
            raise ConfigError("no C compiler found; install gcc or clang, or set CC")
        raise ConfigError(
            f"no C compiler found for {target}; set {variable} to a cross compiler (apt install "
            f"gcc-{known.package}, or zig)"
        )

    def _find(
        self, variable: str, names: Sequence[str], *, zig_target: str = ""
    ) -> tuple[str, ...] | None:
        command = find_compiler(self.environment, variable, names, zig_target=zig_target)
        if command is None and (named := self.environment.get(variable, "").split()):
            raise ConfigError(f"no such C compiler: {named[0]!r}", field=variable)
        return command


def read_sources(pattern: str = "*.[ch]") -> dict[str, bytes]:
    """Return the probe's source files by name. Raises ConfigError if the package has none."""
    files = sorted(SOURCE_FOLDER.glob(pattern))
    if not files:
        raise ConfigError("the probe's sources are missing", file=SOURCE_FOLDER)
    return {file.name: file.read_bytes() for file in files}


def source_hash(sources: Mapping[str, bytes]) -> str:
    """Return the hash that a probe reports of its sources (SHA-256 over names and contents)."""
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _identity(compiler: tuple[str, ...]) -> str:
    return _run([*compiler, "--version"]).stdout.partition("\n")[0]


def _compile(command: list[str], output: Path, libraries: Sequence[str] = ()) -> None:
    completed = _run([*command, "-o", str(output), *libraries])
    if completed.returncode != 0 or not output.is_file():
        output_text = completed.stderr.replace(str(output.parent), "native")[-_KEPT_ERROR_CHARS:]
        raise ConfigError(f"{command[0]} cannot compile the probe:\n{output_text}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run_program(command, timeout_s=BUILD_TIMEOUT_S)
    except OSError as error:
        raise ConfigError(f"cannot run the C compiler {command[0]}: {error}") from error
