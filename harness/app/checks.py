"""What would stop an app that brings QNN along, decided without a phone (pure).

Facts of the app, and of a phone if there is one, go in; findings come out. Fits of versions are
those of preflight, whose findings get the words of Gradle and manifests. Nothing is said about an
app without QNN.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, Final

from harness.app.package import ABI, App, AppLibrary, AppModel, Place
from harness.core.json_record import Part as JsonPart, Printout, RecordText
from harness.core.matrix_axes import BACKENDS, RPC_LIBRARY
from harness.core.outgoing_text import first_names
from harness.core.versions import QnnVersion
from harness.runtimes.engine_versions import ENGINE_RELEASES
from harness.runtimes.preflight import PreflightInput, TargetFacts, preflight
from harness.runtimes.preflight_findings import SEVERITIES, Code, Severity

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
_MACHINES: Final = {"armeabi-v7a": "arm", "x86_64": "x86-64", "x86": "x86"}
_OF_QNN: Final = re.compile(
    r"libQnn\w*\.so|libqnn_\w+\.so|libGenie\.so|libLiteRt\w*_Qualcomm\.so|"
    r"libonnxruntime_providers_qnn\.so",
    re.ASCII,
)
_OF_THE_SDK: Final = re.compile(r"libQnn(?!TFLite)\w*\.so", re.ASCII)
_INSTALLED: Final = re.compile(r"lib/[^/]+/lib[^/]*\.so")
_DISPATCH: Final = "libLiteRtDispatch_Qualcomm.so"
_ORT: Final = ("onnxruntime-android-qnn", "onnxruntime-qnn")
_COMPILED_THERE: Final = ("onnx", "tflite", "dlc")
_TABLE: Final = tomllib.loads(files("harness.app").joinpath("codes.toml").read_text("ascii"))

_COMPONENTS: Final[dict[str, str]] = _TABLE.pop("components")
CODES: Final = {name: Code(name, **row) for name, row in _TABLE.items() if "severity" in row}
REMEDIES: Final = {name: row["fix"] for name, row in _TABLE.items() if name not in CODES}
"""What to do in an app about findings of preflight."""


class AppFinding(JsonPart):
    """One problem of an app, certain or possible; `source` is a public thread or page."""

    code: RecordText
    severity: Severity
    evidence: tuple[Place, ...]
    explanation: RecordText
    remedy: RecordText
    source: RecordText | None


class AskedPhone(JsonPart):
    """A phone that was asked; `offers` are libraries of its vendor that apps may use."""

    name: RecordText
    android_api: int | None
    htp_arch: int | None
    offers: tuple[RecordText, ...] | None


class AppReport(Printout):
    """The result of `app check`; `device` is the phone that was asked, if any.

    `components` are QNN and what uses it, by name, with the versions that their libraries tell.
    """

    package: RecordText
    min_sdk: int
    target_sdk: int
    extracts_libraries: bool
    uses_qnn: bool
    device: AskedPhone | None
    components: dict[str, RecordText | None]
    models: tuple[AppModel, ...]
    findings: tuple[AppFinding, ...]


@dataclass(frozen=True)
class Phone:
    """A phone: what preflight knows of it, and what it offers to apps (None if unknown)."""

    name: str
    facts: TargetFacts
    public: frozenset[str] | None = None

    @property
    def asked(self) -> AskedPhone:
        offers = None if self.public is None else tuple(sorted(VENDOR_LIBRARIES & self.public))
        api, arch = self.facts.android_api, self.facts.arch
        return AskedPhone(name=self.name, android_api=api, htp_arch=arch, offers=offers)


def report(app: App, phone: Phone | None = None) -> AppReport:
    """Return all findings, the worst first, with what was looked at."""
    uses_qnn = any(map(_is_of_qnn, app.libraries)) or any(model.contexts for model in app.models)
    findings = [*dict.fromkeys(_findings(app, phone))] if uses_qnn else []
    findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))
    return AppReport(
        package=app.manifest.package,
        min_sdk=app.manifest.min_sdk,
        target_sdk=app.manifest.target_sdk,
        extracts_libraries=app.extracts_libraries,
        uses_qnn=uses_qnn,
        device=phone.asked if phone else None,
        components=_components(app),
        models=app.models,
        findings=tuple(findings),
    )


def _findings(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    yield from _vendor_libraries(app, phone)
    yield from _packing(app)
    yield from _placing(app)
    yield from _models(app)
    if app.native or not app.libraries:  # else it is said that there are none for phones
        yield from _htps(app, phone)
        yield from _versions(app, phone)
    if app.manifest.debuggable:
        yield _finding("debuggable", app.parts[0])


def _components(app: App) -> dict[str, str | None]:
    return {
        name: library.facts.ort_version or (str(library.facts.build or "") or None)
        for name, pattern in _COMPONENTS.items()
        for library in app.native
        if re.fullmatch(pattern, library.name, re.ASCII)
    }


def _is_of_qnn(library: AppLibrary) -> bool:
    return library.asks_qnn or _OF_QNN.fullmatch(library.name) is not None


def _concerns_qnn(library: AppLibrary) -> bool:
    return _is_of_qnn(library) or library.facts.kind != "other"


def _finding(code: str, *found: Any, severity: Severity | None = None, **facts: Any) -> AppFinding:
    """Return a finding about libraries, models or parts, with facts for the texts of its code."""
    kind = CODES[code]
    return AppFinding(
        code=code,
        severity=severity or kind.severity,
        evidence=tuple(item.place for item in found),
        explanation=kind.explanation.format_map(facts),
        remedy=kind.fix.format_map(facts),
        source=kind.thread,
    )


def _named(libraries: Sequence[AppLibrary]) -> str:
    return first_names((library.name for library in libraries), 3)


def _vendor_libraries(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    base, target = app.parts[0], app.manifest.target_sdk
    tags = [(part, tag) for part in app.parts for tag in part.manifest.libraries]
    for library, users in sorted(_wanted(app).items()):
        facts: dict[str, Any] = {"library": library}
        facts["consequence"] = "the DSP cannot be reached (14001, 4000)"
        if library == OPENCL_LIBRARY:
            facts |= {"consequence": "the GPU cannot be used", "severity": "warning"}
        declaring = [(part, tag) for part, tag in tags if tag.name == library and tag.counts]
        if target >= _HIDES_SINCE and not declaring:
            wrong = next((tag for _, tag in tags if tag.name == library), None)
            note = f" (its <{wrong.tag}> in <{wrong.parent}> does not count)" if wrong else ""
            yield _finding("library-undeclared", base, *users, target=target, note=note, **facts)
        if requiring := [part for part, tag in declaring if tag.required]:
            yield _finding("library-required", *requiring, library=library)
        if phone and phone.public is not None and library not in phone.public:
            if requiring:
                consequence = "the app requires it, and cannot be installed"
                facts |= {"severity": "error", "consequence": consequence}
            yield _finding("library-not-public", base, device=phone.name, **facts)


def _wanted(app: App) -> dict[str, list[AppLibrary]]:
    """Return the vendor's libraries that the app needs, and what needs them."""
    hidden = VENDOR_LIBRARIES - {library.name for library in app.native}
    wanted = defaultdict[str, list[AppLibrary]](list)
    for library in app.native:
        elf = library.facts.elf
        needed = set(elf.needed) if elf and library.machine != "hexagon" else set()
        # opened when they are used
        opened = {"backend-htp": RPC_LIBRARY, "backend-gpu": OPENCL_LIBRARY}
        for name in hidden & (needed | {opened.get(library.facts.kind)}):
            wanted[str(name)].append(library)
    return wanted


