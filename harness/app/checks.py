"""What would stop an app that brings QNN along, decided without a phone (pure).

Facts of the app, and of a phone if there is one, go in; findings come out. Fits of versions are
those of preflight, whose findings get the words of Gradle and manifests. Nothing is said about an
app without QNN.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, Final

from harness.app.manifest import LibraryTag
from harness.app.package import App, AppLibrary, AppModel, Place
from harness.core.json_record import Part as JsonPart, Printout, RecordText
from harness.core.matrix_axes import BACKENDS, RPC_LIBRARY
from harness.core.yaml_document import did_you_mean
from harness.runtimes.preflight import (
    PreflightInput,
    TargetFacts,
    preflight,
)
from harness.runtimes.preflight_findings import SEVERITIES, Code, Severity

ABI: Final = "arm64-v8a"
TARGET: Final = "android-arm64"
OPENCL_LIBRARY: Final = "libOpenCL.so"
VENDOR_LIBRARIES: Final = frozenset({RPC_LIBRARY, "libadsprpc.so", OPENCL_LIBRARY})
"""Libraries of Snapdragon phones that apps use, and that are not part of the NDK."""

_HIDES_SINCE: Final = 31
_LARGE_PAGE: Final = 16384
_ALIGNMENTS: Final[tuple[tuple[int, Severity, str], ...]] = (
    (4096, "error", "the installation fails with INSTALL_FAILED_INVALID_APK"),
    (_LARGE_PAGE, "warning", "phones with pages of 16 KB may refuse it"),
)
_NO_STUB: Final = "the HTP cannot be opened (4000, Failed to create transport)"
_NO_SKEL: Final = "the DSP takes the firmware's own skel, of another SDK, or none (14001)"
_MACHINES: Final = {
    ABI: "aarch64",
    "armeabi-v7a": "arm",
    "x86_64": "x86-64",
    "x86": "x86",
}
_QNN: Final = re.compile(
    r"libQnn\w*\.so|libqnn_\w+\.so|libGenie\.so|libLiteRt\w*_Qualcomm\.so|"
    r"libonnxruntime_providers_qnn\.so",
    re.ASCII,
)
_OF_THE_SDK: Final = re.compile(r"libQnn(?!TFLite)\w*\.so", re.ASCII)
_INSTALLED: Final = re.compile(r"lib/[^/]+/lib[^/]*\.so")
_DISPATCH: Final = "libLiteRtDispatch_Qualcomm.so"
_COMPILED_THERE: Final = ("onnx", "tflite", "dlc")
_COMPONENTS: Final = (
    (re.compile(r"libQnnHtp\.so"), "QNN"),
    (re.compile(r"libonnxruntime\.so(?:\.[\d.]+)?"), "ONNX Runtime"),
    (re.compile(r"libonnxruntime_providers_qnn\.so"), "ONNX Runtime's QNN plug-in"),
    (re.compile(r"libonnxruntime-genai\.so"), "ONNX Runtime GenAI"),
    (re.compile(r"libLiteRt\.so|liblitert_jni\.so|libtensorflowlite_jni\.so"), "LiteRT"),
    (re.compile(r"libLiteRtDispatch_Qualcomm\.so|libQnnTFLiteDelegate\.so"), "LiteRT's way to QNN"),
    (re.compile(r"libexecutorch(?:_jni)?\.so"), "ExecuTorch"),
    (re.compile(r"libqnn_executorch_backend\.so"), "ExecuTorch's QNN backend"),
    (re.compile(r"libGenie\.so"), "Genie"),
)


Found = Place | AppLibrary | AppModel


def _codes() -> tuple[dict[str, Code], dict[str, str]]:
    table = tomllib.loads(files("harness.app").joinpath("codes.toml").read_text("ascii"))
    own = {name: Code(name, **fields) for name, fields in table.items() if "severity" in fields}
    return own, {name: fields["fix"] for name, fields in table.items() if name not in own}


CODES, REMEDIES = _codes()
"""Findings of an app, and what to do in an app about those of preflight."""


class AppFinding(JsonPart):
    """One problem of an app, certain or possible; `source` is a public thread or page."""

    code: RecordText
    severity: Severity
    evidence: tuple[Place, ...]
    explanation: RecordText
    remedy: RecordText
    source: RecordText | None = None


class Component(JsonPart):
    """A runtime in the app: QNN, or what uses it; its version if a library tells that."""

    name: str
    version: RecordText | None
    place: Place


class AppReport(Printout):
    """What `app check` found; `device` is the phone that was asked, if any."""

    package: RecordText
    min_sdk: int
    target_sdk: int
    extracts_libraries: bool
    uses_qnn: bool
    device: RecordText | None
    components: tuple[Component, ...]
    models: tuple[AppModel, ...]
    findings: tuple[AppFinding, ...]


@dataclass(frozen=True)
class Phone:
    """A phone: what preflight knows of it, and what it offers to apps (None if unknown)."""

    name: str
    facts: TargetFacts
    public: frozenset[str] | None = None


def check(app: App, phone: Phone | None = None) -> list[AppFinding]:
    """Return all findings, the worst first; none for an app without QNN."""
    if not uses_qnn(app):
        return []
    found = [
        *_vendor_libraries(app, phone),
        *_packing(app),
        *_placing(app),
        *_models(app),
    ]
    if _native(app) or not app.libraries:  # else it is said that there are none for phones
        found += [*_htps(app, phone), *_versions(app, phone)]
    if app.manifest.debuggable:
        found.append(_finding("debuggable", _application(app)))
    return sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))


def uses_qnn(app: App) -> bool:
    """Return whether anything of QNN, or for it, is in an app."""
    return any(map(_is_of_qnn, app.libraries)) or any(model.contexts for model in app.models)


def report(app: App, findings: Sequence[AppFinding], phone: Phone | None = None) -> AppReport:
    """Return findings with what was looked at."""
    manifest = app.manifest
    return AppReport(
        package=manifest.package,
        min_sdk=manifest.min_sdk,
        target_sdk=manifest.target_sdk,
        extracts_libraries=app.extracts_libraries,
        uses_qnn=uses_qnn(app),
        device=phone.name if phone else None,
        components=tuple(_components(app)),
        models=app.models,
        findings=tuple(findings),
    )


def _components(app: App) -> Iterator[Component]:
    for pattern, title in _COMPONENTS:
        for library in app.libraries:
            if library.abi == ABI and pattern.fullmatch(library.name):
                build = library.facts.build
                version = library.facts.ort_version or (str(build) if build else None)
                yield Component(name=title, version=version, place=library.place)


def _is_of_qnn(library: AppLibrary) -> bool:
    return library.asks_qnn or _QNN.fullmatch(library.name) is not None


def _concerns_qnn(library: AppLibrary) -> bool:
    return _is_of_qnn(library) or library.facts.kind != "other"


def _native(app: App) -> list[AppLibrary]:
    """Return the libraries for phones and the skels among assets, each name once."""
    skels = (lib for lib in app.libraries if lib.abi is None and lib.facts.kind == "skel")
    phones = (lib for lib in app.libraries if lib.abi == ABI)
    return list({lib.name: lib for lib in reversed([*phones, *skels])}.values())


def _finding(
    code: str, *found: Found, severity: Severity | None = None, **facts: Any
) -> AppFinding:
    kind = CODES[code]
    return AppFinding(
        code=code,
        severity=severity or kind.severity,
        evidence=tuple(item if isinstance(item, Place) else item.place for item in found),
        explanation=kind.explanation.format_map(facts),
        remedy=kind.fix.format_map(facts),
        source=kind.thread,
    )


def _application(app: App) -> Place:
    return app.parts[0].place.model_copy(update={"line": app.manifest.line})


def _named(libraries: Sequence[AppLibrary]) -> str:
    names = ", ".join(library.name for library in libraries[:3])
    return names if len(libraries) <= 3 else f"{names} and {len(libraries) - 3} more"


def _vendor_libraries(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    target = app.manifest.target_sdk
    tags = [(part, tag) for part in app.parts for tag in part.manifest.libraries]
    for library, users in sorted(_wanted(app).items()):
        consequence, severity = "the DSP cannot be reached (14001, 4000)", None
        if library == OPENCL_LIBRARY:
            consequence, severity = "the GPU cannot be used", "warning"
        declaring = [(part, tag) for part, tag in tags if tag.name == library and tag.counts]
        places = [part.place.model_copy(update={"line": tag.line}) for part, tag in declaring]
        facts: dict[str, Any] = {"library": library, "consequence": consequence}
        facts["severity"] = severity
        if target >= _HIDES_SINCE and not declaring:
            facts |= {"target": target, "note": _near_miss(library, [tag for _, tag in tags])}
            yield _finding("library-undeclared", _application(app), *users, **facts)
        if is_required := any(tag.required for _, tag in declaring):
            yield _finding("library-required", *places, library=library)
        if phone and phone.public is not None and library not in phone.public:
            if is_required:
                consequence = "the app requires it, and cannot be installed"
                facts |= {"severity": "error", "consequence": consequence}
            places = places or [_application(app)]
            yield _finding("library-not-public", *places, device=phone.name, **facts)


def _wanted(app: App) -> dict[str, list[AppLibrary]]:
    """Return the vendor's libraries that the app needs, and what needs them."""
    native = _native(app)
    hidden = VENDOR_LIBRARIES - {library.name for library in native}
    wanted: dict[str, list[AppLibrary]] = {}
    for library in native:
        elf, kind = library.facts.elf, library.facts.kind
        needed = set(elf.needed if elf and elf.machine != "hexagon" else ())
        # opened when they are used
        needed |= {"backend-htp": {RPC_LIBRARY}, "backend-gpu": {OPENCL_LIBRARY}}.get(kind, set())
        for name in needed & hidden:
            wanted.setdefault(name, []).append(library)
    return wanted


