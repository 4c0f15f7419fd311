"""The difference of two inspections: what is listed and paired, and what explains a failure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.diagnosis.known_differences import known_failures
from harness.diagnosis.rule_sources import own_rules
from harness.models.inspection_report import (
    ContextReport,
    GraphReport,
    Inspection,
    ModelReport,
    TensorReport,
)
from harness.models.model_diff import ModelDiff, diff_lines, model_diff
from tests.snapshots import Snapshot

X = TensorReport("x", "ufixed8", (1, 4), 4, "raw", "scale-offset", 0.5, -3)
GRAPH = GraphReport("g", (X,), (replace(X, name="y"),), 30, 0, 20, 100, 4 << 20)
OPTIONS = {"O": "2", "vtcm_mb": "4", "memory_alloc_limit": "2048", "min_arch": "73", "tile": "8"}
CONTEXT = ContextReport(
    *("m.bin", "context", "", "context", 0, 5000, "ab", {}),
    build_id="v2.47.0.1",
    backend="htp",
    soc_model=43,
    socs=("SM8550",),
    htp_arch=73,
    vtcm_bytes=4 << 20,
    memory_bytes=400,
    graphs=(GRAPH,),
    compiler_options=OPTIONS,
)


def inspection(*contexts: ContextReport, models: Sequence[ModelReport] = ()) -> Inspection:
    return Inspection(1, "2.51.0", contexts, (), tuple(models))


def difference(a: Inspection, b: Inspection, contents: tuple[str, str] = ("h", "h")) -> ModelDiff:
    return model_diff(("a.bin", "b.bin"), (a, b), contents, known_failures(a, b, own_rules()))


def changed(context: ContextReport = CONTEXT, **fields: Any) -> Inspection:
    return inspection(replace(context, sha256="cd", **fields))


@pytest.mark.parametrize(
    ("other", "changes"),
    [
        (inspection(CONTEXT), []),
        (changed(file="o.bin", offset=9, container={"signature": 1}), ["context 0 sha256"]),
        (changed(size=6, vtcm_bytes=0), ["context 0 size"]),
        (changed(container={"partitions": ("p",)}), ["context 0 container.partitions"]),
        (
            changed(compiler_options={**OPTIONS, "O": "3", "new": "1"}),
            ["context 0 compiler_options.O", "context 0 compiler_options.new"],
        ),
        (
            changed(graphs=(replace(GRAPH, name="h", inputs=(replace(X, dimensions=(2, 4)),)),)),
            ["context 0, graph g name", "context 0, graph g, input x dimensions"],
        ),
        (
            changed(graphs=(replace(GRAPH, name="h"), replace(GRAPH, spill_fill_bytes=7))),
            ["context 0, graph g spill_fill_bytes", "context 0, graph h graph"],
        ),
        (
            changed(graphs=(replace(GRAPH, outputs=(replace(X, name="y", scale=1.5, offset=0),)),)),
            ["context 0, graph g, output y scale", "context 0, graph g, output y offset"],
        ),
        (inspection(CONTEXT, CONTEXT), ["context 1 context"]),
        (inspection(models=[ModelReport("m", 2, "2 Add", ("x: f",), ())]), [
            "context 0 context", "model 0 model",
        ]),
        (replace(inspection(CONTEXT), other_nodes={"m": 3}), [" other_nodes"]),
    ],
)  # fmt: skip
def test_only_differences_are_listed(other: Inspection, changes: list[str]) -> None:
    report = difference(inspection(CONTEXT), other)
    assert [f"{change.part} {change.field}" for change in report.changes] == changes
    mirrored = difference(other, inspection(CONTEXT))
    assert {(each.field, str(each.b), str(each.a)) for each in mirrored.changes} == {
        (each.field, str(each.a), str(each.b)) for each in report.changes
    }
    assert report.equal > 0 or not other.contexts


def test_bytes_that_nothing_describes() -> None:
    onnx = inspection(models=[ModelReport("m", 2, "2 Add", ("x: f",), ("y: f",))])
    (change,) = difference(onnx, onnx, ("one", "two")).changes
    assert (change.part, change.field, change.a, change.b) == ("", "sha256", "one", "two")
    assert not difference(onnx, onnx).changes


NEWER = {"build_id": "v2.51.0.9"}
OLD = replace(CONTEXT, soc_model=None, socs=(), htp_arch=None, vtcm_bytes=None)
OF_LITTLE_VTCM = replace(OLD, compiler_options=OPTIONS | {"vtcm_mb": "2"})
OF_OTHER_LIMIT = {"compiler_options": OPTIONS | {"memory_alloc_limit": "3584"}}


@pytest.mark.parametrize(
    ("a", "b", "codes"),
    [
        (CONTEXT, NEWER, ["B error context-newer"]),
        (CONTEXT, {"htp_arch": 75}, ["B error context-arch", "A warning context-arch"]),
        (CONTEXT, {"soc_model": 52}, ["B warning context-soc", "A warning context-soc"]),
        (CONTEXT, {"vtcm_bytes": 16 << 20}, ["B error context-vtcm"]),
        (OLD, {"vtcm_bytes": 8 << 20}, []),
        (OF_LITTLE_VTCM, {"vtcm_bytes": 8 << 20}, ["B error context-vtcm"]),
        (replace(OLD, compiler_options={}), {"vtcm_bytes": 8 << 20}, []),
        (CONTEXT, {"memory_bytes": 4 << 30}, ["B error context-memory"]),
        (CONTEXT, OF_OTHER_LIMIT, ["A info graph-too-large"]),
        (replace(CONTEXT, memory_bytes=3 << 30), OF_OTHER_LIMIT, ["A warning graph-too-large"]),
        (CONTEXT, {"graphs": ()}, []),
        (CONTEXT, {"size": 9}, []),
        (replace(CONTEXT, memory_bytes=4 << 30), {"size": 9}, []),
    ],
)
def test_a_difference_explains_a_known_failure(
    a: ContextReport, b: dict[str, Any], codes: list[str]
) -> None:
    failures = difference(inspection(a), inspection(replace(a, **b))).failures
    assert [f"{each.files[0]} {each.severity} {each.code}" for each in failures] == codes
    assert all(each.fix and (each.thread or each.code == "context-soc") for each in failures)


def test_the_text(snapshot: Snapshot) -> None:
    graph = replace(GRAPH, inputs=(replace(X, dimensions=(2, 4), scale=None, offset=None),))
    options = {"O": "3", "memory_alloc_limit": "3584", "min_arch": "73", "tile": "9"}
    other = changed(**NEWER, origin="forward/0", graphs=(graph,), compiler_options=options)
    report = difference(inspection(CONTEXT), other)
    assert [*diff_lines(report)] == snapshot
    options = options | {f"tile{number}": "1" for number in range(9)}
    many = difference(inspection(CONTEXT), changed(compiler_options=options))
    assert "    10 more compiler options; -v shows all" in diff_lines(many)
    assert len([*diff_lines(many, whole=True)]) == len([*diff_lines(many)]) + 9
    assert [*diff_lines(difference(other, other))] == snapshot
