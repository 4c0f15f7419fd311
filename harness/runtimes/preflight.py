"""Preflight: problems of libraries on a device, found before they run there.

Pure and offline: facts in, findings out, without guesses.

The libraries of a target's system are a table with its sources, unless the device listed its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from harness.core.matrix_axes import RPC_LIBRARY, Backend
from harness.core.socs import DEVICE_PD_BYTES, PLATFORMS, SOCS, Soc, Target
from harness.core.versions import QnnVersion
from harness.runtimes.elf import ElfFacts
from harness.runtimes.preflight_findings import SEVERITIES, Finding, Severity, finding
from harness.runtimes.runtime import LibraryFacts

# glibc's own libraries, and those of every distribution with a C++ program. libcdsprpc.so:
# qualcomm/fastrpc, part of the images of Qualcomm's boards.
_LINUX: Final = frozenset(
    (
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"),
        *("libresolv.so.2", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libatomic.so.1"),
    )
)

SYSTEM_LIBRARIES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "linux-x64": _LINUX | {"ld-linux-x86-64.so.2"},
        "linux-arm64": _LINUX | {"ld-linux-aarch64.so.1", RPC_LIBRARY, "libadsprpc.so"},
        # The NDK's list of native APIs, and the libraries that vendors of Snapdragon phones
        # publish in /vendor/etc/public.libraries.txt. libc++_shared.so comes with an app.
        "android-arm64": frozenset(
            (
                *("libc.so", "libm.so", "libdl.so", "liblog.so", "libandroid.so", "libz.so"),
                *("libEGL.so", "libGLESv2.so", "libGLESv3.so", "libvulkan.so", "libmediandk.so"),
                *("libnativewindow.so", "libjnigraphics.so", "libneuralnetworks.so", "libsync.so"),
                *("libaaudio.so", "libbinder_ndk.so", "libcamera2ndk.so", "libGLESv1_CM.so"),
                *("libOpenSLES.so", "libstdc++.so"),
                *("libcdsprpc.so", "libadsprpc.so", "libOpenCL.so"),
            )
        ),
    }
)
_DSP_LIBRARIES: Final = frozenset(
    ("libc++.so.1", "libc++abi.so.1", "libc.so", "libgcc.so", "libm.so", "libdl.so")
)
"""Libraries of the DSP's own file system (/usr/lib/rfsa, /dsp): the SDK ships none of them."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class TargetFacts:
    """Facts of a device; None if unknown.

    `soc` as in SM8550, `htp_arch` as in 73, `glibc` as in 2.35. `libraries` are the file names on
    its library path, without those that are pushed. `page_bytes` is the size of its memory pages.
    `lacks_floats`: its DSP is an emulator without vector instructions for floating point.
    """

    target: Target
    soc: str | None = None
    htp_arch: int | None = None
    glibc: str | None = None
    android_api: int | None = None
    libraries: frozenset[str] | None = None
    page_bytes: int | None = None
    lacks_floats: bool = False

    @property
    def known_soc(self) -> Soc | None:
        return SOCS.get((self.soc or "").upper())

    @property
    def arch(self) -> int | None:
        """Arch of the HTP, as reported or by its SoC."""
        if self.htp_arch is not None or self.known_soc is None:
            return self.htp_arch
        return self.known_soc.htp_arch

    @property
    def simulates_htp(self) -> bool:
        return self.target == "linux-x64"


def linking_findings(files: Sequence[LibraryFacts], device: TargetFacts) -> Iterator[Finding]:
    """Yield what the dynamic loader of the device, or of the DSP, will complain about."""
    fit: list[tuple[LibraryFacts, ElfFacts]] = []
    for file in files:
        wrong = _misfit(file, device)
        if wrong is not None:
            yield wrong
        elif file.elf is not None:
            fit.append((file, file.elf))
            yield from _too_new(file, file.elf, device)
    yield from _missing(fit, device)