def _near_miss(library: str, tags: Sequence[LibraryTag]) -> str:
    """Return a note on a declaration that was meant to be this one."""
    for tag in tags:
        if tag.name == library and tag.tag == "uses-library":
            return " (its <uses-library> is for Java libraries)"
        if tag.name == library:
            return f" (its <uses-native-library> stands in <{tag.parent}>, where it is ignored)"
    close = did_you_mean(library, [tag.name for tag in tags])
    return f" (it declares another name{close})" if close else ""


def _packing(app: App) -> Iterator[AppFinding]:
    """Yield what is wrong with libraries that stay inside the APK."""
    if app.extracts_libraries:
        return
    assets = {library.name for library in app.libraries if library.abi is None}
    must_be_files = [
        library
        for library in _native(app)
        if (library.facts.kind == "skel" or library.name == _DISPATCH)
        and library.name not in assets
    ]
    if must_be_files:
        facts: dict[str, Any] = {"setting": "extractNativeLibs is false"}
        if app.is_bundle:
            facts["setting"] = "uncompress_native_libraries in BundleConfig.pb"
        files = _named(must_be_files)
        yield _finding("skel-packed", _application(app), *must_be_files, files=files, **facts)
    in_apk = [library for library in app.libraries if library.abi and library.offset is not None]
    if packed := [library for library in in_apk if not library.is_stored]:
        yield _finding("library-compressed", *packed, files=_named(packed))
    for size, severity, consequence in _ALIGNMENTS:
        wrong = [lib for lib in in_apk if lib.is_stored and (lib.offset or 0) % size]
        if wrong:
            facts = {"files": _named(wrong), "consequence": consequence, "severity": severity}
            yield _finding("zip-alignment", *wrong, bytes=size, **facts)
            break


