"""Whether what is made and released again and again leaves more behind each time (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from harness.results.checks import Check, held, unseen


def judge_growth(figures: Mapping[str, object], growth_bytes: int, drift_bytes: int) -> list[Check]:
    """The checks of a process that made and released sessions (microsoft/onnxruntime#22511).

    `figures` are those of `ort_figures`. Most sessions may leave `growth_bytes` behind, all of them
    together `drift_bytes`, once the first few are over; what the first ones leave is the library's
    own start and not judged. `unseen` where the device does not tell the memory of a process.
    """
    return [
        _at_most("memory_left_by_each", figures.get("growth_bytes_per_session"), growth_bytes),
        _at_most("memory_left_by_all", figures.get("drift_bytes"), drift_bytes),
    ]


def _at_most(name: str, left: object, most: int) -> Check:
    if type(left) is not int:
        return unseen(name, "there are no samples of the process's memory")
    reason = f"{left} bytes are left, {most} are tolerated"
    return held(name, left <= most, reason, left_bytes=left, tolerance_bytes=most)