def _misfit(file: LibraryFacts, device: TargetFacts) -> Finding | None:
    """Return the reason why a file cannot be loaded there at all, if any."""
    if file.elf is None:
        return finding("elf-damaged", file.name, problem=file.problem)
    elf, skel, target = file.elf, file.kind == "skel", device.target
    machine, bits = ("hexagon", 32) if skel else (PLATFORMS[target].machine, 64)
    if (elf.machine, elf.bits) != (machine, bits):
        expected = f"{machine} with {bits} bits"
        place = " (in the SDK: lib/hexagon-vXX/unsigned)" if skel else ""
        names = {"expected": expected, "place": place, "target": target}
        return finding("wrong-machine", file.name, severity=None, elf=elf, **names)
    target_libc = PLATFORMS[target].libc
    if elf.libc is not None and elf.libc != target_libc:
        system = {"bionic": "Android", "glibc": "Linux"}[elf.libc]
        names = {"system": system, "target": target, "target_libc": target_libc}
        return finding("wrong-libc", file.name, severity=None, elf=elf, **names)
    return None


def _too_new(file: LibraryFacts, elf: ElfFacts, device: TargetFacts) -> Iterator[Finding]:
    glibc = _VERSION.match(device.glibc or "")
    if elf.min_glibc and glibc and elf.min_glibc > (int(glibc[1]), int(glibc[2])):
        needs = ".".join(map(str, elf.min_glibc))
        yield finding("glibc-too-old", file.name, needs=needs, glibc=device.glibc)
    if elf.android_api and device.android_api and elf.android_api > device.android_api:
        yield finding("android-api", file.name, needs=elf.android_api, api=device.android_api)
    pages, fits = device.page_bytes, elf.page_bytes
    # the DSP maps its own files, with its own page size
    if pages and fits and fits < pages and elf.machine != "hexagon":
        yield finding("page-size", file.name, fits=fits >> 10, pages=pages >> 10)


def _missing(
    files: Sequence[tuple[LibraryFacts, ElfFacts]], device: TargetFacts
) -> Iterator[Finding]:
    system = device.libraries
    if system is None:
        system = SYSTEM_LIBRARIES[device.target]
    provided = {
        "cpu": system | {file.file_name for file, elf in files if elf.machine != "hexagon"},
        "dsp": _DSP_LIBRARIES | {file.file_name for file, elf in files if elf.machine == "hexagon"},
    }
    needing: dict[str, list[str]] = defaultdict(list)
    for file, elf in files:
        for needed in elf.needed:
            if needed not in provided["dsp" if elf.machine == "hexagon" else "cpu"]:
                needing[needed].append(file.name)
    for needed, names in sorted(needing.items()):
        lacking = "not part of the system" if device.libraries is None else "not on the device"
        source = f"Add {needed}, or install the package of the device's system that has it"
        if needed == "libc++_shared.so":
            source = f"Add {needed} of the NDK"
        elif needed == RPC_LIBRARY:
            source = "Install qualcomm/fastrpc: the DSP cannot be reached without this library"
        facts: dict[str, Any] = {"by": ", ".join(names), "lacking": lacking, "source": source}
        yield finding("needed-missing", *names, needed=needed, **facts)


PLUGIN_MIN_API: Final = 24
"""Least ORT API that the plug-ins of onnxruntime-qnn 2.3.0 to 2.7.0 ask for.

2.3.0 passes 24 to GetApi; the others compare with it. Their wheels require onnxruntime >= 1.24.2.
"""

SILENT_PLUGIN_MAX_API: Final = 27
"""Last ORT that accepts plug-ins which do not report what they support, such as 2.3.0's.

1.27 was released without the check (microsoft/onnxruntime#28960), 1.28 has it.
"""

_WITHOUT_FLOATS: Final = 68
_NOT_MINDED: Final = "the simulator accepts this, but a device does not"
_ONE_BUILD: Final = frozenset(
    {"backend-htp", "backend-gpu", "backend-cpu", "stub", "skel", "system", "prepare"}
)
_WITHOUT: Final[Mapping[tuple[str, str], str]] = {
    ("cpu", "linux-x64"): " (of the wheels of onnxruntime-qnn only that of "
    "QNN 2.47.0 has it: --qnn 2.47.0)"
}
"""Notes on backends that wheels for a target lack."""


@dataclass(frozen=True)
class ContextFacts:
    """A context binary: the QNN version that compiled it, its HTP (73), and its needs.

    Sizes in bytes, by its metadata: `memory_bytes` is weights, I/O and spill-fill. `soc_model` is
    QNN's id of the SoC that it was compiled for, if one was chosen. `has_floats`: an input or
    output of a graph is of a floating-point type. `memory_limit_mb` is that of the DSP, by the
    options of the compiler.
    """

    name: str
    compiler: str | None = None
    htp_arch: int | None = None
    vtcm_bytes: int | None = None
    memory_bytes: int | None = None
    soc_model: int | None = None
    has_floats: bool = False
    backend: Backend = "htp"
    memory_limit_mb: int | None = None


