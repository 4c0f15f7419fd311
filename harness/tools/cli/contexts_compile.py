"""`qnn-harness contexts compile`: from a model to a file, as `run` does it inside."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.contexts.compiler.compiler import CompileError
from harness.contexts.compiler.made_file import compile_to_file
from harness.contexts.context.metadata import entries, memory_bytes
from harness.contexts.sources.onnx_model import OnnxModel
from harness.contexts.sources.onnx_nodes import OnnxNodes
from harness.ground.errors import ConfigError
from harness.ground.facts.socs import SOCS, Soc, near_socs
from harness.ground.files.cache import cache_root
from harness.libraries.containers.open import open_artefact
from harness.libraries.runtimes.catalog import resolve_versions
from harness.libraries.runtimes.pypi import all_versions
from harness.probe.build import ProbeBuilder
from harness.tools.cli.lab_options import (
    NamedPath,
    json_option,
    lab_option,
    open_catalog,
    require_output,
)
from harness.tools.cli.printout import Printout
from harness.tools.cli.say import say, say_found
from harness.verdict.failure.refused_nodes import messages_of, refusal_text, refused_nodes

_NEGATIVE: Final = 1


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
    versions = resolve_versions(qnn, field="--qnn") if qnn else all_versions()
    if len(versions) > 1 and qnn:
        raise ConfigError(f"{qnn!r} is several versions", field="--qnn", choices=versions)
    host = open_catalog(lab_file).compiler_host(versions[-1])
    probes = ProbeBuilder(cache_root() / "probe")
    try:
        made = compile_to_file(source, host, chosen, probes, output)
    except CompileError as error:
        refused = refused_nodes(messages_of(error.output))
        words = str(error)
        if refused:
            words = refusal_text(refused, OnnxNodes.of(model).shapes(), words.partition(": ")[0])
        say(f"error: {words}", err=True)
        return _NEGATIVE
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
