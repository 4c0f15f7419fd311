"""`qnn-harness model`: model files of users and the context binaries in them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Literal, cast

import click

from harness.cli.common_options import CommandGroup, NamedPath, json_option, lab_option
from harness.cli.lab_options import (
    SERIAL,
    Checked,
    Number,
    device_option,
    files_argument,
    host_runtime,
    lab_or_simulated,
    lab_to_name,
    only_version,
    open_catalog,
    output_option,
    qnn_option,
    require_output,
    verbose_option,
)
from harness.cli.model_layers import layers_command
from harness.cli.model_reduce import bundle_command, reduce_command
from harness.cli.model_remedies import require_one, try_remedies
from harness.cli.say import say, say_result
from harness.containers.artefact import Artefact, ArtefactError, FileBytes, Piece
from harness.containers.extract import extract, no_context_error, piece_file
from harness.containers.manifest import MANIFEST
from harness.containers.open import open_artefact, open_artefacts
from harness.core.error_codes import describe
from harness.core.errors import NEGATIVE, ConfigError
from harness.core.files import sha256_of
from harness.core.socs import HOST_TARGET, SOCS, Soc, near_socs
from harness.core.state_folders import cache_root
from harness.core.versions import QnnVersion
from harness.diagnosis.refused_nodes import messages_of, refused_nodes
from harness.lab.inventory import load_lab
from harness.models.artefact_sources import artefacts_with_contexts
from harness.models.capacity_forecast import Room, Unsized, calibrated_room, reserved
from harness.models.compiler import CompileError
from harness.models.compiler_options import compiler_options
from harness.models.context_cache import ContextStore, compile_to_file
from harness.models.context_metadata import (
    Unreadable,
    entries,
    memory_bytes,
    named_build,
    needs,
    read_each,
)
from harness.models.fit_text import MOST_CONTEXTS, FitContext, fit, fit_lines
from harness.models.inspection_report import (
    Inspection,
    ModelReport,
    context_report,
    inspection_lines,
    model_report,
)
from harness.models.model_diff import diff_lines, model_diff
from harness.models.onnx_model import OnnxModel, OnnxNodes
from harness.models.session_plan import Residency
from harness.plugin.options import residencies, split_list
from harness.probe.build import ProbeBuilder
from harness.probe.plan import DEFAULT_WINDOW
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.runtime import Runtime

_soc_option = click.option(
    "--soc", default="QCS8550", show_default=True, metavar="SOC", help="SoC to compile for."
)


@click.command("compile")
@click.argument("model", type=NamedPath())
@output_option("The context binary.", required=True)
@_soc_option
@qnn_option("QNN version of the compiler (default: newest).")
def compile_command(model: Path, output: Path, soc: str, qnn: str | None) -> int:
    """Compile MODEL, an .onnx, for the NPU of a SoC.

    The output is a context binary, compiled as by `run`. An existing file is replaced.

    \b
    Exit codes: 0 compiled, 1 the compiler refuses it, 2 the input is wrong,
    3 this computer failed.
    """
    if (kind := open_artefact(model).kind) != "onnx":
        raise ConfigError(f"is of kind {kind}; only an .onnx can be compiled", file=model)
    require_output(output)
    if output.suffix == ".onnx":
        problem = "would be a context binary; name a file that ends with .bin"
        raise ConfigError(problem, file=output, field="--output")
    if output.exists() and output.samefile(model):
        raise ConfigError("is the model itself; name another file", file=output, field="--output")
    chosen, source = soc_with_htp(soc), OnnxModel.of(model.absolute())
    version = only_version(qnn, resolve_versions, "--qnn")
    host = open_catalog().compiler_host(version)
    probes = ProbeBuilder(cache_root() / "probe")
    try:
        metadata = compile_to_file(source, host, chosen, probes, output)
    except CompileError as error:
        return _say_refused(error, [model])
    graphs = ", ".join(str(graph.get("name")) for graph in entries(metadata, "graphs"))
    least = f"needs at least {memory_bytes(metadata):,} bytes of memory"
    say(f"{output}: compiled by QNN {host.qnn_version} for {chosen.name}, HTP v{chosen.htp_arch}")
    say(f"    context of {output.stat().st_size:,} bytes; {least}; graphs: {graphs}")
    say(f"    sha256 {sha256_of(output)}")
    return 0


def soc_with_htp(name: str) -> Soc:
    """Return the SoC of `--soc`, in any case. Raises ConfigError for one without HTP."""
    with_htp = {soc.name: soc for soc in SOCS.values() if soc.htp_arch is not None}
    chosen = with_htp.get(name.upper())
    if chosen is None:
        problem = "has a DSP without HTP" if name.upper() in SOCS else "is an unknown SoC"
        near = [soc for soc in near_socs(name) if soc in with_htp]
        raise ConfigError(f"{name[:80]!r} {problem}", field="--soc", choices=near or list(with_htp))
    return chosen


_log = logging.getLogger(__name__)


@click.group(cls=CommandGroup)
def model() -> None:
    """Inspect, compare, extract, compile, fit and bundle model files.

    FILE is a context binary, an ExecuTorch .pte, an ONNX model with EPContext nodes, a LiteRT
    .tflite, a DLC, a bundle, or a folder with such files. Its format is detected from its content.
    """


@model.command("extract")
@files_argument
@output_option(
    "A new folder for the context binaries and their manifest.json.", metavar="DIR", required=True
)
def extract_command(files: tuple[Path, ...], output: Path) -> None:
    """Copy the context binaries out of FILEs, in the order in which a runtime would load them.

    manifest.json lists the source and size of each. Other commands accept the folder as FILE.
    """
    manifest = extract(open_artefacts(files), output)
    pieces = manifest.pieces
    width = max(len(piece.file or "-") for piece in pieces)
    for piece in pieces:
        columns = f"{piece.file or '-':<{width}}  {piece.size:>12} bytes  {piece.kind:<7}"
        say(f"{columns}  {piece.artefact} {piece.origin}".rstrip())
    say(f"{output / MANIFEST} lists them")


@model.command("inspect")
@files_argument
@qnn_option("QNN version that reads them (default: newest).")
@verbose_option("Show all contexts, however many.")
@json_option
def inspect_command(files: tuple[Path, ...], qnn: str | None, verbose: bool, as_json: bool) -> int:
    """Show what is in FILEs: their context binaries, graphs, inputs and outputs.

    The real libQnnSystem.so reads the binaries; nothing is executed.

    \b
    Exit codes: 0 all are read, 1 the library cannot read one, 2 a FILE is of an unknown kind.
    """
    report = inspection(files, qnn)
    say_result(report, inspection_lines(report, whole=verbose), as_json)
    for problem in report.problems:
        say(f"error: {problem}", err=True)
    if report.problems:
        return ConfigError.exit_code
    return NEGATIVE if any(context.problem for context in report.contexts) else 0


def inspection(files: Sequence[Path], qnn: str | None) -> Inspection:
    """Return the metadata of the context binaries in these files.

    Raises ConfigError for an unknown version, InfraError if its library cannot be fetched.
    """
    runtime = host_runtime(open_catalog(), qnn)
    opened: list[tuple[Artefact, Piece]] = []
    problems: list[str] = []
    models: list[ModelReport] = []
    others: dict[str, int] = {}
    for artefact in open_artefacts(files, lambda error: problems.append(str(error))):
        opened += [(artefact, piece) for piece in artefact.pieces]
        if artefact.pieces and (count := artefact.facts.get("other_nodes")):
            others[str(artefact.path)] = count
        if not artefact.pieces and artefact.kind == "onnx":
            models.append(model_report(artefact.path))
        elif not artefact.pieces:
            _log.warning("%s: this %s has no context", artefact.path, artefact.kind)
    binaries = [piece for _, piece in opened if piece.kind == "context"]
    probes = ProbeBuilder(cache_root() / "probe")
    results: Iterator[dict[str, object] | Unreadable] = iter(
        read_each(probes, runtime.library("libQnnSystem.so"), binaries)
    )
    contexts = []
    for artefact, piece in opened:
        metadata = next(results) if piece.kind == "context" else None
        try:
            report = context_report(artefact, piece, piece.sha256(), metadata)
            contexts.append(replace(report, compiler_options=compiler_options(piece)))
        except ArtefactError as error:  # of a manifest: continue with the others
            problems.append(str(error))
    qnn = runtime.qnn_version or runtime.name
    return Inspection(1, qnn, tuple(contexts), tuple(problems), tuple(models), others)


@model.command("diff")
@click.argument("a", type=NamedPath())
@click.argument("b", type=NamedPath())
@qnn_option("QNN version that reads them (default: newest).")
@verbose_option("Show all compiler options that differ, however many.")
@json_option
def diff_command(a: Path, b: Path, qnn: str | None, verbose: bool, as_json: bool) -> int:
    """List what differs between model files A and B, and the known failures that it explains.

    It compares versions, compiler options, graphs, inputs, outputs, sizes, placement and bytes.

    \b
    Exit codes: 0 A and B are the same, 1 they differ, 2 the input is wrong,
    3 this computer failed.
    """
    from harness.diagnosis.known_differences import known_failures
    from harness.diagnosis.rule_sources import all_rules

    old, new = (inspection([file], qnn) for file in (a, b))
    for file, side in ((a, old), (b, new)):
        if side.problems:
            raise ConfigError(side.problems[0])
        if not (side.contexts or side.models):
            raise ConfigError("has no context, and is not an ONNX model", file=file)
    failures = known_failures(old, new, all_rules())
    report = model_diff((str(a), str(b)), (old, new), (_content(a), _content(b)), failures)
    say_result(report, diff_lines(report, whole=verbose), as_json)
    return NEGATIVE if report.changes else 0


def _content(file: Path) -> str:
    """Return the hash of a file, or those of a folder's, with those of weights beside it."""
    hashes = []
    for artefact in open_artefacts([file]):
        folder, name = artefact.path.parent, artefact.path.name
        for each in (name, *artefact.facts.get("weight_files", ())):
            with FileBytes(folder / each, None if each == name else folder) as data:
                piece = Piece(data.path, 0, data.size, each, "context", root=data.root)
            hashes.append(piece.sha256())
    return " ".join(hashes)


