"""`qnn-harness runtimes`: list, fetch, show, verify and fit QNN libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import click

from harness.bench.provisioner import preflight_piece
from harness.cli.common_options import CommandGroup, json_option, lab_option
from harness.cli.lab_options import (
    SERIAL,
    device_option,
    files_argument,
    host_runtime,
    lab_or_simulated,
    open_catalog,
)
from harness.cli.say import say, say_json, say_result, shown_transfers
from harness.containers.artefact import Artefact
from harness.containers.open import open_artefacts
from harness.core.engine import ENGINES
from harness.core.errors import NEGATIVE, ConfigError, HarnessError, InfraError
from harness.core.files import LocalFile
from harness.core.json_record import Part, Printout
from harness.core.matrix_axes import BACKENDS, Backend
from harness.core.outgoing_text import counted
from harness.core.socs import HTP_ARCHS, TARGETS, Target
from harness.core.state_folders import cache_root
from harness.lab.inventory import load_lab
from harness.lab.new_devices import with_hardware
from harness.models.context_metadata import read_each
from harness.models.runtime_fit import FileFit, RuntimesFit, file_fit, fit_lines, least_qnn
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog, CatalogEntry, choose_runtimes
from harness.runtimes.preflight import PreflightInput, TargetFacts, preflight
from harness.runtimes.preflight_findings import Finding
from harness.runtimes.pypi import PYPI
from harness.runtimes.qairt_url import QAIRT
from harness.runtimes.runtime import (
    LibraryFacts,
    Runtime,
    build_id_of,
    facts_of,
    narrowed,
    short_version,
)

_DRIVER = "qnn"

target_option = click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="linux-x64",
    show_default=True,
    help="Target of the libraries.",
)


class ListedOrt(Part):
    """An available version of ONNX Runtime. `cached`: it needs no network."""

    ort: str
    target: str
    source: str
    cached: bool


class RuntimesListed(Printout):
    """`runtimes list --json`. `problems` are of sources that did not answer."""

    runtimes: list[CatalogEntry]
    orts: list[ListedOrt]
    problems: list[str]


class RuntimeFile(Part):
    """A file of a runtime. `pushed`: a device would get it. `problem`: why it cannot be read.

    `kind` is its role (stub, skel), `build` the SDK build in it, `min_glibc` the oldest C library
    that runs it, `needed` the libraries that it depends on.
    """

    name: str
    bytes: int
    sha256: str
    pushed: bool
    kind: str
    htp_arch: int | None
    build: str | None
    machine: str | None
    libc: str | None
    min_glibc: str | None
    needed: list[str]
    problem: str | None


class ShownRuntime(Part):
    """A runtime with all its files, and the findings of preflight.

    `htp_archs` are those that it supports; `backend` and `htp_arch` are those of the device.
    """

    name: str
    qnn: str | None
    build_id: str | None
    ort: str | None
    target: str
    source: str
    root: str
    htp_archs: list[int]
    backend: str
    htp_arch: int | None
    files: list[RuntimeFile]
    preflight: list[Finding]


class RuntimesShown(Printout):
    """`runtimes show --json`."""

    runtimes: list[ShownRuntime]


@click.group(cls=CommandGroup)
@click.pass_context
def runtimes(context: click.Context) -> None:
    """List, fetch, show and verify QNN runtimes.

    A runtime is named by its version (2.51.0, a short form, latest, all, or a range such as
    '>=2.48,<2.51'), with the name of a source in front (sdk:latest; qairt:2.44.0.260225 is
    downloaded from Qualcomm), or by the path of a QAIRT SDK, an AAR or a folder with libraries.
    """
    context.with_resource(shown_transfers())


@runtimes.command("list")
@click.option("--target", type=click.Choice(TARGETS), help="Only those for this target.")
@lab_option
@json_option
def list_(lab_file: Path, target: str | None, as_json: bool) -> int:
    """List the available runtimes by source, and whether they are cached."""
    catalog, targets = open_catalog(lab_file), [target] if target else TARGETS
    entries, problems = _entries(catalog, targets)
    orts = _orts(catalog, targets)
    others = [
        f"{source.name}: any version of {source.origin}, as in {source.name}:{source.example}"
        for source in catalog.sources
        if source.example
    ]
    tables = (
        *_table("RUNTIME", "name", entries),
        *others,
        "",
        *_table("ONNX RUNTIME", "ort", orts),
    )
    say_result(
        RuntimesListed(runtimes=entries, orts=orts, problems=list(problems)), tables, as_json
    )
    for problem in () if as_json else problems:
        say(f"error: {problem}", err=True)
    return max((error.exit_code for error in problems.values()), default=0)


def _entries(
    catalog: Catalog, targets: Iterable[str]
) -> tuple[list[CatalogEntry], dict[str, HarnessError]]:
    """Return the runtimes for targets, and the errors of sources that do not answer."""
    entries: list[CatalogEntry] = []
    problems: dict[str, HarnessError] = {}
    for each in targets:
        for source in catalog.sources:
            try:
                entries += catalog.entries_of(source, each)
            except HarnessError as error:
                problems.setdefault(f"{source.name}: {error}", error)
    return entries, problems


def _table(head: str, name: str, rows: Iterable[CatalogEntry | ListedOrt]) -> Iterator[str]:
    yield f"{head:<24} {'TARGET':<14} {'SOURCE':<12} CACHED"
    for row in rows:
        cached = "yes" if row.cached else "no"
        yield f"{getattr(row, name):<24} {row.target:<14} {row.source:<12} {cached}"


@runtimes.command()
@lab_option
@click.argument("version")
@click.option("--ort", metavar="VERSION", help="Also fetch these versions of ONNX Runtime.")
@target_option
def fetch(lab_file: Path, version: str, ort: str | None, target: str) -> None:
    """Fetch runtimes into the cache, so that a later run needs no network."""
    catalog = open_catalog(lab_file)
    orts = catalog.ort.resolve(ort, target, field="--ort") if ort else []
    for name in catalog.resolve(version, target, field="VERSION"):
        runtime = catalog.runtime(name, target)
        files = counted(len(runtime.files), "file")
        say(f"{name} {target}: {files}, {runtime.size / 1e6:.1f} MB")
    for name in orts:
        say(f"ORT {name} {target}: 1 file, {catalog.ort.fetch(name, target).size / 1e6:.1f} MB")


@runtimes.command()
@lab_option
@click.argument("version")
@target_option
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="htp",
    show_default=True,
    help="Backend that the device uses.",
)
@click.option(
    "--htp-arch",
    type=click.Choice([str(arch) for arch in HTP_ARCHS]),
    metavar="NN",
    help="HTP architecture of the device, such as 73, to check its stub and skel.",
)
@json_option
def show(
    lab_file: Path, version: str, target: str, backend: str, htp_arch: str | None, as_json: bool
) -> int:
    """Show the files of a runtime, which of them a device would get, and what does not fit.

    A runtime that is not cached is fetched. Exit code 1: something does not fit.
    """
    catalog = open_catalog(lab_file)
    shown: list[ShownRuntime] = []
    arch = None if htp_arch is None else int(htp_arch)
    for name in catalog.resolve(version, target, field="VERSION"):
        shown.append(_show(catalog.runtime(name, target), backend, arch))
        if not as_json:
            for line in _show_lines(shown[-1]):
                say(line)
    if as_json:
        say_json(RuntimesShown(runtimes=shown))
    findings = [finding for runtime in shown for finding in runtime.preflight]
    return NEGATIVE if any(finding.severity == "error" for finding in findings) else 0


@runtimes.command("fit")
@files_argument
@click.option("--target", type=click.Choice(TARGETS), help="Only runtimes for this target.")
@device_option("A device, by its SoC (default: ANDROID_SERIAL, else none).", envvar=SERIAL)
@lab_option
@json_option
def fit_command(
    files: tuple[Path, ...], target: str | None, device: str | None, lab_file: Path, as_json: bool
) -> int:
    """List which runtimes, SoCs and releases of engines fit FILEs, without running anything.

    FILE is what `model inspect` reads. Only the newest QNN is downloaded, to read context binaries.
    With --device, the SoC is that in devices.yaml, or what an unlisted device reports.

    \b
    Exit codes: 0 something fits each FILE, 1 nothing fits one of them, 2 a FILE is of an unknown
    kind.
    """
    facts: TargetFacts | None = None
    if device is not None:
        lab_file = lab_or_simulated(lab_file, [device])
        (config,) = with_hardware(load_lab(lab_file, names=[device])).select([device])
        if (named := target or config.target) is None:
            problem = f"device {device} has no `target` in devices.yaml; choose one"
            raise ConfigError(problem, field="--target", choices=TARGETS)
        target, facts = named, TargetFacts(cast(Target, named), config.soc, config.htp_arch)
    catalog, artefacts = open_catalog(lab_file), [*open_artefacts(files)]
    targets: Sequence[str] = [target] if target else TARGETS
    entries, problems = _entries(catalog, targets)
    lacking = [each for each in targets if each not in {entry.target for entry in entries}]
    fitting = (_file_fit(each, catalog, entries, lacking, facts) for each in artefacts)
    report = RuntimesFit(device=device, files=tuple(fitting))
    say_result(report, fit_lines(report), as_json)
    for problem in problems:
        say(f"error: {problem}", err=True)
    return 0 if all(file.fits for file in report.files) else NEGATIVE


def _file_fit(
    artefact: Artefact,
    catalog: Catalog,
    entries: Iterable[CatalogEntry],
    lacking: Iterable[str],
    device: TargetFacts | None,
) -> FileFit:
    """Judge runtimes, and for targets that are `lacking` the SDK of the file's compiler."""
    kind = "context" if artefact.kind in ("manifest", "bundle") else str(artefact.kind)
    pieces = [piece for piece in artefact.pieces if piece.kind == "context"]
    if any(piece.kind == "empty" for piece in artefact.pieces):
        raise ConfigError("has an EPContext node without a context", file=artefact.path)
    if not pieces:
        engines = [engine.title for engine in ENGINES.values() if kind in engine.kinds]
        return file_fit(str(artefact.path), kind, (), {}, engines)
    library = host_runtime(catalog, None).library("libQnnSystem.so")
    answers = read_each(ProbeBuilder(cache_root() / "probe"), library, pieces)
    pairs = zip(pieces, answers, strict=True)
    contexts = [preflight_piece(f"#{index}", *pair) for index, pair in enumerate(pairs)]
    libraries = {
        entry: _of_use(catalog.runtime(entry.name, entry.target), contexts[0].backend)
        if entry.cached
        else None
        for entry in entries
    }
    if version := short_version(str(least_qnn(contexts))):
        name = f"{QAIRT}:{version}"
        sdks = (CatalogEntry(name, QAIRT, version, each, cached=False) for each in lacking)
        libraries |= dict.fromkeys(sdks)
    return file_fit(str(artefact.path), kind, contexts, libraries, (), device)