def _placing(app: App) -> Iterator[AppFinding]:
    """Yield what is wrong with the folders, names and number of libraries."""
    relevant = list(filter(_concerns_qnn, app.libraries))
    abis = sorted({library.abi for library in app.libraries if library.abi})
    if abis and ABI not in abis:
        yield _finding("abi-missing", *relevant, abis=", ".join(abis))
    by_name: dict[str, list[AppLibrary]] = {}
    misplaced: dict[tuple[str, str], list[AppLibrary]] = {}
    for library in relevant:
        elf, abi = library.facts.elf, library.abi
        if abi and not _INSTALLED.fullmatch(library.path):
            name = re.sub(r"\.so[.\d]*$", ".so", library.name)
            yield _finding("library-not-installed", library, file=library.path, name=name)
        if elf and abi in _MACHINES and elf.machine != _MACHINES[abi] and abi != ABI:
            misplaced.setdefault((abi, elf.machine), []).append(library)
        if abi in (ABI, None):
            by_name.setdefault(library.name, []).append(library)
    for (abi, machine), libraries in misplaced.items():
        right = next((abi for abi, name in _MACHINES.items() if name == machine), ABI)
        facts: dict[str, Any] = {"machine": machine, "abi": abi, "right": right}
        yield _finding("abi-folder", *libraries, files=_named(libraries), **facts)
    for name, copies in by_name.items():
        if len(copies) > 1:
            facts = {"difference": "and its copies are the same", "severity": "warning"}
            if len({library.sha256 for library in copies}) > 1:
                builds = dict.fromkeys(str(lib.facts.build or "unknown") for lib in copies)
                difference = f"and its copies differ (builds: {', '.join(builds)})"
                facts = {"difference": difference, "severity": "error"}
            yield _finding("library-copies", *copies, library=name, count=len(copies), **facts)
    if narrow := [library for library in _native(app) if _pages(library) < _LARGE_PAGE]:
        pages = min(map(_pages, narrow)) >> 10
        yield _finding("page-alignment", *narrow, files=_named(narrow), pages=pages)


def _is_hexagon(library: AppLibrary) -> bool:
    return library.facts.elf is not None and library.facts.elf.machine == "hexagon"


