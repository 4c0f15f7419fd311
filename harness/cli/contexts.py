"""`qnn-harness contexts`: the context binaries in files of users, inspected or copied out.

`fit` tells whether they fit into protection domains.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Literal

import click

from harness.cli.contexts_diverge import diverge_command
from harness.cli.contexts_minimize import bundle_command, minimize_command
from harness.cli.lab_options import (
    HOST_TARGET,
    NamedPath,
    files_argument,
    host_runtime,
    json_option,
    lab_option,
    only_version,
    open_catalog,
    require_output,
)
from harness.cli.printout import Printout
from harness.cli.say import say, say_found, say_json
from harness.containers.artefact import Artefact, ArtefactError, Piece
from harness.containers.extract import extract, nothing_in, piece_file
from harness.containers.manifest import MANIFEST, PieceEntry
from harness.containers.open import open_artefact, open_artefacts
from harness.core.cache import cache_root
from harness.core.codes import describe
from harness.core.errors import ConfigError
from harness.core.outgoing_text import counted
from harness.core.socs import SOCS, Soc, near_socs
from harness.core.versions import QnnVersion
from harness.diagnosis.refused_nodes import messages_of, refusal_text, refused_nodes
from harness.models.compile import ContextStore
from harness.models.compiler import CompileError
from harness.models.fit_text import MOST_CONTEXTS, FitContext, fit, fit_lines
from harness.models.inspection import (
    ContextReport,
    Inspection,
    ModelReport,
    TensorReport,
    context_report,
    model_report,
    names_of,
)
from harness.models.made_file import compile_to_file
from harness.models.metadata import (
    Unreadable,
    entries,
    memory_bytes,
    named_build,
    needs,
    read_each,
)
from harness.models.onnx_model import OnnxModel, OnnxNodes
from harness.models.packing import (
    Room,
    Silent,
    calibrated_room,
    reserved,
)
from harness.models.source import RESIDENCIES, Residency
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog, resolve_versions
from harness.runtimes.runtime import Runtime


class ContextCompiled(Printout):
    """`contexts compile --json`. `memory_bytes` is what the context needs at least."""

    files: list[str]
    bytes: int
    sha256: str
    qnn: str
    soc: str
    htp_arch: int | None
    graphs: list[str]
    memory_bytes: int


@click.command("compile")
@click.argument("model", type=NamedPath())
@click.option("-o", "--output", type=NamedPath(), required=True, metavar="FILE", help="The file.")
@click.option("--soc", required=True, metavar="SOC", help="For which SoC, such as SM8650.")
@click.option("--qnn", metavar="VERSION", help="Whose compiler. By default the newest.")
@lab_option
@json_option
def compile_command(
    model: Path,
    output: Path,
    soc: str,
    qnn: str | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Compile MODEL, an .onnx, for the NPU of a SoC.

    FILE is a context binary; if it ends with .onnx, a model with an EPContext node that holds the
    binary. It is the file that `run` makes of MODEL inside, and `run`, `fit`, `inspect` take it. A
    FILE that is there is replaced.

    \b
    Exit codes: 0 it was made, 1 the compiler does not make it, 2 the input is wrong,
    3 this computer failed.
    """
    if (kind := open_artefact(model).kind) != "onnx":
        problem = f"what is compiled is an .onnx, and this is: {kind}"
        raise ConfigError(problem, file=model)
    require_output(output)
    if output.exists() and output.samefile(model):
        raise ConfigError("is the model itself; name another file", file=output, field="--output")
    chosen, source = soc_with_htp(soc), OnnxModel.of(model.absolute())
    version = only_version(qnn, resolve_versions, "--qnn")
    host = open_catalog(lab_file).compiler_host(version)
    probes = ProbeBuilder(cache_root() / "probe")
    try:
        made = compile_to_file(source, host, chosen, probes, output)
    except CompileError as error:
        return _say_refused(error, [model])
    compiled = ContextCompiled(
        files=[str(output)],
        bytes=made.bytes,
        sha256=made.sha256,
        qnn=host.qnn_version,
        soc=chosen.name,
        htp_arch=chosen.htp_arch,
        graphs=[str(graph.get("name")) for graph in entries(made.metadata, "graphs")],
        memory_bytes=memory_bytes(made.metadata),
    )
    by = f"compiled by QNN {compiled.qnn} for {compiled.soc}, HTP v{compiled.htp_arch}"
    needs = f"it needs {compiled.memory_bytes:,} bytes at least"
    lines = [
        f"{output}: {by}",
        f"    context of {compiled.bytes:,} bytes; {needs}; graphs: {', '.join(compiled.graphs)}",
        f"    sha256 {compiled.sha256}",
    ]
    say_found(compiled, lines, as_json)
    return 0