@runtimes.command()
@lab_option
@click.argument("version", required=False)
@click.option("--target", type=click.Choice(TARGETS), help="Only those for this target.")
def verify(lab_file: Path, version: str | None, target: str | None) -> int:
    """Check the runtimes on this computer (default: all) byte by byte, and list changed files.

    A damaged runtime that was fetched is fetched again when it is used next; your own (an SDK, a
    folder) is used as it is. Exit code 1: a file has changed.
    """
    catalog = open_catalog(lab_file)
    damages: dict[str, list[str]] = {}
    targets = [target] if target else TARGETS
    if version is not None:  # one that no target has is an error
        choose_runtimes(partial(catalog.resolve, field="VERSION"), [version], targets)
    for each in targets:
        for name in _cached_names(catalog, version, each):
            damages[f"{name} {each}"] = catalog.damage(name, each)
        if version is None:
            for ort in filter(lambda ort: ort.cached, _orts(catalog, [each])):
                damages[f"ORT {ort.ort} {each}"] = catalog.ort.damage(ort.ort, each)
    if not damages:
        raise ConfigError(f"no runtime {version or ''} is on this computer".replace("  ", " "))
    for name, damage in damages.items():
        say(f"{name}: {'; '.join(damage) or 'intact'}")
    return NEGATIVE if any(damages.values()) else 0


