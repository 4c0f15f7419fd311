"""The command that runs a case again, alone (pure)."""

from __future__ import annotations

from harness.ground.facts.axes import AXES, IN_AXES
from harness.verdict.results.case_names import split_node_id
from harness.verdict.results.record import CaseRecord


def again(record: CaseRecord, *lab: str) -> list[str]:
    """Its words, of which `lab` says which lab it is, from where the run was begun."""
    words = [
        "pytest",
        "-m",
        "device",
        split_node_id(record.case)[0],
        "--qnn-only-case",
        record.case,
    ]
    words += ["--qnn-device", record.device.name] if record.device is not None else []
    said = record.axes | (
        record.placement.model_dump(exclude_none=True) if record.placement else {}
    )
    for axis in IN_AXES:
        value, option = said.get(axis), AXES[axis].option
        words += [option, str(value)] if value and option else []
    return [*words, *lab]
