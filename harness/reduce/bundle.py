"""Bundles of cases, which can be run with qnn-harness and without.

README.txt says what happened, with its numbers. `reproduce.py` and reproduce.json run the case with
ONNX Runtime alone, a context binary through an .onnx that names it. Each context binary comes with
the list of inputs for qnn-net-run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from harness.containers.manifest import Manifest, ModelFile, write_bundle
from harness.containers.open import open_artefact
from harness.core.engine import ENGINES
from harness.core.files import sha256_of
from harness.core.outgoing_text import counted
from harness.core.paths_inside import name_problem
from harness.core.socs import SOCS, claim_of, limits_of_simulation
from harness.core.versions import QNN_WHEELS
from harness.models.artefact_sources import ModelOptions, own_folder
from harness.models.context_cache import compile_options
from harness.models.session_plan import ANY_DISTANCE
from harness.report.document import template
from harness.results.record import CaseRecord

SCRIPT: Final = "reproduce.py"
_DATA: Final = "reproduce.json"
_WINDOW: Final = 4
_TENSORS: Final = (".npy", ".raw")
# paths of this computer and of devices; numbers stay
_PATH: Final = re.compile(r"(?<![\w<>])(?:/[\w.+@~%-]+)+/(?=[\w.])")


class NamedTensor(BaseModel, extra="forbid", frozen=True):
    """An input or output of a graph: its type as QNN calls it, its shape."""

    name: str
    data_type: str
    shape: tuple[int, ...]


class LoadedGraph(BaseModel, extra="forbid", frozen=True):
    """The executed graph of a binary, with index `at` of `of`; its inputs and outputs."""

    name: str
    at: int
    of: int
    inputs: tuple[NamedTensor, ...]
    outputs: tuple[NamedTensor, ...]


def model_files(path: Path, options: ModelOptions) -> dict[str, Path]:
    """Return the files of a model and of the tensors given with it, by their names in a bundle."""
    artefact = open_artefact(path)
    others = [piece.path for piece in artefact.pieces if piece.path != path]
    others += [path.parent / name for name in artefact.facts.get("weight_files", ())]
    files = {f"model/{path.name}": path}
    files |= {f"model/{file.relative_to(path.parent).as_posix()}": file for file in others}
    for folder, tensors in (("inputs", options.inputs), ("expected", options.expected)):
        root = own_folder(tensors, path.name)
        if root is None:
            continue
        for file in sorted(root.rglob("*")):
            if file.suffix in _TENSORS and file.is_file():
                files[f"{folder}/{file.relative_to(root).as_posix()}"] = file
    return {name: file for name, file in files.items() if name_problem(name) is None}


def entries_of(files: Mapping[str, Path]) -> tuple[ModelFile, ...]:
    """Return the entries of a manifest for the files of a model."""
    return tuple(
        ModelFile(file=name, size=path.stat().st_size, sha256=sha256_of(path))
        for name, path in files.items()
    )


def write_case(
    path: Path,
    manifest: Manifest,
    record: CaseRecord,
    files: Mapping[str, Path],
    graphs: Mapping[str, LoadedGraph],
    inputs: Mapping[str, Sequence[str]],
) -> None:
    """Write the bundle of a case, with everything that reproduces it.

    `graphs` are the graphs of context binaries and `inputs` the files of their inputs, by the name
    of the binary. Raises ConfigError for a path that cannot be one, InfraError.
    """
    assert manifest.plan is not None
    texts: dict[str, bytes] = {}
    script = _reproduction(manifest, record, graphs, inputs, texts)
    if script is not None:
        texts[_DATA] = f"{json.dumps(script, indent=1)}\n".encode()
        texts[SCRIPT] = Path(__file__).with_name(SCRIPT).read_bytes()
    readme = _readme(path.name, manifest, record, script is not None, graphs)
    write_bundle(path, manifest, {"README.txt": readme.encode(), **texts}, files)


def _reproduction(
    manifest: Manifest,
    record: CaseRecord,
    graphs: Mapping[str, LoadedGraph],
    inputs: Mapping[str, Sequence[str]],
    texts: dict[str, bytes],
) -> dict[str, Any] | None:
    """Return the content of reproduce.json, adding its files to `texts`; None if not possible."""
    plan = manifest.plan
    assert plan is not None
    engine = ENGINES[plan.engine]
    soc = SOCS.get(plan.soc or "")
    arch = soc.htp_arch if soc is not None else None
    options = compile_options(arch) if arch else {}
    session = {} if plan.fallback else {"session.disable_cpu_ep_fallback": "1"}
    models: list[dict[str, Any]] = []
    order = [0]
    if manifest.pieces and all(piece.file in graphs for piece in manifest.pieces):
        pieces = {str(piece.file): piece for piece in manifest.pieces}
        for name, piece in pieces.items():
            graph, stem = graphs[name], name.removesuffix(".bin")
            texts[f"{stem}.onnx"] = _epcontext(name, graph)
            files = dict(zip((tensor.name for tensor in graph.inputs), inputs[name], strict=False))
            outputs = zip((tensor.name for tensor in graph.outputs), piece.expected, strict=False)
            input_list = " ".join(f"{tensor}:={file}" for tensor, file in files.items())
            texts[f"{stem}.txt"] = f"{input_list}\n".encode()
            expected = {tensor: entry.file for tensor, entry in outputs}
            models.append(
                {"file": f"{stem}.onnx", "inputs": files, "expected": expected, "on_cpu": False}
            )
        order = [list(pieces).index(str(piece.file)) for piece in manifest.pieces]
    elif (engine.takes_contexts or engine.takes_models) and any(
        entry.file.endswith(".onnx") for entry in manifest.model[:1]
    ):
        tensors: dict[str, dict[str, str]] = {"inputs": {}, "expected": {}}
        for entry in manifest.model[1:]:
            folder, _, name = entry.file.partition("/")
            if folder in tensors:
                tensors[folder][Path(name).stem] = entry.file
        models.append({"file": manifest.model[0].file, **tensors, "on_cpu": True})
    else:
        return None
    limits = {"max error": plan.max_error, "cosine": plan.min_cosine, "SQNR": plan.min_sqnr}
    at_once = {"sequential": 1, "window": _WINDOW}.get(plan.residency, len(order))
    return {
        "models": models,
        "order": order,
        "at_once": at_once,
        # a case with limits only may have any distance within them
        "tolerance": plan.tolerance if plan.tolerance < ANY_DISTANCE else None,
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
        "provider_options": options,
        "session_options": session,
    }


def _epcontext(binary: str, graph: LoadedGraph) -> bytes:
    """Return an .onnx whose only node loads the context binary `binary` in the same folder."""
    import numpy as np
    from onnx import helper

    def values(tensors: Iterable[NamedTensor]) -> list[Any]:
        infos = []
        for tensor in tensors:
            data_type = tensor.data_type.replace("ufixed", "uint").replace("sfixed", "int")
            kind = np.dtype(data_type.replace("bool8", "bool"))
            element = helper.np_dtype_to_tensor_dtype(kind)
            infos.append(helper.make_tensor_value_info(tensor.name, element, tensor.shape))
        return infos

    node = helper.make_node(
        "EPContext",
        [tensor.name for tensor in graph.inputs],
        [tensor.name for tensor in graph.outputs],
        name=graph.name,
        domain="com.microsoft",
        main_context=1,
        embed_mode=0,
        ep_cache_context=binary,
        partition_name=graph.name,
        source="QNN",
    )
    onnx_graph = helper.make_graph([node], "context", values(graph.inputs), values(graph.outputs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(onnx_graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def outcome_lines(record: CaseRecord) -> list[str]:
    """Return the outcome of a case in lines, with its numbers and without local paths."""
    error = record.error
    if error is None:
        return [record.outcome]
    code = f"{error.code} {error.symbol or ''}".rstrip() if error.code else None
    call = " -> ".join(filter(None, (error.api, code)))
    message = [line for line in _PATH.sub("", error.message).splitlines() if line.strip()]
    return [record.outcome, *([call] if call else []), *message]


def _readme(
    name: str,
    manifest: Manifest,
    record: CaseRecord,
    by_script: bool,
    graphs: Mapping[str, LoadedGraph],
) -> str:
    plan = manifest.plan
    assert plan is not None
    simulated = record.device is not None and record.device.simulated
    versions = [plan.build_id, plan.backend, plan.soc, plan.target, "simulated" * simulated]
    claim = claim_of(record.error.code if record.error is not None else None)
    limits = limits_of_simulation(claim, plan.target, [plan.qnn], simulated=simulated)
    model = manifest.model[0].file if manifest.model else ""
    engine = ENGINES[plan.engine]
    return template("README.txt.j2", __package__).render(
        name=name,
        plan=plan,
        engine=engine,
        manual=engine.manual(model, plan) if model else "",
        versions=", ".join(filter(None, versions)),
        outcome=[*outcome_lines(record), *filter(None, [limits])],
        pieces=Counter(f"{p.file}: {p.artefact} {p.origin}".rstrip() for p in manifest.pieces),
        contexts=counted(len(manifest.pieces), "QNN context"),
        model=model,
        script=SCRIPT if by_script else "",
        wheel=QNN_WHEELS.get(plan.qnn or ""),
        graphs={
            file: ",".join(
                f"{file.removesuffix('.bin')}.txt" if index == graph.at else "__"
                for index in range(graph.of)
            )
            for file, graph in graphs.items()
        },
    )