def _cached_names(catalog: Catalog, version: str | None, target: str) -> Sequence[str]:
    if version is not None:
        try:
            named = catalog.resolve(version, target, field="VERSION")
        except ConfigError:
            return []
        return [name for name in named if catalog.is_cached(name, target)]
    names = []
    for source in catalog.sources:
        try:
            names += [entry.name for entry in catalog.entries_of(source, target) if entry.cached]
        except InfraError as error:
            say(f"{source.name}: {error}", err=True)
    return names


def _orts(catalog: Catalog, targets: Iterable[str]) -> list[ListedOrt]:
    return [
        ListedOrt(
            ort=version, target=target, source=PYPI, cached=catalog.ort.is_cached(version, target)
        )
        for target in targets
        for version in catalog.ort.versions(target)
    ]


def _show(runtime: Runtime, backend: str, htp_arch: int | None) -> ShownRuntime:
    facts = facts_of(runtime)
    pushed = {fact.name for fact in _of_use(runtime, backend, htp_arch)}
    subject = PreflightInput(
        files=_of_use(runtime, backend),
        device=TargetFacts(target=cast(Target, runtime.target), htp_arch=htp_arch),
        backend=cast(Backend, backend),
        qnn_version=runtime.qnn_version,
    )
    return ShownRuntime(
        name=runtime.name,
        qnn=runtime.qnn_version,
        build_id=build_id_of(facts),
        ort=runtime.ort_version,
        target=runtime.target,
        source=runtime.source,
        root=str(runtime.root),
        htp_archs=list(runtime.htp_archs),
        backend=backend,
        htp_arch=htp_arch,
        files=[
            _file(file, fact, file.name in pushed)
            for file, fact in zip(runtime.files, facts, strict=True)
        ],
        preflight=preflight(subject),
    )