@dataclass(frozen=True)
class PreflightInput:
    """Input of preflight: the files to be pushed, the device, the contexts.

    `qnn_version` is the version of the runtime as configured. `ort_version` is for an ORT that is
    not among the files. Files that neither the backend nor ORT needs are harmless here.
    """

    files: Sequence[LibraryFacts]
    device: TargetFacts
    backend: Backend = "htp"
    contexts: Sequence[ContextFacts] = ()
    qnn_version: str | None = None
    ort_version: str | None = None

    @property
    def backend_version(self) -> QnnVersion | None:
        """The version of the backend itself, which is more reliable, else the configured one."""
        builds = [file.build for file in self.of_kind(f"backend-{self.backend}")]
        version = next((build.version for build in builds if build and build.version), None)
        return QnnVersion.found_in(version or self.qnn_version)

    def of_kind(self, kind: str) -> list[LibraryFacts]:
        return [file for file in self.files if file.kind == kind]


def preflight(subject: PreflightInput, more: Iterable[Finding] = ()) -> list[Finding]:
    """Return all findings and `more`, the worst first; none for a clean set."""
    arch = subject.device.arch
    # stubs and skels for another HTP are never opened
    loaded = [
        file
        for file in subject.files
        if file.kind not in ("stub", "skel") or arch is None or file.htp_arch == arch
    ]
    findings = [
        *linking_findings(loaded, subject.device),
        *_sdk(subject, loaded),
        *_presence(subject),
        *_device(subject),
        *_contexts(subject),
        *_ort(subject),
        *more,
    ]
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.files))


def _sdk(subject: PreflightInput, loaded: Sequence[LibraryFacts]) -> Iterator[Finding]:
    files = [file for file in loaded if file.kind in _ONE_BUILD]
    known = [(file, file.build) for file in files if file.build is not None]
    # The backend compares the other libraries with itself (1008).
    backend = (pair for pair in known if pair[0].kind == f"backend-{subject.backend}")
    reference_pair = next(backend, None) or next((pair for pair in known if pair[1].version), None)
    if reference_pair is None:
        return
    reference, its_build = reference_pair
    for file, build in known:
        if not build.agrees_with(its_build):
            severity: Severity = "error"
            consequence = "QNN refuses it with 1008 (Stub lib id mismatch), or fails later"
            if file.kind == "system" or file.kind.startswith("backend"):
                # libQnnSystem.so only reads metadata, and another backend is not loaded.
                severity, consequence = "warning", "builds are not tested together"
            yield finding(
                "sdk-mix",
                *(file.name, reference.name),
                severity=severity,
                build=build,
                reference=reference.name,
                reference_build=its_build,
                consequence=consequence,
            )
    stated = QnnVersion.found_in(subject.qnn_version)
    actual = QnnVersion.found_in(its_build.version)
    if stated and actual and not (stated.matches(actual) or actual.matches(stated)):
        yield finding("version-label", reference.name, stated=stated, build=its_build)


def _presence(subject: PreflightInput) -> Iterator[Finding]:
    backend = f"backend-{subject.backend}"
    for kind in (backend, "system"):
        files = subject.of_kind(kind)
        if len(files) > 1:
            names = [file.name for file in files]
            yield finding("library-twice", *names, files=" and ".join(names))
    if not subject.of_kind(backend):
        note = _WITHOUT.get((subject.backend, subject.device.target), "")
        library = f"libQnn{subject.backend.capitalize()}.so"
        yield finding("backend-missing", library=library, note=note)
    if subject.backend == "htp" and not subject.of_kind("system"):
        yield finding("system-missing")


def _device(subject: PreflightInput) -> Iterator[Finding]:
    device = subject.device
    if subject.backend != "htp" or device.simulates_htp:
        return
    soc = device.known_soc
    if device.soc is not None and soc is None:
        yield finding("soc-unknown", soc=device.soc)
    if soc is not None and soc.htp_arch is None:
        yield finding("no-htp", soc=soc.name)
        return
    arch = device.arch
    if soc is not None and soc.htp_arch != arch:
        yield finding("soc-arch", arch=arch, soc=soc.name, soc_arch=soc.htp_arch)
    if arch is None:
        return
    for kind in ("stub", "skel"):
        files = subject.of_kind(kind)
        archs = sorted({file.htp_arch for file in files if file.htp_arch})
        if arch not in archs:
            others = ", ".join(f"v{number}" for number in archs) or "none"
            names = [file.name for file in files]
            yield finding(f"{kind}-missing", *names, arch=arch, others=others)


