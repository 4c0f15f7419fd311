"""Preflight: problems of libraries on a device, found before they run there.

Pure and offline: facts in, findings out, without guesses.

The libraries of a target's system are a table with its sources, unless the device listed its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harness.core.axes import RPC_LIBRARY, Backend
from harness.core.socs import DEVICE_PD_BYTES, PLATFORMS, SOCS, Soc, Target
from harness.core.versions import QnnVersion
from harness.runtimes.elf import ElfFacts
from harness.runtimes.findings import SEVERITIES, Finding, Severity, finding
from harness.runtimes.ort import EXECUTORCH_TAKES, EXECUTORCH_VERSION
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

    @property
    def libc(self) -> str:
        return PLATFORMS[self.target].libc


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
        return finding(
            "elf-damaged",
            (file.name,),
            f"{file.name} is no use: {file.problem}",
            "Fetch or copy it again",
        )
    elf, skel = file.elf, file.kind == "skel"
    machine = "hexagon" if skel else PLATFORMS[device.target].machine
    bits = 32 if skel else 64
    if (elf.machine, elf.bits) != (machine, bits):
        return finding(
            "wrong-machine",
            (file.name,),
            f"{file.name} is for {elf.machine} with {elf.bits} bits, and must be for {machine} "
            f"with {bits} bits on {device.target}",
            f"Take the file for {device.target}"
            + (" (in the SDK: lib/hexagon-vXX/unsigned)" if skel else ""),
        )
    if elf.libc is not None and elf.libc != device.libc:
        systems = {"bionic": "Android", "glibc": "Linux"}
        return finding(
            "wrong-libc",
            (file.name,),
            f"{file.name} was built for {systems[elf.libc]} ({elf.libc}), and {device.target} has "
            f"{device.libc}",
            f"Take the file for {device.target}",
        )
    return None


def _too_new(file: LibraryFacts, elf: ElfFacts, device: TargetFacts) -> Iterator[Finding]:
    glibc = _VERSION.match(device.glibc or "")
    if elf.min_glibc and glibc and elf.min_glibc > (int(glibc[1]), int(glibc[2])):
        needs = ".".join(str(number) for number in elf.min_glibc)
        yield finding(
            "glibc-too-old",
            (file.name,),
            f"{file.name} needs glibc {needs}, and the device has {device.glibc}: version "
            f"`GLIBC_{needs}' not found",
            "Take libraries for an older distribution (in the SDK: aarch64-oe-linux-gcc*), or "
            "update the device",
        )
    if elf.android_api and device.android_api and elf.android_api > device.android_api:
        yield finding(
            "android-api",
            (file.name,),
            f"{file.name} was built for Android API {elf.android_api}, and the device has "
            f"{device.android_api}: functions may be missing",
            "Update the device, or take libraries built for its API level",
        )
    pages, fits = device.page_bytes, elf.page_bytes
    # the DSP maps its own files, with its own page size
    if pages and fits and fits < pages and elf.machine != "hexagon":
        yield finding(
            "page-size",
            (file.name,),
            f"{file.name} is laid out for memory pages of {fits >> 10} KB at most, and the "
            f"device's have {pages >> 10}: the linker refuses it",
            "Take libraries linked with -z max-page-size=16384 or more (NDK r28 does so by "
            "itself), or boot the device with 4 KB pages (a developer option of Android 15)",
        )


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
        yield finding(
            "needed-missing",
            tuple(names),
            f"{needed} is needed by {', '.join(names)}; it is not among the files, and "
            + ("not on the device" if device.libraries is not None else "no part of the system"),
            _where_to_get(needed),
        )


def _where_to_get(needed: str) -> str:
    if needed == "libc++_shared.so":
        return "Add libc++_shared.so of the NDK"
    if re.match(r"lib(c\+\+|unwind)", needed):
        return (
            "Add the C++ runtime: the *.libs folder of the wheel the library comes from, or the "
            "distribution's package libc++1"
        )
    if needed == "libcdsprpc.so":
        return (
            "The device has no FastRPC library, without which no DSP is reached: look in "
            "/vendor/lib64, or install qualcomm/fastrpc"
        )
    return f"Add {needed}, or install the package of the device's system that has it"


PLUGIN_MIN_API: Final = 24
"""Least ORT API that the plug-ins of onnxruntime-qnn 2.3.0 to 2.7.0 ask for.