def _of_use(runtime: Runtime, backend: str, htp_arch: int | None = None) -> list[LibraryFacts]:
    """Return the files that a device gets; those for any HTP without one."""
    facts = facts_of(runtime)
    needed = {fact.file_name: fact.elf.needed for fact in facts if fact.elf is not None}
    chosen = narrowed(runtime, backend, _DRIVER, htp_arch, needed=needed)
    names = {file.name for file in chosen.files}
    return [fact for fact in facts if fact.name in names]


def _file(file: LocalFile, fact: LibraryFacts, pushed: bool) -> RuntimeFile:
    elf = fact.elf
    return RuntimeFile(
        name=file.name,
        bytes=file.size,
        sha256=file.sha256,
        pushed=pushed,
        kind=fact.kind,
        htp_arch=fact.htp_arch,
        build=".".join(filter(None, (fact.build.version, fact.build.stamp)))
        if fact.build
        else None,
        machine=elf.machine if elf else None,
        libc=elf.libc if elf else None,
        min_glibc=".".join(map(str, elf.min_glibc)) if elf and elf.min_glibc else None,
        needed=list(elf.needed) if elf else [],
        problem=fact.problem,
    )


def _show_lines(runtime: ShownRuntime) -> Iterator[str]:
    archs = ", ".join(f"v{arch}" for arch in runtime.htp_archs)
    yield (
        f"{runtime.name} for {runtime.target}: build {runtime.build_id or 'unknown'}, "
        f"from {runtime.source} ({runtime.root})"
        + (f", ORT {runtime.ort}" if runtime.ort else "")
        + (f", HTP {archs}" if archs else "")
    )
    for file in runtime.files:
        mark = "*" if file.pushed else " "
        libc = file.libc and f"{file.libc} {file.min_glibc or ''}".strip()
        facts = " ".join(filter(None, (file.kind, file.machine, libc, file.build)))
        size, digest = f"{file.bytes / 1e6:>7.1f} MB", file.sha256[:12]
        yield f" {mark} {size}  {digest}  {file.name}  {file.problem or facts}"
    arch = f" on HTP v{runtime.htp_arch}" if runtime.htp_arch else ""
    yield f" * pushed to a device for backend {runtime.backend}{arch}"
    yield from (f"   {finding}" for finding in runtime.preflight)