def _contexts(subject: PreflightInput) -> Iterator[Finding]:
    runtime = subject.backend_version
    for context in subject.contexts:
        compiler = QnnVersion.found_in(context.compiler)
        if runtime and compiler and compiler.is_newer_than(runtime):
            yield finding("context-newer", context.name, compiler=compiler, runtime=runtime)
        if subject.backend == "htp":
            yield from _on_htp(context, subject.device)


def _on_htp(context: ContextFacts, device: TargetFacts) -> Iterator[Finding]:
    simulated, arch, built_for = device.simulates_htp, device.arch, context.htp_arch
    if not simulated:  # the simulator accepts any size
        yield from _on_soc(context, device.known_soc)
        if device.lacks_floats and context.has_floats:
            yield finding("emulator-floats", context.name)
    if arch == _WITHOUT_FLOATS and context.has_floats:
        consequence = _NOT_MINDED if simulated else "it fails there"
        severity: Severity | None = "info" if simulated else None
        facts: dict[str, Any] = {"arch": arch, "consequence": consequence}
        yield finding("context-floats", context.name, severity=severity, **facts)
    if arch and built_for and arch != built_for:
        severity = "warning" if built_for < arch else "error"
        effect = "it is refused with 5005 (Request feature arch unsupported)"
        if built_for < arch:
            effect = "it is refused with 5005, or runs slower than it could"
        if simulated:
            severity, effect = "info", _NOT_MINDED
        facts = {"built_for": built_for, "arch": arch, "effect": effect}
        yield finding("context-arch", context.name, severity=severity, **facts)


def _on_soc(context: ContextFacts, soc: Soc | None) -> Iterator[Finding]:
    vtcm_mb = soc.vtcm_mb if soc else None
    if soc and vtcm_mb and context.vtcm_bytes and context.vtcm_bytes > vtcm_mb << 20:
        vtcm = context.vtcm_bytes / (1 << 20)
        yield finding("context-vtcm", context.name, vtcm=vtcm, soc=soc.name, soc_vtcm=vtcm_mb)
    if (needs := context.memory_bytes) and needs > DEVICE_PD_BYTES:
        yield finding("context-memory", context.name, needs=needs, holds=DEVICE_PD_BYTES)
    model = context.soc_model
    # another HTP is `context-arch`
    if soc and model and model != soc.soc_model and context.htp_arch == soc.htp_arch:
        known = [known.name for known in SOCS.values() if known.soc_model == model]
        facts: dict[str, Any] = {"soc": soc.name, "soc_model": soc.soc_model, "model": model}
        compiled_for = " or ".join(known) or "a SoC"
        yield finding("context-soc", context.name, compiled_for=compiled_for, **facts)


def _ort(subject: PreflightInput) -> Iterator[Finding]:
    plugins = subject.of_kind("ort-plugin")
    cores = [file for file in subject.of_kind("ort") if file.ort_version]
    version = QnnVersion.found_in(cores[0].ort_version if cores else subject.ort_version)
    for plugin in plugins if subject.of_kind("ort") or subject.ort_version else ():
        names = (plugin.name, *(file.name for file in cores[:1]))
        # ORT's API version is the second number of its version 1.x (onnxruntime_c_api.h).
        if version is None or len(version.parts) < 2 or version.parts[0] != 1:
            yield finding("ort-unknown", *names, least=PLUGIN_MIN_API)
        elif version.parts[1] < PLUGIN_MIN_API:
            facts: dict[str, Any] = {
                "version": version,
                "api": version.parts[1],
                "least": PLUGIN_MIN_API,
            }
            reaction = "says so" if plugin.negotiates else "crashes"
            yield finding("ort-too-old", *names, reaction=reaction, **facts)
        elif version.parts[1] > SILENT_PLUGIN_MAX_API and not plugin.negotiates:
            yield finding("ort-too-new", *names, version=version, most=SILENT_PLUGIN_MAX_API)