@model.command("fit")
@files_argument
@click.option(
    "--copies",
    type=Number(1, MOST_CONTEXTS),
    metavar="N",
    help="Number of contexts to load, those of FILEs in turn (default: each once).",
)
@click.option(
    "--residency",
    type=Checked(residencies),
    metavar="NAME",
    default="resident",
    show_default=True,
    help="Contexts loaded at once: all (resident), one (sequential) or the last N (window=N).",
)
@click.option(
    "--budget", type=Number(1), metavar="BYTES", help="Memory of one protection domain (PD)."
)
@click.option("--sessions", type=Number(1, 64), metavar="N", help="Number of PDs.")
@_soc_option
@qnn_option("QNN version for the memory estimate (default: newest).")
@click.option("--remedies", is_flag=True, help="Try on a device what makes them fit.")
@device_option("Device for --remedies (default: ANDROID_SERIAL, else as for `run`).")
@click.option(
    "--resume",
    metavar="RUN",
    help="Run of --remedies to complete: its folder, its name, or `latest`.",
)
@lab_option
@json_option
def fit_command(
    files: tuple[Path, ...],
    copies: int | None,
    residency: str,
    budget: int | None,
    sessions: int | None,
    soc: str,
    qnn: str | None,
    remedies: bool,
    device: str | None,
    resume: str | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Check that the contexts of FILEs fit; else name the first that does not, and what helps.

    The size of a context is what the real library reserves when it loads the context alone on this
    computer. An .onnx is compiled first. Without --budget the simulator's budget is used, which
    differs from that of devices.

    --remedies loads and executes the contexts of one FILE on a device in each way that may make
    them fit (shared buffers, limits, fewer at a time), and ranks the ways that work.

    \b
    Examples:
      qnn-harness model fit model.bin --copies 66 --budget 4026531840
      qnn-harness model fit --remedies model.bin --copies 66 -s phone-1

    \b
    Exit codes: 0 all fit, or a remedy works; 1 not all fit, the limit is not known, or the compiler
    refuses a model; 2 wrong input, 3 the lab failed.
    """
    if not remedies and (device is not None or resume is not None):
        raise click.UsageError("--device and --resume need --remedies")
    chosen = {"device": device, "resume": resume, "version": qnn, "residency": residency}
    chosen["lab"] = lab_to_name(lab_file) or None
    words = [f"--qnn-{name}={value}" for name, value in chosen.items() if value is not None]
    if "," in residency:
        raise click.UsageError("--residency takes one value, not a list")
    artefact = require_one(artefacts_with_contexts(files)) if remedies else None
    if remedies:
        names = split_list([device or os.environ.get(SERIAL, "")])
        load_lab(lab_or_simulated(lab_file, names), names=names).select(names or None)
    catalog = open_catalog(lab_file)
    runtime = host_runtime(catalog, qnn)
    artefacts = list(open_artefacts(files))
    try:
        named = _contexts(artefacts, catalog, runtime, soc_with_htp(soc))
    except CompileError as error:
        return _say_refused(error, [item.path for item in artefacts if item.kind == "onnx"])
    measured = _measure(runtime, named)
    sequence = list(islice(cycle(measured), copies or len(measured)))
    room = Room(budget) if budget else calibrated_room(cache_root(), catalog, runtime)
    if room is not None and sessions is not None:
        room = Room(room.budget, sessions)
    source: Literal["given", "calibrated"] = "given" if budget or sessions else "calibrated"
    name, _, window = residency.partition("=")
    report = fit(
        runtime.qnn_version or runtime.name,
        sequence,
        room,
        source,
        residency=cast("Residency", name),
        window=int(window or DEFAULT_WINDOW),
    )
    if artefact is not None:
        return try_remedies(artefact, report, words, as_json)
    say_result(report, fit_lines(report), as_json)
    return 0 if report.fits else NEGATIVE


def _say_refused(error: CompileError, models: Sequence[Path]) -> int:
    """Say why a model was not compiled; naming nodes fully if it is the only one."""
    refused, message = refused_nodes(messages_of(error.output)), str(error)
    if refused:
        from harness.bench.bench import refused_words

        model = OnnxNodes.of(models[0]) if len(models) == 1 else OnnxNodes(())
        message = refused_words(refused, model, message.partition(": ")[0])
    say(f"error: {message}", err=True)
    return NEGATIVE


def _contexts(
    artefacts: Sequence[Artefact], catalog: Catalog, runtime: Runtime, soc: Soc
) -> list[tuple[str, Piece]]:
    root, named, warnings = cache_root(), [], []
    for artefact in artefacts:
        name = artefact.path.name
        pieces = [piece for piece in artefact.pieces if piece.kind == "context"]
        if artefact.kind == "onnx":
            store = ContextStore(root, catalog, ProbeBuilder(root / "probe"))
            compiler = catalog.compiler_for(runtime.name, HOST_TARGET)
            model = OnnxModel.of(artefact.path.absolute())
            binary = store.get(model, compiler, soc.htp_arch or 0)
            pieces = [Piece(binary.path, 0, binary.size, "", "context")]
        if (left_out := len(artefact.pieces) - len(pieces)) > 0:
            warnings.append(f"{artefact.path}: {left_out} of its parts left out: no context")
        elif not pieces:
            warnings.append(f"{artefact.path}: this {artefact.kind} has no context")
        several = len(pieces) > 1
        named += [(f"{name}#{i}" if several else name, part) for i, part in enumerate(pieces)]
    if not named:
        raise no_context_error(artefacts)
    for text in warnings:
        _log.warning(text)
    return named


def _measure(runtime: Runtime, named: Sequence[tuple[str, Piece]]) -> list[FitContext]:
    probes = ProbeBuilder(cache_root() / "probe")
    pieces = [piece for _, piece in named]
    all_metadata = read_each(probes, runtime.library("libQnnSystem.so"), pieces)
    files = [piece_file(piece, cache_root()) for piece in pieces]
    sizes = reserved(probes.build(HOST_TARGET), runtime.library("libQnnHtp.so"), files)
    results = []
    for (name, piece), metadata, reservation in zip(named, all_metadata, sizes, strict=True):
        if isinstance(metadata, Unreadable):
            prefix = f"{piece.origin}: " if piece.origin else ""
            raise ConfigError(f"{prefix}{metadata.reason}", file=piece.path)
        if isinstance(reservation, Unsized):
            parts = needs(metadata)
            least = memory_bytes(metadata) + (parts["vtcm_bytes"] or 0)
            spill_fill = parts["spill_fill_bytes"] or 0
            refusal = _refusal(reservation, metadata, runtime)
            results.append(FitContext(name, least, spill_fill, "metadata", *refusal))
        else:
            results.append(FitContext(name, reservation.total, reservation.spill_fill, "measured"))
    return results


def _refusal(
    failure: Unsized, metadata: Mapping[str, object], runtime: Runtime
) -> tuple[str, bool, str | None]:
    """Return why a context has no size: a message, whether it is refused, and the diagnosis."""
    from harness.diagnosis.rule import Symptoms, findings
    from harness.diagnosis.rule_sources import all_rules

    reason, api = failure.reason, "QnnContext_createFromBinary"
    if not failure.refused:
        return reason, False, None
    if failure.code:
        info = describe(failure.code, api=api)
        reason = f"{failure.code} ({info.symbol or info.component}): {reason}"
    codes = (failure.code,) if failure.code else ()
    symptoms = Symptoms("failed", (api,), codes, (*failure.logs, failure.reason))
    fitting = findings(symptoms, all_rules())
    if not fitting:
        return reason, True, None
    diagnosis = fitting[0].diagnosis(codes)
    build, runtime_version = named_build(metadata), QnnVersion.found_in(runtime.qnn_version)
    compiler_version = QnnVersion.found_in(build)
    if compiler_version and runtime_version and compiler_version.is_newer_than(runtime_version):
        least = ".".join(str(compiler_version).split(".")[:3])
        words = f"made by QNN {build}; needs a runtime of {least} or newer"
        return reason, True, f"{diagnosis.id} ({diagnosis.confidence}): {words}"
    fix = f"; {diagnosis.fix}" if diagnosis.fix else ""
    return reason, True, f"{diagnosis.id} ({diagnosis.confidence}): {diagnosis.words}{fix}"


for command in (compile_command, reduce_command, bundle_command, layers_command):
    model.add_command(command)
