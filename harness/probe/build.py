"""Builds the probe with the host's C compiler, once per source, flags and compiler."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.errors import ConfigError, InfraError

SOURCE_FOLDER: Final = Path(__file__).parent / "native"
PROBE_NAME: Final = "qnn-probe"
BUILD_TIMEOUT_S: Final = 120.0

_FLAGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE")
_RELEASE: Final = ("-O2", "-fPIE", "-pie")
_LIBRARIES: Final = ("-ldl", "-pthread")
_KEPT_ERROR_CHARS: Final = 4000


@dataclass(frozen=True)
class _Target:
    """A target's ELF machine, and who compiles for it on a host of another architecture.

    `cross_compilers` are command lines; the first whose program is there is taken.
    """

    elf_machine: int
    native_on: str | None
    variable: str
    cross_compilers: tuple[tuple[str, ...], ...] = ()
    hint: str = ""


_TARGETS: Final[Mapping[str, _Target]] = {
    "linux-x64": _Target(
        62,
        "x86_64",
        "CC_LINUX_X64",
        (("x86_64-linux-gnu-gcc",), ("zig", "cc", "-target", "x86_64-linux-gnu.2.31")),
        "install gcc-x86-64-linux-gnu or zig, or ",
    ),
    "linux-arm64": _Target(
        183,
        "aarch64",
        "CC_LINUX_ARM64",
        (("aarch64-linux-gnu-gcc",), ("zig", "cc", "-target", "aarch64-linux-gnu.2.31")),
        "install gcc-aarch64-linux-gnu or zig, or ",
    ),
    "android-arm64": _Target(183, None, "CC_ANDROID_ARM64"),
}
_NATIVE_COMPILERS: Final = (("cc",), ("gcc",), ("clang",))
_NDK_VARIABLES: Final = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")
_NDK_CLANG: Final = "toolchains/llvm/prebuilt/*/bin/aarch64-linux-android*-clang"


@dataclass(frozen=True)
class ProbeBuilder:
    """Makes probes and keeps them in `cache`; safe to use from several processes at once.

    `environment` names compilers: CC for this host's own architecture; CC_LINUX_X64,
    CC_LINUX_ARM64 and CC_ANDROID_ARM64 for the others, which never fall back to the host's (the
    last one is also found in ANDROID_NDK_HOME).
    """

    cache: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def build(self, target: str = "linux-x64", *, sanitize: str = "") -> Path:
        """The probe for a target, built if its sources, flags or compiler are new.

        `sanitize` is a list for the compiler's -fsanitize, such as "address,undefined". Raises
        ConfigError if there is no compiler for the target or it does not accept the sources,
        InfraError if the compiler hangs or the result cannot be stored.
        """
        compiler = self._compiler(target)
        sources = read_sources()
        flags = (*_FLAGS, *(_sanitizing(sanitize) if sanitize else _RELEASE))
        identity = (*compiler, _identity(compiler), *flags, source_hash(sources))
        key = hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()
        folder = self.cache / f"{target}-{key[:24]}"
        probe = folder / PROBE_NAME
        if probe.is_file():
            return probe
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "lock", timeout=BUILD_TIMEOUT_S):
                if not probe.is_file():
                    _compile(compiler, flags, sources, target, probe)
        except Timeout:
            raise InfraError(f"another process has been building the probe in {folder}") from None
        except OSError as error:
            raise InfraError(f"cannot store the probe in {folder}: {error}") from error
        return probe

    def _compiler(self, target: str) -> tuple[str, ...]:
        known = _TARGETS.get(target)
        if known is None:
            raise ConfigError(f"no target {target!r}", field="target", choices=_TARGETS)
        native = known.native_on == os.uname().machine
        variable = "CC" if native else known.variable
        if chosen := self.environment.get(variable, "").strip():
            return self._chosen(variable, chosen)
        candidates = _NATIVE_COMPILERS if native else known.cross_compilers
        for name, *arguments in (*candidates, *self._ndk_compilers(target)):
            if path := shutil.which(name, path=self.environment.get("PATH")):
                return (path, *arguments)
        if native:
            raise ConfigError("no C compiler found; install gcc or clang, or set CC")
        android = ", or ANDROID_NDK_HOME" if target.startswith("android") else ""
        raise ConfigError(
            f"no C compiler found for {target}; {known.hint}set {variable} to a cross "
            f"compiler{android}"
        )

    def _chosen(self, variable: str, value: str) -> tuple[str, ...]:
        try:
            command, *arguments = shlex.split(value)
        except ValueError:
            raise ConfigError(f"not a command: {value!r}", field=variable) from None
        path = shutil.which(command, path=self.environment.get("PATH"))
        if path is None:
            raise ConfigError(f"no such C compiler: {command!r}", field=variable)
        return (path, *arguments)

    def _ndk_compilers(self, target: str) -> Iterator[tuple[str, ...]]:
        """Of an NDK's compilers, one per Android version, the oldest: it runs on most phones."""
        if not target.startswith("android"):
            return
        for variable in _NDK_VARIABLES:
            if root := self.environment.get(variable):
                found = sorted(Path(root).glob(_NDK_CLANG), key=lambda path: (len(path.name), path))
                yield from ((str(path),) for path in found[:1])


