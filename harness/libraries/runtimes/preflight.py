"""Preflight: what will go wrong with these libraries on this device, told before it is tried.

Pure and offline. Facts in, findings out; what is not known is not guessed at. The part about
processors, C libraries and needed libraries is in `preflight_linking.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.ground.facts.backends import Backend
from harness.ground.facts.socs import DEVICE_PD_BYTES, SOCS, Soc
from harness.ground.facts.versions import QnnVersion
from harness.libraries.runtimes.executorch import EXECUTORCH_TAKES, EXECUTORCH_VERSION
from harness.libraries.runtimes.findings import SEVERITIES, Finding, Severity, finding
from harness.libraries.runtimes.library_facts import LibraryFacts
from harness.libraries.runtimes.preflight_linking import TargetFacts, linking_findings

PLUGIN_MIN_API: Final = 24
"""The ORT API that the plug-ins of onnxruntime-qnn 2.3.0 to 2.7.0 ask for at least.

2.3.0 passes 24 to GetApi; the others compare with it. Their wheels require onnxruntime >= 1.24.2.
"""

SILENT_PLUGIN_MAX_API: Final = 27
"""The last ORT that takes plug-ins which do not say what they support, such as 2.3.0's.

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
"""What is known of a backend that wheels for a target lack."""

_ONE_SDK = "Take all QNN libraries from one SDK, wheel or archive"


@dataclass(frozen=True)
class ContextFacts:
    """A context binary: the QNN version that compiled it, the HTP it is for (73), what it needs.

    Sizes in bytes, by its metadata: `memory_bytes` is weights, I/O and spill-fill. `soc_model` is
    the SoC that it was compiled for, by QNN's id; None where nobody chose one. `has_floats`: an
    input or output of a graph is of a floating-point type.
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
    """What is looked at: the files that would be pushed, the device, the contexts.

    `qnn_version` is what the runtime is said to be. `ort_version` is for an ORT that is not among
    the files; `executorch` is the version of the ExecuTorch that drives the backend, if one does.
    A file that is neither needed by the backend nor by ORT does no harm here.
    """

    files: Sequence[LibraryFacts]
    device: TargetFacts
    backend: Backend = "htp"
    contexts: Sequence[ContextFacts] = ()
    qnn_version: str | None = None
    ort_version: str | None = None
    executorch: str | None = None

    def of_kind(self, kind: str) -> list[LibraryFacts]:
        """The files of one kind."""
        return [file for file in self.files if file.kind == kind]


def preflight(subject: PreflightInput) -> list[Finding]:
    """Everything that is wrong or doubtful, the worst first; nothing for a clean set."""
    found = [
        *linking_findings(_loaded(subject), subject.device),
        *_sdk(subject),
        *_presence(subject),
        *_device(subject),
        *_contexts(subject),
        *_ort(subject),
        *_executorch(subject),
    ]
    return sorted(found, key=lambda item: (SEVERITIES.index(item.severity), item.code, item.files))


def _loaded(subject: PreflightInput) -> list[LibraryFacts]:
    """The files without stubs and skels for another HTP than the device's, which nobody opens."""
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
    # The backend decides what fits: it compares the others with itself (1008).
    backend = (one for one in known if one[0].kind == f"backend-{subject.backend}")
    found = next(backend, None) or next((one for one in known if one[1].version), None)
    if found is None:
        return
    reference, its_build = found
    for file, build in known:
        if not build.agrees_with(its_build):
            severity, comes = _of_another_build(file, subject.device.arch)
            yield finding(
                "sdk-mix",
                (file.name, reference.name),
                f"{file.name} is of {build}, {reference.name} of {its_build}: {comes}",
                _ONE_SDK,
                severity=severity,
            )
    said = QnnVersion.found_in(subject.qnn_version)
    is_version = QnnVersion.found_in(its_build.version)
    if said and is_version and not (said.matches(is_version) or is_version.matches(said)):
        yield finding(
            "version-label",
            (reference.name,),
            f"the runtime is said to be QNN {said}, and {reference.name} is of {its_build}",
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
    for kind, code, comes in (
        ("stub", "stub-missing", "the HTP cannot be opened (4000, Failed to create transport)"),
        (
            "skel",
            "skel-missing",
            "the DSP finds none, or takes the one of the device's own firmware, which is of "
            "another SDK (0x80000406, 4000, 14001)",
        ),
    ):
        there = sorted({file.htp_arch for file in subject.of_kind(kind) if file.htp_arch})
        if arch not in there:
            others = ", ".join(f"v{number}" for number in there) or "none at all"
            yield finding(
                code,
                tuple(file.name for file in subject.of_kind(kind)),
                f"the device's HTP is v{arch}, and the {kind}s are: {others}; {comes}",
                f"Add libQnnHtpV{arch}{kind.capitalize()}.so, from the SDK that the backend is of",
            )


def _backend_version(subject: PreflightInput) -> QnnVersion | None:
    builds = [file.build for file in subject.of_kind(f"backend-{subject.backend}")]
    # What the backend says of itself is worth more than what the runtime is said to be.
    says = next((build.version for build in builds if build and build.version), None)
    return QnnVersion.found_in(says or subject.qnn_version)


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
        wanted = context.htp_arch
        if subject.backend == "htp" and arch == _WITHOUT_FLOATS and context.has_floats:
            yield _no_floats(context, subject.device.simulates_htp)
        if subject.backend == "htp" and arch and wanted and arch != wanted:
            severity, comes = _other_arch(wanted, arch, subject.device.simulates_htp)
            yield finding(
                "context-arch",
                (context.name,),
                f"{context.name} is for HTP v{wanted}, and the device's is v{arch}: {comes}",
                f"Compile it for v{arch}",
                severity=severity,
            )


def _memory(context: ContextFacts, soc: Soc | None) -> Iterator[Finding]:
    """Of what a context needs more than there is. The simulator takes any VTCM size."""
    has = soc.vtcm_mb if soc else None
    if soc and has and context.vtcm_bytes and context.vtcm_bytes > has << 20:
        yield finding(
            "context-vtcm",
            (context.name,),
            f"{context.name} is for {context.vtcm_bytes / (1 << 20):g} MiB of VTCM, and {soc.name} "
            f"has {has}: it is refused with 5005 (Request feature vtcm size unsupported)",
            f"Compile it for {soc.name}, or with vtcm_mb={has}",
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
    comes = _NOT_MINDED if simulator else "it fails there"
    return finding(
        "context-floats",
        (context.name,),
        f"{context.name} has floating-point tensors, and HTP v{_WITHOUT_FLOATS} calculates with "
        f"integers only: {comes}",
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
    """A context for another SoC with the same HTP: what another HTP means is `context-arch`."""
    model = context.soc_model
    if soc is None or not model or model == soc.soc_model or context.htp_arch != soc.htp_arch:
        return
    names = [one.name for one in SOCS.values() if one.soc_model == model]
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
    says = cores[0].ort_version if cores else subject.ort_version
    version = QnnVersion.found_in(says)
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
            how = "says so" if plugin.negotiates else "crashes"
            yield finding(
                "ort-too-old",
                names,
                f"{plugin.name} asks for ORT API {PLUGIN_MIN_API}, and ORT {version} has "
                f"{version.parts[1]} at most: the plug-in {how} when it is loaded",
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
