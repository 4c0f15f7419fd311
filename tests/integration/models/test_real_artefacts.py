"""EPContext models as ONNX Runtime and the real compiler write them, embedded and beside."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.containers.extract import piece_file
from harness.containers.open import open_artefact
from harness.models.compiler import CompileJob, run_jobs
from harness.models.context_cache import read_metadata
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import CompilerHost

OPTIONS = {"htp_arch": "73", "soc_model": "43", "enable_htp_fp16_precision": "1"}


@dataclass(frozen=True)
class Partitioned(CompileJob):
    """Keeps its context beside the file or in it."""

    embed: bool = False

    def request(self, host: CompilerHost) -> dict[str, Any]:
        request = super().request(host)
        more = {"ep.context_embed_mode": str(int(self.embed))}
        return request | {"session_options": request["session_options"] | more}


def two_partitions() -> onnx.ModelProto:
    """Two products, and what HTP does not compute between them."""
    weights = numpy_helper.from_array(np.full((16, 16), 0.25, np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Acosh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    put = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "two", put[:1], put[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("version", ["2.47.0", "2.51.0"])
def test_contexts_of_two_partitions(
    version: str, tmp_path: Path, catalog: Catalog, probes: ProbeBuilder
) -> None:
    (tmp_path / "two.onnx").write_bytes(two_partitions().SerializeToString())
    jobs = []
    for embed in (False, True):
        folder = tmp_path / f"embed-{embed}"
        folder.mkdir()
        model = tmp_path / "two.onnx"
        jobs.append(Partitioned(folder.name, "x", model, folder, OPTIONS, True, embed=embed))
    host = catalog.compiler_host(version)
    assert run_jobs(host, jobs) == {job.job: None for job in jobs}
    external, embedded = (open_artefact(job.folder / "context.onnx") for job in jobs)
    for artefact, path in ((external, "context_qnn.bin"), (embedded, "context.onnx")):
        # one binary holds both graphs; the second node only names its own
        (piece,) = artefact.pieces
        assert (artefact.kind, piece.kind, piece.path.name) == ("epcontext", "context", path)
        (metadata,) = read_metadata(probes, host.system_library, [piece_file(piece, tmp_path)])
        graphs = [graph["name"] for graph in metadata["graphs"]]
        assert len(graphs) == 2
        assert str(metadata["build_id"]).startswith(piece.facts["sdk_version"])
        assert artefact.facts["other_nodes"] == 1