def soc_with_htp(name: str) -> Soc:
    """The SoC that `--soc` names, in whatever letters. Raises ConfigError for one without HTP."""
    with_htp = {one.name: one for one in SOCS.values() if one.htp_arch is not None}
    found = with_htp.get(name.upper())
    if found is None:
        why = "has a DSP without HTP" if name.upper() in SOCS else "is no SoC that is known"
        near = [one for one in near_socs(name) if one in with_htp]
        raise ConfigError(f"{name[:80]!r} {why}", field="--soc", choices=near or list(with_htp))
    return found


_log = logging.getLogger(__name__)

_NEGATIVE = 1
_MOST_LONG = 8

qnn_option = click.option(
    "--qnn", metavar="VERSION", help="Whose simulator reserves. By default the newest."
)


class ContextsExtracted(Printout):
    """`contexts extract --json`: the new folder, and what its manifest.json lists."""

    folder: str
    pieces: tuple[PieceEntry, ...]


@click.group()
def contexts() -> None:
    """Context binaries in files that you have.

    FILE is a context binary, an ExecuTorch .pte, an ONNX model with EPContext nodes, a LiteRT
    .tflite, a DLC, a bundle, a folder with such files, or a pattern such as 'models/*.pte'. What a
    file is, is seen in its content.
    """


