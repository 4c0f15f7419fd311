"""Builds the probe for a target, once per source, flags and compiler, or takes a prebuilt one.

The layout is that of the NDK's own documentation ("Use the NDK with other build systems"):
toolchains/llvm/prebuilt/<host>/bin/aarch64-linux-android<API>-clang, one per API level.

`QNN_HARNESS_PROBES` names a folder with `<target>/qnn-probe` or `qnn-probe-<target>` in it. The
package from an index has such a folder, too (`python -m harness.cli.ship` makes it), so that
who installs it needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.core.errors import ConfigError
from harness.core.socs import PLATFORMS
from harness.core.verified_folder import made_file
from harness.core.whole_file import read_bounded
from harness.probe.plan import SOURCE_FOLDER
from harness.runtimes.elf import ElfError, ElfFacts, read_elf
from harness.simulator.board import ZIG_TARGET, first_program, run_program

VARIABLES: Final = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")
_CLANG: Final = "toolchains/llvm/prebuilt/*/bin/aarch64-linux-android*-clang"
_LEVEL: Final = re.compile(r"aarch64-linux-android(\d{1,3})-clang", re.ASCII)
_REVISION: Final = re.compile(r"^Pkg\.Revision\s*=\s*([\w.-]{1,40})", re.MULTILINE | re.ASCII)
_MAX_TEXT_BYTES: Final = 4096


@dataclass(frozen=True)
class Ndk:
    """An NDK: where it is, what named it, its version if known, its compilers by API level."""

    root: Path
    named_by: str
    revision: str | None
    compilers: Mapping[int, Path]

    def compiler(self, device_api: int | None) -> Path:
        """The compiler for a device of this API level; for any phone where that is not known.

        Raises ConfigError if the NDK has none that is old enough, or none at all.
        """
        if not self.compilers:
            why = "is no NDK: it has no toolchains/llvm/prebuilt/*/bin/aarch64-linux-android*-clang"
            raise ConfigError(f"{self.root} {why}", field=self.named_by)
        return self.compilers[fitting_level(self.compilers, device_api, field=self.named_by)]


def find_ndk(environment: Mapping[str, str], path: Path | None = None) -> Ndk | None:
    """The NDK at `path`, else the one that the environment names; None if nothing does."""
    if path is not None:
        return read_ndk(path, "ndk")
    for variable in VARIABLES:
        if root := environment.get(variable, "").strip():
            return read_ndk(Path(root), variable)
    return None


def read_ndk(root: Path, named_by: str) -> Ndk:
    """What is in a folder; a folder that is none has no compilers. Never raises."""
    compilers: dict[int, Path] = {}
    revision = None
    try:
        for path in sorted(root.glob(_CLANG)):
            if found := _LEVEL.fullmatch(path.name):
                compilers.setdefault(int(found[1]), path)
        text = read_bounded(root / "source.properties", _MAX_TEXT_BYTES)
        said = _REVISION.search(text.decode("utf-8", "replace"))
        revision = said[1] if said else None
    except OSError:
        pass
    return Ndk(root, named_by, revision, compilers)


def fitting_level(
    levels: Collection[int], device_api: int | None, *, field: str | None = None
) -> int:
    """The newest API level that a device still has; the oldest where that is not known (pure).

    A program for an older level runs on newer systems, not the other way round. Raises ConfigError.
    """
    if device_api is None:
        return min(levels)
    older = [level for level in levels if level <= device_api]
    if not older:
        raise ConfigError(
            f"the NDK compiles for API {min(levels)} and newer, and the device has {device_api}; "
            "an older NDK is needed",
            field=field,
        )
    return max(older)


FOLDER_VARIABLE: Final = "QNN_HARNESS_PROBES"
PROTOCOL: Final = 2
SHIPPED: Final = Path(__file__).with_name("shipped")
"""The probes that came with the package, if they did."""
_NAME: Final = "qnn-probe"
_MAX_BYTES: Final = 64 << 20
_IDENTITY: Final = re.compile(
    rb"qnn-probe protocol=(\d{1,4}) source=([0-9a-zA-Z]{1,64}) target=([a-z0-9-]{1,32})"
)


@dataclass(frozen=True)
class ProbeIdentity:
    """What `qnn-probe --version` prints, read from the file itself."""

    protocol: int
    source: str
    target: str


def find_prebuilt(environment: Mapping[str, str], target: str) -> Path | None:
    """The probe for a target in the folder that the environment names; None if there is none.

    Raises ConfigError if that is no folder.
    """
    named = environment.get(FOLDER_VARIABLE, "").strip()
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", field=FOLDER_VARIABLE)
    candidates = (folder / target / _NAME, folder / f"{_NAME}-{target}")
    return next((path for path in candidates if path.exists()), None)


def shipped_probe(target: str, *, source: str) -> Path | None:
    """The probe that came with the package; None if it did not, or is of other sources."""
    path = SHIPPED / f"{_NAME}-{target}"
    said = identity_of(_read(path)) if path.exists() else None
    return path if said is not None and said.source == source else None


def checked_prebuilt(path: Path, target: str, *, source: str, android_api: int | None) -> Path:
    """A probe built elsewhere, if it is the one that would be built here for this device.

    `source` is the hash of the sources as they are now. Raises ConfigError naming each mismatch.
    """
    data = _read(path)
    facts = _elf(path, data, target)
    problems = mismatches(facts, identity_of(data), target, source=source, android_api=android_api)
    if problems:
        raise ConfigError(f"this prebuilt probe does not fit: {'; '.join(problems)}", file=path)
    return path


def check_probe(path: Path, target: str) -> Path:
    """A program that was just built, if it is one for the target. Raises ConfigError if not."""
    if problem := libc_problem(_elf(path, _read(path), target), target):
        raise ConfigError(problem, file=path)
    return path


def identity_of(data: bytes) -> ProbeIdentity | None:
    """What a probe says of itself, None if it says nothing (pure)."""
    found = _IDENTITY.search(data)
    if found is None:
        return None
    return ProbeIdentity(int(found[1]), found[2].decode(), found[3].decode())


def mismatches(
    facts: ElfFacts,
    identity: ProbeIdentity | None,
    target: str,
    *,
    source: str,
    android_api: int | None,
) -> list[str]:
    """Everything that keeps a prebuilt probe from being used (pure)."""
    problems = []
    if problem := libc_problem(facts, target):
        problems.append(problem)
    built_for = facts.android_api
    if built_for is not None and android_api is not None and built_for > android_api:
        problems.append(f"it was built for Android API {built_for}, the device has {android_api}")
    if identity is None:
        problems.append(
            "it does not say what it was built from (older, or no probe): build it anew"
        )
        return problems
    if identity.target != target:
        problems.append(f"it says that it is for {identity.target}, not {target}")
    if identity.protocol != PROTOCOL:
        problems.append(f"it speaks protocol {identity.protocol}, this harness {PROTOCOL}")
    if identity.source != source:
        problems.append(
            f"it was built from the sources {identity.source[:16]}, the ones here are "
            f"{source[:16]}: build it anew"
        )
    return problems


def libc_problem(facts: ElfFacts, target: str) -> str | None:
    """Why a program's C library is not the target's; a static program needs none (pure)."""
    wanted = PLATFORMS[target].libc
    if facts.libc in (None, wanted):
        return None
    return f"it is linked with {facts.libc}, and {target} has {wanted}"


def _elf(path: Path, data: bytes, target: str) -> ElfFacts:
    wanted = PLATFORMS[target].machine
    try:
        facts = read_elf(data)
    except ElfError as error:
        raise ConfigError(f"not a 64-bit program for {target}: {error}", file=path) from None
    if facts.bits != 64 or facts.machine != wanted:
        said = f"{facts.bits} bits, {facts.machine}"
        raise ConfigError(f"not a 64-bit program for {target}: it is for {said}", file=path)
    return facts


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
# They register themselves when they are loaded; nothing of theirs is called by name.
_EXECUTORCH_LIBRARIES: Final = (
    "-Wl,--no-as-needed,-rpath,$ORIGIN",
    "-lexecutorch",
    "-lexecutorch_backend_qnn",
    "-lexecutorch_kernels_optimized",
)
_KEPT_ERROR_CHARS: Final = 4000


@dataclass(frozen=True)
class _Target:
    """Who compiles for a target: the host's own compiler, or the first found of these."""

    native_on: str | None
    variable: str
    cross_compilers: tuple[str, ...] = ()
    package: str = ""
    zig: str = ""
    flags: tuple[str, ...] = ()

    @property
    def chosen_by(self) -> str:
        return "CC" if self.native_on == os.uname().machine else self.variable


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
    # For phones with pages of 16 KB, which load no program laid out for 4 KB. Older NDKs do that.
    "android-arm64": _Target(None, "CC_ANDROID_ARM64", flags=("-Wl,-z,max-page-size=16384",)),
}