2.3.0 passes 24 to GetApi; the others compare with it. Their wheels require onnxruntime >= 1.24.2.
"""

SILENT_PLUGIN_MAX_API: Final = 27
"""Last ORT that accepts plug-ins which do not report what they support, such as 2.3.0's.

1.27 was released without the check (microsoft/onnxruntime#28960), 1.28 has it.
"""

_WITHOUT_FLOATS: Final = 68
_NOT_MINDED: Final = "the simulator does not mind, a device does"
_ONE_BUILD: Final = frozenset(
    {"backend-htp", "backend-gpu", "backend-cpu", "stub", "skel", "system", "prepare"}
)
_WITHOUT: Final[Mapping[tuple[str, str], str]] = {
    ("cpu", "linux-x64"): " (of the wheels of onnxruntime-qnn only that of "
    "QNN 2.47.0 has it: --qnn 2.47.0)"
}
"""Notes on backends that wheels for a target lack."""

_ONE_SDK = "Take all QNN libraries from one SDK, wheel or archive"


@dataclass(frozen=True)
class ContextFacts:
    """A context binary: the QNN version that compiled it, its HTP (73), and its needs.

    Sizes in bytes, by its metadata: `memory_bytes` is weights, I/O and spill-fill. `soc_model` is
    QNN's id of the SoC that it was compiled for, if one was chosen. `has_floats`: an input or
    output of a graph is of a floating-point type.
    """

    name: str
    compiler: str | None = None
    htp_arch: int | None = None
    vtcm_bytes: int | None = None
    memory_bytes: int | None = None
    soc_model: int | None = None
    has_floats: bool = False


@dataclass(frozen=True)
class PreflightInput:
    """Input of preflight: the files to be pushed, the device, the contexts.

    `qnn_version` is the version of the runtime as configured. `ort_version` is for an ORT that is
    not among the files; `executorch` is the version of the ExecuTorch that drives the backend, if
    one does. Files that neither the backend nor ORT needs are harmless here.
    """

    files: Sequence[LibraryFacts]
    device: TargetFacts
    backend: Backend = "htp"
    contexts: Sequence[ContextFacts] = ()
    qnn_version: str | None = None
    ort_version: str | None = None
    executorch: str | None = None

    def of_kind(self, kind: str) -> list[LibraryFacts]:
        """Return the files of one kind."""
        return [file for file in self.files if file.kind == kind]


def preflight(subject: PreflightInput) -> list[Finding]:
    """Return all findings, the worst first; none for a clean set."""
    findings = [
        *linking_findings(_loaded(subject), subject.device),
        *_sdk(subject),
        *_presence(subject),
        *_device(subject),
        *_contexts(subject),
        *_ort(subject),
        *_executorch(subject),
    ]
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.files))


def _loaded(subject: PreflightInput) -> list[LibraryFacts]:
    """Return the files without stubs and skels for another HTP, which are never opened."""
    arch = subject.device.arch
    return [
        file
        for file in subject.files
        if file.kind not in ("stub", "skel") or arch is None or file.htp_arch == arch
    ]


def _sdk(subject: PreflightInput) -> Iterator[Finding]:
    files = [file for file in subject.files if file.kind in _ONE_BUILD and file.elf is not None]
    for file in files:
        if file.build is None:
            yield finding(
                "sdk-unknown",
                (file.name,),
                f"{file.name} does not say of which SDK build it is, or names several",
                _ONE_SDK,
            )
    known = [(file, file.build) for file in files if file.build is not None]
    # The backend compares the other libraries with itself (1008).
    backend = (pair for pair in known if pair[0].kind == f"backend-{subject.backend}")
    reference_pair = next(backend, None) or next((pair for pair in known if pair[1].version), None)
    if reference_pair is None:
        return
    reference, its_build = reference_pair
    for file, build in known:
        if not build.agrees_with(its_build):
            severity, consequence = _of_another_build(file, subject.device.arch)
            yield finding(
                "sdk-mix",
                (file.name, reference.name),
                f"{file.name} is of {build}, {reference.name} of {its_build}: {consequence}",
                _ONE_SDK,
                severity=severity,
            )
    stated = QnnVersion.found_in(subject.qnn_version)
    actual = QnnVersion.found_in(its_build.version)
    if stated and actual and not (stated.matches(actual) or actual.matches(stated)):
        yield finding(
            "version-label",
            (reference.name,),
            f"the runtime is said to be QNN {stated}, and {reference.name} is of {its_build}",
            "Correct the version, or look where the file comes from",
        )


def _of_another_build(file: LibraryFacts, arch: int | None) -> tuple[Severity, str]:
    if file.kind in ("stub", "skel") and arch is not None and file.htp_arch != arch:
        return "info", f"it is for another HTP than the device's v{arch}, and stays here"
    # libQnnSystem.so only reads metadata, and another backend is not loaded.
    if file.kind == "system" or file.kind.startswith("backend"):
        return "warning", "builds are not tested together"
    return "error", "QNN refuses it with 1008 (Stub lib id mismatch), or fails later"


def _presence(subject: PreflightInput) -> Iterator[Finding]:
    backend = f"backend-{subject.backend}"
    for kind in (backend, "system", "prepare"):
        files = subject.of_kind(kind)
        # The x86-64 wheels bring the code for preparing twice, and nothing opens either.
        if len(files) > 1 and kind != "prepare":
            names = tuple(file.name for file in files)
            yield finding(
                "library-twice",
                names,
                f"{' and '.join(names)} are the same library twice; two copies of a backend in "
                "one process give 1009",
                "Keep one",
            )
    if not subject.of_kind(backend):
        yield finding(
            "backend-missing",
            (),
            f"libQnn{subject.backend.capitalize()}.so is not among the files"
            + _WITHOUT.get((subject.backend, subject.device.target), ""),
            "Add it, from the SDK that the other libraries are of",
        )
    if subject.backend == "htp" and not subject.of_kind("system"):
        yield finding(
            "system-missing",
            (),
            "libQnnSystem.so is not among the files: the metadata of contexts cannot be read",
            "Add it, from the SDK that the backend is of",
        )
    for file in subject.files:
        if file.content_arch is not None and file.content_arch != file.htp_arch:
            yield finding(
                "arch-label",
                (file.name,),
                f"{file.name} holds code for v{file.content_arch}: it was renamed",
                f"Take the real {file.file_name} of the same SDK",
            )


def _device(subject: PreflightInput) -> Iterator[Finding]:
    device = subject.device
    if subject.backend != "htp" or device.simulates_htp:
        return
    soc = device.known_soc
    if device.soc is not None and soc is None:
        yield finding(
            "soc-unknown",
            (),
            f"{device.soc} is not in the table of SoCs: an SDK older than the SoC fails with 4000 "
            "(No Snapdragon SOC detected)",
            "Take an SDK that names the SoC in its release notes",
        )
    if soc is not None and soc.htp_arch is None:
        yield finding(
            "no-htp", (), f"{soc.name} has a DSP without HTP", "Use the GPU or the CPU backend"
        )
        return
    arch = device.arch
    if soc is not None and soc.htp_arch != arch:
        yield finding(
            "soc-arch",
            (),
            f"the device is said to have HTP v{arch}, and {soc.name} has v{soc.htp_arch}",
            "Correct the description of the device",
        )
    if arch is None:
        return
    for kind, code, consequence in (
        ("stub", "stub-missing", "the HTP cannot be opened (4000, Failed to create transport)"),
        (
            "skel",
            "skel-missing",
            "the DSP finds none, or takes the one of the device's own firmware, which is of "
            "another SDK (0x80000406, 4000, 14001)",
        ),
    ):
        archs = sorted({file.htp_arch for file in subject.of_kind(kind) if file.htp_arch})
        if arch not in archs:
            others = ", ".join(f"v{number}" for number in archs) or "none at all"
            yield finding(
                code,
                tuple(file.name for file in subject.of_kind(kind)),
                f"the device's HTP is v{arch}, and the {kind}s are: {others}; {consequence}",
                f"Add libQnnHtpV{arch}{kind.capitalize()}.so, from the SDK that the backend is of",
            )


def _backend_version(subject: PreflightInput) -> QnnVersion | None:
    builds = [file.build for file in subject.of_kind(f"backend-{subject.backend}")]
    # The backend's own version is more reliable than the configured one.
    version = next((build.version for build in builds if build and build.version), None)
    return QnnVersion.found_in(version or subject.qnn_version)


def _contexts(subject: PreflightInput) -> Iterator[Finding]:
    runtime = _backend_version(subject)
    arch = subject.device.arch
    for context in subject.contexts:
        compiler = QnnVersion.found_in(context.compiler)
        if runtime and compiler and compiler.is_newer_than(runtime):
            yield finding(
                "context-newer",
                (context.name,),
                f"{context.name} was compiled by QNN {compiler}, and the runtime is {runtime}: it "
                "is refused with 5000 (Using newer context binary on old SDK)",
                f"Compile it with QNN {runtime} or older, or take a newer runtime",
            )
        if subject.backend == "htp" and not subject.device.simulates_htp:
            soc = subject.device.known_soc
            yield from _memory(context, soc)
            yield from _other_soc(context, soc)
            if subject.device.lacks_floats and context.has_floats:
                yield _needs_floats(context)
        built_for = context.htp_arch
        if subject.backend == "htp" and arch == _WITHOUT_FLOATS and context.has_floats:
            yield _no_floats(context, subject.device.simulates_htp)
        if subject.backend == "htp" and arch and built_for and arch != built_for:
            severity, effect = _other_arch(built_for, arch, subject.device.simulates_htp)
            yield finding(
                "context-arch",
                (context.name,),
                f"{context.name} is for HTP v{built_for}, and the device's is v{arch}: {effect}",
                f"Compile it for v{arch}",
                severity=severity,
            )


def _memory(context: ContextFacts, soc: Soc | None) -> Iterator[Finding]:
    """Yield findings on VTCM and memory. The simulator accepts any VTCM size."""
    vtcm_mb = soc.vtcm_mb if soc else None
    if soc and vtcm_mb and context.vtcm_bytes and context.vtcm_bytes > vtcm_mb << 20:
        yield finding(
            "context-vtcm",
            (context.name,),
            f"{context.name} is for {context.vtcm_bytes / (1 << 20):g} MiB of VTCM, and {soc.name} "
            f"has {vtcm_mb}: it is refused with 5005 (Request feature vtcm size unsupported)",
            f"Compile it for {soc.name}, or with vtcm_mb={vtcm_mb}",
        )
    if context.memory_bytes and context.memory_bytes > DEVICE_PD_BYTES:
        yield finding(
            "context-memory",
            (context.name,),
            f"{context.name} needs {context.memory_bytes} bytes at least (weights, I/O and "
            f"spill-fill), and a protection domain holds {DEVICE_PD_BYTES}: 1002",
            "Split the model into several contexts",
        )


def _no_floats(context: ContextFacts, simulator: bool) -> Finding:
    consequence = _NOT_MINDED if simulator else "it fails there"
    return finding(
        "context-floats",
        (context.name,),
        f"{context.name} has floating-point tensors, and HTP v{_WITHOUT_FLOATS} calculates with "
        f"integers only: {consequence}",
        "Quantise the model, its inputs and outputs too, or take a device with a newer HTP",
        severity="info" if simulator else None,
    )


def _needs_floats(context: ContextFacts) -> Finding:
    return finding(
        "emulator-floats",
        (context.name,),
        f"{context.name} has floating-point tensors, and the emulator of this simulated DSP has no "
        "vector instructions for them: what executes it is unsupported",
        "Build an emulator that has them (`qnn-harness simulator build-dsp`), or take a quantised "
        "model",
    )


def _other_soc(context: ContextFacts, soc: Soc | None) -> Iterator[Finding]:
    """Yield a finding for another SoC with the same HTP; another HTP is `context-arch`."""
    model = context.soc_model
    if soc is None or not model or model == soc.soc_model or context.htp_arch != soc.htp_arch:
        return
    names = [known.name for known in SOCS.values() if known.soc_model == model]
    yield finding(
        "context-soc",
        (context.name,),
        f"{context.name} was compiled for {' or '.join(names) or 'a SoC'} (soc_model {model}), and "
        f"the device is {soc.name} ({soc.soc_model}), whose HTP is the same: it is planned for "
        "the VTCM and the memory of the other one",
        f"Compile it for {soc.name} (soc_model {soc.soc_model})",
    )


def _other_arch(compiled_for: int, device: int, simulator: bool) -> tuple[Severity, str]:
    if simulator:
        other = f"--device sim-v{compiled_for} simulates one, where there is no devices.yaml"
        return "info", f"{_NOT_MINDED} ({other})"
    if compiled_for < device:
        return "warning", "it is refused with 5005, or runs slower than it could"
    return "error", "it is refused with 5005 (Request feature arch unsupported)"


def _ort(subject: PreflightInput) -> Iterator[Finding]:
    plugins = subject.of_kind("ort-plugin")
    cores = [file for file in subject.of_kind("ort") if file.ort_version]
    version_text = cores[0].ort_version if cores else subject.ort_version
    version = QnnVersion.found_in(version_text)
    core_names = tuple(file.name for file in cores[:1])
    for plugin in plugins if subject.of_kind("ort") or subject.ort_version else ():
        names = (plugin.name, *core_names)
        # ORT's API version is the second number of its version 1.x (onnxruntime_c_api.h).
        if version is None or len(version.parts) < 2 or version.parts[0] != 1:
            yield finding(
                "ort-unknown",
                names,
                f"{plugin.name} asks for ORT API {PLUGIN_MIN_API}, and ORT's version is not known",
                "Name the version of ORT",
            )
        elif version.parts[1] < PLUGIN_MIN_API:
            reaction = "says so" if plugin.negotiates else "crashes"
            yield finding(
                "ort-too-old",
                names,
                f"{plugin.name} asks for ORT API {PLUGIN_MIN_API}, and ORT {version} has "
                f"{version.parts[1]} at most: the plug-in {reaction} when it is loaded",
                f"Take ORT 1.{PLUGIN_MIN_API} or newer",
            )
        elif version.parts[1] > SILENT_PLUGIN_MAX_API and not plugin.negotiates:
            yield finding(
                "ort-too-new",
                names,
                f"{plugin.name} does not tell ORT what it supports, and ORT {version} refuses it "
                "(invalid ort_version_supported=0)",
                f"Take onnxruntime-qnn 2.4.0 or newer, or ORT up to 1.{SILENT_PLUGIN_MAX_API}",
            )


def _executorch(subject: PreflightInput) -> Iterator[Finding]:
    runtime = _backend_version(subject)
    if subject.executorch != EXECUTORCH_VERSION or subject.backend != "htp" or runtime is None:
        return
    if runtime not in EXECUTORCH_TAKES:
        yield finding(
            "executorch-device",
            tuple(file.name for file in subject.of_kind("backend-htp")[:1]),
            f"ExecuTorch {EXECUTORCH_VERSION} lays out the HTP's device configuration as the API "
            f"5.49 has it, which is that of QNN {EXECUTORCH_TAKES}, and the runtime is {runtime}: "
            "it is refused with 14001 (unknown custom config) when the device is made",
            "Take QNN 2.49.40, or the ExecuTorch that was built with this QNN",
        )