def _packing(app: App) -> Iterator[AppFinding]:
    """Yield what keeps libraries from being found once the app is installed."""
    if app.extracts_libraries:
        skels = [library for library in app.native if library.facts.kind == "skel"]
        if skels and not app.names_skel_path:
            yield _finding("skel-path-unset", *skels, files=_named(skels))
        return
    assets = {library.name for library in app.libraries if library.abi is None}
    must_be_files = [
        library
        for library in app.native
        if library.name not in assets
        and (library.facts.kind == "skel" or library.name == _DISPATCH)
    ]
    if must_be_files:
        files = _named(must_be_files)
        yield _finding("skel-packed", app.parts[0], *must_be_files, files=files)
    in_apk = [library for library in app.libraries if library.abi and library.offset is not None]
    if packed := [library for library in in_apk if not library.is_stored]:
        yield _finding("library-compressed", *packed, files=_named(packed))
    for size, severity, consequence in _ALIGNMENTS:
        if wrong := [lib for lib in in_apk if lib.is_stored and (lib.offset or 0) % size]:
            facts: dict[str, Any] = {"consequence": consequence, "severity": severity}
            facts["files"] = _named(wrong)
            yield _finding("zip-alignment", *wrong, bytes=size, **facts)
            return


def _placing(app: App) -> Iterator[AppFinding]:
    """Yield what is wrong with the folders, names, number and alignment of libraries."""
    relevant = list(filter(_concerns_qnn, app.libraries))
    abis = sorted({library.abi for library in app.libraries if library.abi})
    if abis and ABI not in abis:
        yield _finding("abi-missing", *relevant, abis=", ".join(abis))
    by_name = defaultdict[str, list[AppLibrary]](list)
    for library in relevant:
        if library.abi and not _INSTALLED.fullmatch(library.path):
            name = re.sub(r"\.so[.\d]*$", ".so", library.name)
            yield _finding("library-not-installed", library, file=library.path, name=name)
        if library.abi in (ABI, None):
            by_name[library.name].append(library)
    # preflight looks at those for phones
    others = [lib for lib in relevant if lib.abi in _MACHINES and lib.facts.kind != "skel"]
    others = [lib for lib in others if lib.machine]
    if wrong := [library for library in others if library.machine != _MACHINES[str(library.abi)]]:
        machine, abi = wrong[0].machine, wrong[0].abi
        yield _finding("abi-folder", *wrong, files=_named(wrong), machine=machine, abi=abi)
    for name, copies in by_name.items():
        if len(copies) > 1:
            differ = len({library.sha256 for library in copies}) > 1
            builds = dict.fromkeys(str(library.facts.build or "unknown") for library in copies)
            facts: dict[str, Any] = {"severity": "error" if differ else None}
            facts["difference"] = "in copies that differ" if differ else "in equal copies"
            facts |= {"count": len(copies), "builds": ", ".join(builds)}
            yield _finding("library-copies", *copies, library=name, **facts)
    if narrow := [library for library in app.native if _pages(library) < _LARGE_PAGE]:
        pages = min(map(_pages, narrow)) >> 10
        yield _finding("page-alignment", *narrow, files=_named(narrow), pages=pages)