def built_by_zig(zig: str) -> dict[str, str]:
    """Variables for a builder that has zig build all targets it can, for old C libraries.

    Nothing for a debugger is in such a probe, and no path of this computer.
    """
    can = [known for known in _TARGETS.values() if known.zig]
    return {known.chosen_by: f"{zig} cc -target {known.zig} -s" for known in can}


CAME_ALONG: Final = "not needed: the probe came with the package"
"""What is said where no compiler is asked for a probe."""


@dataclass(frozen=True)
class ProbeBuilder:
    """Makes probes and keeps them in `cache`; safe to use from several processes at once.

    `environment` names compilers: CC for this host's own architecture; CC_LINUX_X64,
    CC_LINUX_ARM64 and CC_ANDROID_ARM64 for the others, which never fall back to the host's. For
    Android it is also found in the NDK: `ndk`, else ANDROID_NDK_HOME. QNN_HARNESS_PROBES names a
    folder with prebuilt probes, which are taken before any is built.
    """

    cache: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    ndk: Path | None = None

    def build(self, target: str = "linux-x64", *, android_api: int | None = None) -> Path:
        """The probe for a target, built if its sources, flags or compiler are new.

        `android_api` is the API level of the device, by which the NDK's compiler is chosen. Raises
        ConfigError if there is no compiler for the target, it does not accept the sources, or a
        prebuilt probe does not fit. Raises InfraError if it hangs or the result cannot be stored.
        """
        sources = read_sources()
        digest = source_hash(sources)
        if target in _TARGETS:
            found = find_prebuilt(self.environment, target)
            if found is not None:
                return checked_prebuilt(found, target, source=digest, android_api=android_api)
            shipped = shipped_probe(target, source=digest)
            if shipped is not None:
                return self._runnable(shipped, digest)
        compiler = self.compiler(target, android_api=android_api)
        flags = (*_FLAGS, *_RELEASE, *_TARGETS[target].flags)
        identity = (*compiler, _identity(compiler), *flags, digest)

        def make(folder: Path) -> None:
            files = [str(folder / file) for file in sources if file.endswith(".c")]
            command = [*compiler, *flags, f'-DPROBE_SOURCE="{digest}"', *files]
            _compiled(command, folder / PROBE_NAME, _LIBRARIES)

        return self._once(target, target, identity, sources, make)

    def _runnable(self, shipped: Path, digest: str) -> Path:
        """A copy that may be run: what unpacks a package keeps no such bits."""
        file = self.cache / f"{shipped.name}-{digest[:24]}" / PROBE_NAME

        def make(folder: Path) -> Path:
            copy = Path(shutil.copyfile(shipped, folder / PROBE_NAME))
            copy.chmod(0o755)
            return copy

        return made_file(file, make, what="copying the probe", timeout_s=BUILD_TIMEOUT_S)

    def build_with_executorch(self, executorch: Path, identity: str) -> Path:
        """The probe for linux-x64 with ExecuTorch in it; its libraries are to lie beside it.

        `executorch` is the folder of that name in the unpacked wheel, and `identity` says which
        wheel that is. Raises as `build`; ConfigError, too, if there is no C++ compiler.
        """
        target = "linux-x64"
        sources = read_sources() | read_sources("*.cpp")
        digest = source_hash(sources)
        cc, cxx = self.compiler(target), self.cxx_compiler()
        said = [part for one in (cc, cxx) for part in (*one, _identity(one))]
        whole = (*said, *_CXX_FLAGS, *_EXECUTORCH_LIBRARIES, identity, digest)
        headers = [f"-isystem{executorch / part}" for part in _EXECUTORCH_HEADERS]
        how = {
            ".c": [*cc, *_FLAGS, *_RELEASE[:2], f'-DPROBE_SOURCE="{digest}"'],
            ".cpp": [*cxx, *_CXX_FLAGS, *_EXECUTORCH_DEFINES, *headers],
        }

        def make(folder: Path) -> None:
            objects = []
            for file in filter(lambda file: Path(file).suffix in how, sources):
                _compiled([*how[Path(file).suffix], "-c", str(folder / file)], folder / f"{file}.o")
                objects.append(str(folder / f"{file}.o"))
            libraries = (f"-L{executorch / 'lib'}", *_EXECUTORCH_LIBRARIES, *_LIBRARIES)
            _compiled([*cxx, "-pie", *objects], folder / PROBE_NAME, libraries)

        return self._once(f"executorch-{target}", target, whole, sources, make)

    def cxx_compiler(self) -> tuple[str, ...]:
        """The command that compiles C++ for this host. Raises ConfigError if there is none."""
        if chosen := self.environment.get("CXX", "").strip():
            return self._chosen("CXX", chosen)
        if path := self._first("c++", "g++", "clang++"):
            return (path,)
        raise ConfigError(
            "no C++ compiler found, which ExecuTorch's runner is built with; install g++ or "
            "clang++ (apt install g++), or set CXX"
        )

    def _once(
        self,
        name: str,
        target: str,
        identity: Sequence[str],
        sources: Mapping[str, bytes],
        make: Callable[[Path], None],
    ) -> Path:
        """The probe that `make` makes in a folder with the sources, unless one like it is kept."""
        key = hashlib.sha256("\0".join(identity).encode("utf-8", "surrogateescape")).hexdigest()
        file = self.cache / f"{name}-{key[:24]}" / PROBE_NAME

        def checked(folder: Path) -> Path:
            for source, content in sources.items():
                (folder / source).write_bytes(content)
            make(folder)
            made = check_probe(folder / PROBE_NAME, target)
            made.chmod(0o755)
            return made

        return made_file(file, checked, what="building the probe", timeout_s=BUILD_TIMEOUT_S)

    def comes_from(self, target: str) -> str:
        """Where the probe for a target comes from: it is there already, or a compiler's command.

        Raises ConfigError saying what to install.
        """
        if (found := find_prebuilt(self.environment, target)) is not None:
            return str(found)
        if shipped_probe(target, source=source_hash(read_sources())) is not None:
            return CAME_ALONG
        return " ".join(self.compiler(target))

    def compiler(self, target: str, *, android_api: int | None = None) -> tuple[str, ...]:
        """The command that compiles for a target. Raises ConfigError saying what to install."""
        known = _TARGETS.get(target)
        if known is None:
            raise ConfigError(f"no target {target!r}", field="target", choices=_TARGETS)
        variable = known.chosen_by
        native = variable == "CC"
        if chosen := self.environment.get(variable, "").strip():
            return self._chosen(variable, chosen)
        candidates = ("cc", "gcc", "clang") if native else known.cross_compilers
        ndk = find_ndk(self.environment, self.ndk) if target.startswith("android") else None
        if ndk is not None:
            return (str(ndk.compiler(android_api)),)
        if path := self._first(*candidates):
            return (path,)
        if known.zig and (zig := self._first("zig")):
            return (zig, "cc", "-target", known.zig)
        if native:
            raise ConfigError("no C compiler found; install gcc or clang, or set CC")
        android = ", or ANDROID_NDK_HOME to an NDK" if target.startswith("android") else ""
        install = f" (apt install gcc-{known.package}, or zig)" if known.package else ""
        raise ConfigError(
            f"no C compiler found for {target}; set {variable} to a cross compiler{install}"
            f"{android}, or put a prebuilt probe into the folder that {FOLDER_VARIABLE} names"
        )

    def _chosen(self, variable: str, value: str) -> tuple[str, ...]:
        try:
            command, *arguments = shlex.split(value)
        except ValueError:
            raise ConfigError(f"not a command: {value!r}", field=variable) from None
        path = self._first(command)
        if path is None:
            raise ConfigError(f"no such C compiler: {command!r}", field=variable)
        return (path, *arguments)

    def _first(self, *programs: str) -> str | None:
        return first_program(programs, self.environment.get("PATH"))


def read_sources(pattern: str = "*.[ch]") -> dict[str, bytes]:
    """The probe's source files by name. Raises ConfigError if the package came without them."""
    files = sorted(SOURCE_FOLDER.glob(pattern))
    if not files:
        raise ConfigError("the probe's sources are missing", file=SOURCE_FOLDER)
    return {file.name: file.read_bytes() for file in files}


def source_hash(sources: Mapping[str, bytes]) -> str:
    """The hash that a probe reports about itself (SHA-256 over names and contents)."""
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _identity(compiler: tuple[str, ...]) -> str:
    return _run([*compiler, "--version"]).stdout.partition("\n")[0]


def _compiled(command: list[str], output: Path, libraries: Sequence[str] = ()) -> None:
    done = _run([*command, "-o", str(output), *libraries])
    if done.returncode != 0 or not output.is_file():
        said = done.stderr.replace(str(output.parent), "native")[-_KEPT_ERROR_CHARS:]
        raise ConfigError(f"{command[0]} does not compile the probe:\n{said}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return run_program(command, timeout_s=BUILD_TIMEOUT_S)
    except OSError as error:
        raise ConfigError(f"cannot run the C compiler {command[0]}: {error}") from error
