"""Nodes that ONNX Runtime's QNN provider refused, read from its log."""

from harness.diagnosis.refused_nodes import RefusedNode, refusal_text, refused_nodes
from tests.snapshots import Snapshot

# of QNN 2.51.0 and ORT 1.26.0, as the probe and the compiler's process have it
SHRINK = (
    "Validation FAILED for 1 nodes in OrtNodeUnit (Shrink) :\n"
    "\tOperator type: Shrink Node name: shrink_1 Node index: 1\n"
    "\tREASON : Operators of type `Shrink` are not supported by QNN EP.Shrink node `shrink_1` "
    "will not be assigned to QNN EP.\n [qnn_execution_provider.cc:1713 LogNodeSupport]"
)
LISTED = "Unsupported nodes in QNN EP: { name: shrink_1, type: Shrink }{ name: relu6d, type: Relu }"
RELU = (
    "Validation FAILED for 1 nodes in OrtNodeUnit (Relu) :\n"
    "\tOperator type: Relu Node name: relu6d Node index: 0\n\tREASON : Failed to add node."
)
RANK = " <E> [4294967295] has incorrect Rank 6. [qnn_backend_manager.cc:519 QnnLogging]"
PAIR = (
    "Validation FAILED for 2 nodes in OrtNodeUnit (QDQ) :\n"
    "\tOperator type: DequantizeLinear Node name: in Node index: 0\n"
    "\tOperator type: Conv Node name: conv Node index: 1\n\tREASON : no"
)


def test_the_reason_is_the_providers_and_the_backends() -> None:
    assert refused_nodes([RANK, RELU, SHRINK, LISTED]) == [
        RefusedNode("relu6d", "Relu", "Failed to add node.; [4294967295] has incorrect Rank 6."),
        RefusedNode(
            "shrink_1", "Shrink", "Operators of type `Shrink` are not supported by QNN EP."
        ),
    ]


def test_without_verbose_lines_only_the_names_are_known() -> None:
    nodes = refused_nodes([LISTED, LISTED])
    assert nodes == [RefusedNode("shrink_1", "Shrink"), RefusedNode("relu6d", "Relu")]
    assert refused_nodes([RANK, "Unsupported graph", "nodes"]) == []
    assert refused_nodes([LISTED, RELU])[1].reason == "Failed to add node."


def test_what_the_provider_has_taken_is_not_refused() -> None:
    """Once functions are taken apart it is asked again, also of its own partitions."""
    fused = "QNNExecutionProvider_16373612973706042751_3"
    again = SHRINK.replace("Shrink", fused).replace("shrink_1", f"QNNExecutionProvider_{fused}_0")
    assert refused_nodes([again, SHRINK]) == refused_nodes([SHRINK])
    assert refused_nodes([f"Unsupported nodes in QNN EP: {{ name: a, type: {fused} }}"]) == []


def test_all_nodes_of_a_unit_are_refused_with_it() -> None:
    assert [(node.name, node.reason) for node in refused_nodes([PAIR])] == [
        ("in", "no"),
        ("conv", "no"),
    ]


def test_words_name_node_op_shape_and_reason_and_are_bounded(snapshot: Snapshot) -> None:
    refused = refused_nodes([SHRINK])
    assert refusal_text(refused, {"shrink_1": "float32 [1, 4]"}, "do this") == snapshot
    many = [RefusedNode(f"n{index}", "Op") for index in range(11)]
    assert refusal_text(many, {}, "do this") == snapshot
    endless = refused_nodes([RELU + "x" * 5000])[0].reason
    assert len(endless) == 600