def _pages(library: AppLibrary) -> int:
    """Return the largest pages of the CPU that a library can be loaded with; any if unknown."""
    elf = library.facts.elf
    return (elf.page_bytes if elf and elf.machine != "hexagon" else None) or _LARGE_PAGE


def _htps(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    """Yield which halves of the way to an HTP are missing, for each that the app is for."""
    halves = {(library.facts.kind, library.facts.htp_arch): library for library in app.native}
    backend = halves.get(("backend-htp", None))
    if backend is None:  # preflight says so
        return
    reasons: dict[Any, AppLibrary | AppModel] = {arch: it for (_, arch), it in halves.items()}
    reasons |= {context.htp_arch: model for model in app.models for context in model.contexts}
    archs = sorted({arch for arch in reasons if arch} - {phone.facts.arch if phone else None})
    if not any(reasons):
        archs, reasons = ["xx"], {"xx": backend}
    for arch in archs:  # preflight looks at that of the phone
        of_arch = f"{reasons[arch].place.entry} is for that HTP"
        reason = "the app has no stub and no skel" if arch == "xx" else of_arch
        for kind, consequence in (("stub", _NO_STUB), ("skel", _NO_SKEL)):
            if (kind, arch) not in halves:
                facts: dict[str, Any] = {"arch": arch, "reason": reason}
                facts |= {"missing": f"libQnnHtpV{arch}{kind.title()}.so"}
                facts["consequence"] = consequence
                yield _finding("htp-incomplete", reasons[arch], **facts)


def _models(app: App) -> Iterator[AppFinding]:
    for model in app.models:
        file = model.place.entry
        if model.problem:
            yield _finding("model-damaged", model, file=file, problem=model.problem)
        if not model.is_stored:
            size, suffix = f"{model.size:,}", PurePosixPath(file).suffix[1:]
            yield _finding("model-compressed", model, file=file, size=size, suffix=suffix)
    kinds = {library.facts.kind for library in app.native}
    compiled_there = [model for model in app.models if model.kind in _COMPILED_THERE]
    if any(model.contexts for model in app.models) or "prepare" in kinds:
        return
    if compiled_there and "backend-htp" in kinds:
        first = compiled_there[0]
        yield _finding("prepare-missing", first, file=first.place.entry)


def _versions(app: App, phone: Phone | None) -> Iterator[AppFinding]:
    """Yield misfits of versions: of the app's own kind, and those that preflight knows."""
    native, min_sdk = app.native, app.manifest.min_sdk
    asks = any(lib.asks_qnn and not _OF_THE_SDK.fullmatch(lib.name) for lib in native)
    for library in native:
        elf = library.facts.elf
        if library.facts.kind == "ort" and elf and not asks:
            yield _finding("ort-without-qnn", library, file=library.name)
        version = library.facts.ort_version if library.asks_qnn else None
        for backend in native:
            qnn = backend.facts.build if backend.facts.kind.startswith("backend-") else None
            releases = [ENGINE_RELEASES.get((engine, version or "")) for engine in _ORT]
            if qnn and "refused" in (it.fit(QnnVersion.parse(str(qnn))) for it in releases if it):
                facts: dict[str, Any] = {"version": version, "qnn": str(qnn)}
                yield _finding("engine-mix", library, backend, file=library.name, **facts)
        if elf and (elf.android_api or 0) > min_sdk and _concerns_qnn(library):
            needs = elf.android_api
            yield _finding("min-sdk", library, file=library.name, needs=needs, api=min_sdk)
    device = phone.facts if phone else TargetFacts(TARGET)
    if phone and (api := device.android_api) and api < min_sdk:
        yield _finding("device-too-old", app.parts[0], needs=min_sdk, api=api, device=phone.name)
    kinds = {library.facts.kind for library in native}
    contexts = [context for model in app.models for context in model.contexts]
    # of those for several HTPs the app chooses
    fitting = [context for context in contexts if context.htp_arch in (device.arch, None)]
    subject = PreflightInput(
        # no check is for other code of the DSP
        [lib.facts for lib in native if lib.facts.kind == "skel" or lib.machine != "hexagon"],
        device,
        next((name for name in BACKENDS if f"backend-{name}" in kinds), BACKENDS[0]),
        contexts=fitting if device.arch and fitting else contexts,
    )
    places = {model.place.entry: model.place for model in app.models}
    places |= {lib.facts.name: lib.place for lib in native if _concerns_qnn(lib)}
    for finding in preflight(subject):
        evidence = [places[name] for name in finding.files if name in places]
        if evidence or not finding.files:
            yield AppFinding(
                code=finding.code,
                severity=finding.severity,
                evidence=tuple(evidence or [app.parts[0].place]),
                explanation=finding.explanation,
                remedy=REMEDIES.get(finding.code, finding.fix),
                source=finding.thread,
            )