def _pages(library: AppLibrary) -> int:
    """Return the largest pages that a library can be loaded with; any if that is unknown."""
    elf = library.facts.elf
    if elf is None or elf.machine != _MACHINES[ABI]:
        return _LARGE_PAGE
    return elf.page_bytes or _LARGE_PAGE


def _htps(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    """Yield which halves of the way to an HTP are missing, for each that the app is for."""
    native = _native(app)
    backend = next((lib for lib in native if lib.facts.kind == "backend-htp"), None)
    if backend is None:  # preflight says so
        return
    halves = {
        kind: {lib.facts.htp_arch: lib for lib in native if lib.facts.kind == kind}
        for kind in ("stub", "skel")
    }
    models: dict[int | None, AppModel] = {
        context.htp_arch: model for model in app.models for context in model.contexts
    }
    archs = {*halves["stub"], *halves["skel"], *models} - {None}
    facts: dict[str, Any] = {"consequence": _NO_STUB, "arch": "xx"}
    if not archs:
        facts |= {"missing": "libQnnHtpVxxStub.so", "reason": "the app has no stub and no skel"}
        yield _finding("htp-incomplete", backend, **facts)
    if phone is not None:  # preflight looks at this one
        archs -= {phone.facts.arch}
    for arch in sorted(archs, key=str):
        for kind, other, consequence in (("stub", "skel", _NO_STUB), ("skel", "stub", _NO_SKEL)):
            if arch in halves[kind]:
                continue
            library, model = halves[other].get(arch, backend), models.get(arch)
            reason = f"{library.name} is"
            if model is not None:
                reason = f"{model.place.entry} was compiled for HTP v{arch}"
            facts = {"missing": f"libQnnHtpV{arch}{kind.title()}.so", "reason": reason}
            facts |= {"arch": arch, "consequence": consequence}
            yield _finding("htp-incomplete", model or library, **facts)


def _models(app: App) -> Iterator[AppFinding]:
    kinds = {library.facts.kind for library in _native(app)}
    for model in app.models:
        file = model.place.entry
        if model.problem:
            yield _finding("model-damaged", model, file=file, problem=model.problem)
        if not model.is_stored:
            suffix = PurePosixPath(file).suffix.removeprefix(".")
            size = f"{model.size:,}"
            yield _finding("model-compressed", model, file=file, size=size, suffix=suffix)
    compiled_there = [model for model in app.models if model.kind in _COMPILED_THERE]
    if any(model.contexts for model in app.models) or "prepare" in kinds:
        return
    if compiled_there and "backend-htp" in kinds:
        file = compiled_there[0].place.entry
        yield _finding("prepare-missing", compiled_there[0], file=file)


def _versions(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    """Yield misfits of versions: of the app's own kind, and those that preflight knows."""
    native, min_sdk = _native(app), app.manifest.min_sdk
    asks = any(lib.asks_qnn and not _OF_THE_SDK.fullmatch(lib.name) for lib in native)
    for library in native:
        elf = library.facts.elf
        if library.facts.kind == "ort" and elf and not asks:
            yield _finding("ort-without-qnn", library, file=library.name)
        if elf and (elf.android_api or 0) > min_sdk and _concerns_qnn(library):
            needs = elf.android_api
            yield _finding("min-sdk", library, file=library.name, needs=needs, api=min_sdk)
    device = phone.facts if phone else TargetFacts(TARGET)
    if phone and device.android_api and device.android_api < min_sdk:
        api = device.android_api
        yield _finding(
            "device-too-old", _application(app), needs=min_sdk, api=api, device=phone.name
        )
    kinds = {library.facts.kind for library in native}
    backend = next((name for name in BACKENDS if f"backend-{name}" in kinds), BACKENDS[0])
    contexts = [context for model in app.models for context in model.contexts]
    # of those for several HTPs the app chooses
    fitting = [context for context in contexts if context.htp_arch in (device.arch, None)]
    subject = PreflightInput(
        # other code of the DSP has no check
        files=[lib.facts for lib in native if lib.facts.kind == "skel" or not _is_hexagon(lib)],
        device=device,
        backend=backend,
        contexts=fitting if device.arch and fitting else contexts,
    )
    found: dict[str, AppLibrary | AppModel] = {model.place.entry: model for model in app.models}
    found |= {lib.facts.name: lib for lib in native if _concerns_qnn(lib)}
    for finding in preflight(subject):
        evidence = [found[name].place for name in finding.files if name in found]
        if finding.files and not evidence:
            continue
        yield AppFinding(
            code=finding.code,
            severity=finding.severity,
            evidence=tuple(evidence or [app.parts[0].place]),
            explanation=finding.explanation,
            remedy=REMEDIES.get(finding.code, finding.fix),
            source=finding.thread,
        )