@contexts.command("extract")
@files_argument
@click.option(
    "-o",
    "--output",
    "folder",
    type=NamedPath(),
    required=True,
    metavar="DIR",
    help="A new folder for the context binaries and their manifest.json.",
)
@json_option
def extract_command(files: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Copy the context binaries out of FILEs, as a runtime would load them one after the other.

    A manifest.json tells of each where it comes from and its size; wherever FILE can stand, the
    folder can, too.
    """
    manifest = extract(open_artefacts(files), folder)
    if as_json:
        say_json(ContextsExtracted(folder=str(folder), pieces=manifest.pieces))
        return
    pieces = manifest.pieces
    width = max(len(one.file or "-") for one in pieces)
    for one in pieces:
        came = f"{one.artefact} {one.origin}".strip()
        say(f"{one.file or '-':<{width}}  {one.size:>12} bytes  {one.kind:<7}  {came}")
    say(f"{folder / MANIFEST} tells of them")


@contexts.command()
@files_argument
@click.option(
    "--qnn", metavar="VERSION", help="Whose libQnnSystem.so reads them. By default the newest."
)
@lab_option
@click.option("--long", "whole", is_flag=True, help="Each context with its tensors, however many.")
@json_option
def inspect(
    files: tuple[Path, ...], qnn: str | None, lab_file: Path, whole: bool, as_json: bool
) -> int:
    """Show what is in FILEs: their context binaries, graphs, inputs and outputs.

    Of more than 8 contexts those that are alike are one line.

    Nothing is executed; the real libQnnSystem.so reads the binaries in a process of its own. Ends
    with 1 if it cannot read one of them, with 2 if a FILE is of no kind that is known.
    """
    report = inspection(files, qnn, lab_file)
    say_found(report, lines(report, whole=whole), as_json)
    for problem in report.problems:
        say(f"error: {problem}", err=True)
    if report.problems:
        return ConfigError.exit_code
    return _NEGATIVE if any(one.problem for one in report.contexts) else 0


def inspection(files: Sequence[Path], qnn: str | None, lab_file: Path) -> Inspection:
    """What the context binaries of these files say of themselves.

    Raises ConfigError for a version that there is not, InfraError if its library cannot be had.
    """
    catalog = open_catalog(lab_file)
    runtime = host_runtime(catalog, qnn)
    opened: list[tuple[Artefact, Piece]] = []
    problems: list[str] = []
    models: list[ModelReport] = []
    for artefact in open_artefacts(files, lambda error: problems.append(str(error))):
        opened += [(artefact, piece) for piece in artefact.pieces]
        if not artefact.pieces and artefact.kind == "onnx":
            models.append(model_report(artefact.path))
        elif not artefact.pieces:
            _log.warning("%s: %s without a context in it", artefact.path, artefact.kind)
    binaries = [piece for _, piece in opened if piece.kind == "context"]
    probes = ProbeBuilder(cache_root() / "probe")
    read: Iterator[dict[str, object] | Unreadable] = iter(
        read_each(probes, runtime.library("libQnnSystem.so"), binaries)
    )
    contexts = []
    for artefact, piece in opened:
        told = next(read) if piece.kind == "context" else None
        try:
            contexts.append(context_report(artefact, piece, piece.sha256(), told))
        except ArtefactError as error:  # of a manifest: the others are still told
            problems.append(str(error))
    qnn = runtime.qnn_version or runtime.name
    return Inspection(1, qnn, tuple(contexts), tuple(problems), tuple(models))


def lines(report: Inspection, *, whole: bool = False) -> Iterator[str]:
    """An inspection for people: a few lines for each context; one for many unless `whole`."""
    for model in report.models:
        yield f"{model.file}: an ONNX model, which `run` and `contexts compile` compile"
        yield f"    {counted(model.nodes, 'node')}: {model.op_types}"
        yield from (f"    in  {one}" for one in model.inputs)
        yield from (f"    out {one}" for one in model.outputs)
    if not whole and len(report.contexts) > _MOST_LONG:
        yield from _alike(report.contexts)
    shown = report.contexts if whole or len(report.contexts) <= _MOST_LONG else ()
    for name, context in zip(names_of(shown), shown, strict=True):
        yield f"{name}: {size(context.size)}, sha256 {context.sha256[:12]}"
        if context.problem:
            yield f"    {context.problem}"
            continue
        if context.kind != "context":
            yield f"    a {context.kind.upper()}: a model that is compiled on the device"
            continue
        yield f"    {_made_for(context)}"
        yield f"    {_needs(context)}"
        for graph in context.graphs:
            yield f"    graph {graph.name}"
            for kind, tensors in (("in", graph.inputs), ("out", graph.outputs)):
                for tensor in tensors:
                    yield f"        {kind:<4}{_tensor(tensor)}"
    read = sum(one.kind == "context" for one in report.contexts)
    if read or not (report.problems or report.models or report.contexts):
        more = "; --long shows each" if len(report.contexts) > _MOST_LONG and not whole else ""
        yield f"{counted(read, 'context')}, read by QNN {report.qnn}{more}"


def _alike(contexts: Sequence[ContextReport]) -> Iterator[str]:
    """A few lines for all that are of one kind, the sizes of the least and the largest of them.

    Files with several are told by themselves, others together.
    """
    groups: dict[tuple[str, ...], list[ContextReport]] = {}
    held = Counter(one.file for one in contexts)
    for one in contexts:
        what = one.problem or (_made_for(one) if one.kind == "context" else f"a {one.kind.upper()}")
        groups.setdefault((one.file if held[one.file] > 1 else "", what), []).append(one)
    for (file, what), found in groups.items():
        sizes, needed = [one.size for one in found], [one.memory_bytes or 0 for one in found]
        graphs = sum(len(one.graphs) for one in found)
        more = "" if file or len(found) == 1 else f" and {counted(len(found) - 1, 'more file')}"
        each = f", {_span(sizes)} each" if len(found) > 1 else ""
        number = counted(len(found), "context" if found[0].kind == "context" else "model")
        yield f"{found[0].file}{more}: {number}{each}, {size(sum(sizes))}"
        yield f"    {what}"
        if any(needed):
            yield f"    each needs {_span(needed)} at least, all {size(sum(needed))}"
        if graphs:
            yield f"    {counted(graphs, 'graph')}"


def _span(values: Sequence[int]) -> str:
    least, most = size(min(values)), size(max(values))
    return least if least == most else f"{least} to {most}"


def _made_for(context: ContextReport) -> str:
    htp = f"HTP v{context.htp_arch}" if context.htp_arch else "an HTP that it does not name"
    target = context.backend if context.backend != "htp" else htp
    model = f", SoC model {context.soc_model}" if context.soc_model else ""
    socs = f" ({', '.join(context.socs)})" if context.socs else ""
    return f"made by QNN {context.build_id or 'not told'} for {target}{model}{socs}"


def _needs(context: ContextReport) -> str:
    figures = (
        ("weights", context.weights_bytes),
        ("I/O", context.io_bytes),
        ("spill-fill", context.spill_fill_bytes),
        ("VTCM", context.vtcm_bytes),
    )
    told = ", ".join(f"{name} {size(value)}" for name, value in figures if value is not None)
    return f"needs {size(context.memory_bytes or 0)} at least" + (f": {told}" if told else "")


def _tensor(tensor: TensorReport) -> str:
    shape = " x ".join(map(str, tensor.dimensions)) or "scalar"
    held = "unknown size" if tensor.bytes is None else size(tensor.bytes)
    text = f"{tensor.name}: {tensor.data_type} [{shape}], {held}, {tensor.memory_type}"
    if tensor.scale is not None and tensor.offset is not None:
        return f"{text}, {tensor.scale:g} * (value {tensor.offset:+d})"
    along = f" of {tensor.channels} along axis {tensor.axis}" if tensor.channels else ""
    return f"{text}, {tensor.encoding}{along}" if tensor.encoding else text


def size(count: int) -> str:
    """Bytes as people read them: 1 MB is 10^6."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= factor:
            return f"{count / factor:.3f} {unit}"
    return f"{count} bytes"


@contexts.command("fit")
@files_argument
@click.option(
    "--contexts", type=click.IntRange(1, MOST_CONTEXTS), help="Load so many, FILEs in turn."
)
@click.option(
    "--residency",
    type=click.Choice(RESIDENCIES),
    default="resident",
    show_default=True,
    help="How they are loaded: all, one after the other, or the last few.",
)
@click.option(
    "--window", type=click.IntRange(1), default=4, show_default=True, help="How many these are."
)
@click.option("--budget", type=click.IntRange(1), help="Bytes of one protection domain.")
@click.option("--remeasure", is_flag=True, help="Measure the simulator's budget anew.")
@click.option("--sessions", type=click.IntRange(1, 64), help="How many of them there are.")
@click.option("--soc", default="QCS8550", show_default=True, help="What an .onnx is compiled for.")
@qnn_option
@lab_option
@json_option
def fit_command(
    files: tuple[Path, ...],
    contexts: int | None,
    residency: Residency,
    window: int,
    budget: int | None,
    remeasure: bool,
    sessions: int | None,
    soc: str,
    qnn: str | None,
    lab_file: Path,
    as_json: bool,
) -> int:
    """Tell whether the contexts of FILEs fit, which is the first that does not, and what helps.

    An .onnx is compiled first, as `run` does it.

    What each takes is what the real library reserves when it loads it alone, here. Without
    --budget the simulator's own is taken, which is measured once and kept; a device has another.
    Ends with 1 if not all fit, if that is not known, as of a simulator that has no limit, or if
    the compiler refuses a model.
    """
    if remeasure and budget is not None:
        raise click.UsageError("--remeasure measures the budget, and --budget gives it: name one")
    catalog = open_catalog(lab_file)
    runtime = host_runtime(catalog, qnn)
    try:
        named = _contexts(files, catalog, runtime, soc_with_htp(soc))
    except CompileError as error:
        return _say_refused(error, files)
    measured = _measured(runtime, named)
    wanted = list(islice(cycle(measured), contexts or len(measured)))
    if budget is not None:
        room: Room | None = Room(budget)
    else:
        room = calibrated_room(cache_root(), catalog, runtime, anew=remeasure)
    if room is not None and sessions is not None:
        room = Room(room.budget, sessions)
    source: Literal["given", "calibrated"] = (
        "given" if budget is not None or sessions is not None else "calibrated"
    )
    told = fit(
        runtime.qnn_version or runtime.name,
        wanted,
        room,
        source,
        residency=residency,
        window=window,
    )
    say_found(told, fit_lines(told), as_json)
    return 0 if told.fits else _NEGATIVE


def _say_refused(error: CompileError, files: Sequence[Path]) -> int:
    """Say why a model was not compiled, the nodes with their shapes if it is the only file."""
    refused, words = refused_nodes(messages_of(error.output)), str(error)
    if refused:
        shapes = OnnxNodes.of(files[0]).shapes() if len(files) == 1 else {}
        words = refusal_text(refused, shapes, words.partition(": ")[0])
    say(f"error: {words}", err=True)
    return _NEGATIVE


def _contexts(
    files: Sequence[Path], catalog: Catalog, runtime: Runtime, soc: Soc
) -> list[tuple[str, Piece]]:
    root, found, passed = cache_root(), [], []
    opened = list(open_artefacts(files))
    for artefact in opened:
        name = artefact.path.name
        pieces = [piece for piece in artefact.pieces if piece.kind == "context"]
        if artefact.kind == "onnx":
            store = ContextStore(root, catalog, ProbeBuilder(root / "probe"))
            compiler = catalog.compiler_for(runtime.name, HOST_TARGET)
            model = OnnxModel.of(artefact.path.absolute())
            made = store.get(model, compiler, soc.htp_arch or 0)
            pieces = [Piece(made.path, 0, made.size, "", "context")]
        if (left_out := len(artefact.pieces) - len(pieces)) > 0:
            passed.append(f"{artefact.path}: left out, without a context: {left_out}")
        elif not pieces:
            passed.append(f"{artefact.path}: {artefact.kind} without a context in it")
        several = len(pieces) > 1
        found += [(f"{name}#{at}" if several else name, one) for at, one in enumerate(pieces)]
    if not found:
        raise nothing_in(opened)
    for text in passed:
        _log.warning(text)
    return found


def _measured(runtime: Runtime, named: Sequence[tuple[str, Piece]]) -> list[FitContext]:
    probes = ProbeBuilder(cache_root() / "probe")
    pieces = [piece for _, piece in named]
    told = read_each(probes, runtime.library("libQnnSystem.so"), pieces)
    files = [piece_file(piece, cache_root()) for piece in pieces]
    sizes = reserved(probes.build(HOST_TARGET), runtime.library("libQnnHtp.so"), files)
    found = []
    for (name, piece), metadata, taken in zip(named, told, sizes, strict=True):
        if isinstance(metadata, Unreadable):
            where = f"{piece.origin}: " if piece.origin else ""
            raise ConfigError(f"{where}{metadata.reason}", file=piece.path)
        if isinstance(taken, Silent):
            parts = needs(metadata)
            least = memory_bytes(metadata) + (parts["vtcm_bytes"] or 0)
            spill_fill = parts["spill_fill_bytes"] or 0
            refusal = _refusal(taken, metadata, runtime) if taken.refused else (taken.reason, False)
            found.append(FitContext(name, least, spill_fill, "metadata", *refusal))
        else:
            found.append(FitContext(name, taken.total, taken.spill_fill, "measured"))
    return found


def _refusal(
    taken: Silent, metadata: Mapping[str, object], runtime: Runtime
) -> tuple[str, bool, str | None]:
    """Why a runtime does not load a context: in its words, and of which known kind that is."""
    from harness.diagnosis.rule import Symptoms, findings
    from harness.diagnosis.rules import RULES

    reason, api = taken.reason, "QnnContext_createFromBinary"
    if taken.code:
        info = describe(taken.code, api=api)
        reason = f"{taken.code} ({info.symbol or info.component}): {reason}"
    codes = (taken.code,) if taken.code else ()
    known = findings(Symptoms("failed", (api,), codes, (*taken.said, taken.reason)), RULES)
    if not known:
        return reason, True, None
    told = known[0].diagnosis(codes)
    build, own = named_build(metadata), QnnVersion.found_in(runtime.qnn_version)
    made = QnnVersion.found_in(build)
    if made and own and made.is_newer_than(own):
        least = ".".join(str(made).split(".")[:3])
        words = f"made by QNN {build}; needs a runtime of {least} or newer"
        return reason, True, f"{told.id} ({told.confidence}): {words}"
    fix = f"; {told.fix}" if told.fix else ""
    return reason, True, f"{told.id} ({told.confidence}): {told.words}{fix}"


contexts.add_command(compile_command)
contexts.add_command(minimize_command)
contexts.add_command(bundle_command)
contexts.add_command(diverge_command)
