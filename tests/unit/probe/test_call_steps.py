"""Steps that call one function: which one, and with what."""

from typing import Any

import pytest

from harness.core.errors import ConfigError
from harness.probe.ort_plan import (
    APP_READ,
    APP_WRITE,
    SLOTS,
    STATIC,
    call,
    operation,
    packed_words,
    tensor,
)
from tests.snapshots import Snapshot

UNQUANTISED = f"{0x7FFFFFFF | 0x7FFFFFFF << 32} 0 0 0 0"


@pytest.mark.parametrize(
    ("api", "slot"),
    [
        # the places that native/abi.h asserts for itself
        ("QnnContext_createFromBinary", 13),
        ("QnnDevice_create", 40),
        ("QnnContext_createFromBinaryListAsync", 56),
        ("QnnSystemContext_create", 0),
        ("QnnSystemContext_free", 3),
    ],
)
def test_where_a_function_stands(api: str, slot: int) -> None:
    assert SLOTS[api] == slot
    assert call(api).fields["slot"] == str(slot)
    assert ("system" in call(api).fields) is api.startswith("QnnSystem")


def test_what_a_plan_says_of_a_call() -> None:
    step = call("QnnGraph_addNode", "graph", value=operation("Relu", "tin", "tout"), save="/x y")
    assert step.fields["value"] == "[1 'node' 'qti.aisw' 'Relu' 0 0 1 tin 1 tout]"


def test_structures_as_the_abi_has_them() -> None:
    """Kinds and data types are those of QnnTypes.h."""
    assert tensor("in", APP_WRITE) == (
        f"[1 0 'in' 0 562 {UNQUANTISED} 4 [34359738369 17179869192] 0 0 0 0 0 0]"
    )
    fields: dict[str, Any] = {"number": "id", "data": "buffer", "size": 8, "data_type": 9}
    assert tensor("7", APP_READ, [2], memory=1, **fields) == (
        f"[1 id 7 1 9 {UNQUANTISED} 1 [2] 1 buffer 8 0 0 0]"
    )
    assert tensor("w7", STATIC, []) == f"[1 0 'w7' 4 562 {UNQUANTISED} 0 [] 0 0 0 0 0 0]"
    assert operation("Add", 0, "out", name="n", package="p", counts=(2, 3)) == (
        "[1 'n' 'p' 'Add' 0 0 2 0 3 out]"
    )


def test_what_cannot_be_called(snapshot: Snapshot) -> None:
    with snapshot.raises(ConfigError):
        call("QnnGraph_create", *range(13))
    with pytest.raises(ConfigError, match="QnnGraph_crate"):
        call("QnnGraph_crate")


def test_a_tensor_has_the_rank_of_its_shape_unless_another_is_asked_for() -> None:
    def rank(**fields: int) -> str:
        text = tensor("x", APP_WRITE, (1, 2, 3), **fields)
        return text.partition(f" {packed_words((1, 2, 3))}")[0].rpartition(" ")[2]

    assert (rank(), rank(rank=0), rank(rank=9)) == ("3", "0", "9")