def check_probe(path: Path, target: str) -> Path:
    """A probe built elsewhere, if it is a 64-bit program for the target.

    Raises ConfigError if it is not.
    """
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        raise ConfigError(f"cannot read the probe: {error}", file=path) from error
    machine = int.from_bytes(head[18:20], "little")
    if head[:5] != b"\x7fELF\x02" or machine != _TARGETS[target].elf_machine:
        raise ConfigError(f"not a 64-bit program for {target}", file=path)
    return path


def read_sources(folder: Path = SOURCE_FOLDER) -> dict[str, bytes]:
    """The probe's source files by name. Raises ConfigError if the package came without them."""
    files = sorted((*folder.glob("*.c"), *folder.glob("*.h")))
    if not files:
        raise ConfigError("the probe's sources are missing", file=folder)
    return {file.name: file.read_bytes() for file in files}


def source_hash(sources: Mapping[str, bytes]) -> str:
    """The hash that a probe reports about itself (SHA-256 over names and contents)."""
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _sanitizing(sanitize: str) -> tuple[str, ...]:
    return ("-O1", "-g", f"-fsanitize={sanitize}", f"-fno-sanitize-recover={sanitize}")


def _identity(compiler: tuple[str, ...]) -> str:
    done = _run([*compiler, "--version"])
    return done.stdout.partition("\n")[0]


def _compile(
    compiler: tuple[str, ...],
    flags: tuple[str, ...],
    sources: Mapping[str, bytes],
    target: str,
    probe: Path,
) -> None:
    with tempfile.TemporaryDirectory(dir=probe.parent, prefix="building-") as name:
        folder = Path(name)
        for file, content in sources.items():
            (folder / file).write_bytes(content)
        files = [str(folder / file) for file in sources if file.endswith(".c")]
        define = f'-DPROBE_SOURCE="{source_hash(sources)}"'
        output = folder / PROBE_NAME
        command = [*compiler, *flags, define, *files, "-o", str(output), *_LIBRARIES]
        done = _run(command)
        if done.returncode != 0 or not output.is_file():
            said = done.stderr.replace(str(folder), "native")[-_KEPT_ERROR_CHARS:]
            raise ConfigError(f"{' '.join(compiler)} does not compile the probe:\n{said}")
        check_probe(output, target)
        output.chmod(0o755)
        output.replace(probe)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=BUILD_TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise InfraError(f"{command[0]} took longer than {BUILD_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise ConfigError(f"cannot run the C compiler {command[0]}: {error}") from error
