"""The remedies of a run's records, ranked, and found again by a later failure."""

from pathlib import Path
from typing import Any

from harness.experiments.remedy_ranking import (
    RemedyReport,
    known_remedies,
    on_devices,
    remedy_lines,
)
from harness.models.capacity_forecast import Room
from harness.models.fit_text import FitContext, fit
from harness.results.record import CaseRecord
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder

TRIED = ("pytest", "-m", "device", "-o", "qnn_remedies=all")
FORECAST = fit("2.51.0", [FitContext("a", 40, 0, "measured")] * 3, Room(100), "given")


def of(
    name: str, words: str = "passed", contexts: int = 3, device: str = "sim", **figures: Any
) -> CaseRecord:
    """A case that tried a remedy; its figures are those of a small one unless they are given."""
    usual: dict[str, Any] = {"loaded": contexts, "executed": contexts, "outputs_equal": True}
    usual |= {"load_us": 9000, "first_us": 2000, "steady_us": 1000}
    usual |= {"memory_bytes": 5_000_000, "options": {}}
    fails = not words.startswith("passed")
    return attempt(
        f"{name} {words}",
        device=device,
        axes={"qnn": "2.51.0", "remedy": name, "contexts": contexts},
        measurements={"remedy": {"remedy": name} | ({} if fails else usual) | figures},
        files_sha256="5" * 64,
    )


def names(*records: CaseRecord) -> list[str]:
    (table,) = on_devices(records, {})
    return [row.remedy for row in table.remedies]


def test_what_works_comes_first_the_fastest_of_it_then_the_smallest() -> None:
    assert names(
        of("list-loading", "error"),
        of("init-acceleration", "unsupported"),
        of("memory-limit-hint", "crashed"),
        of("resident", "failed id=pd-exhausted"),
        of("sequential", steady_us=900, load_us=3_000_000),
        of("reused-io-limit", options={"reused_io_limit_mb": 64}, steady_us=5001),
        of("window", steady_us=900, load_us=300_000),
        of("spill-fill", steady_us=5000, memory_bytes=6_000_000),
    ) == [
        *("reused-io-limit", "spill-fill", "window", "sequential"),
        *("resident", "memory-limit-hint", "init-acceleration", "list-loading"),
    ]


def test_contexts_that_all_fit_need_no_remedy() -> None:
    records = [of("window"), of("resident", steady_us=9000)]
    assert names(*records) == ["resident", "window"]
    (line,) = (line for line in remedy_lines(on_devices(records, {}), "a") if "needed" in line)
    assert line == "No remedy is needed: all contexts fit together (resident)."


def test_figures_that_are_none_are_not_ranked_nor_shown() -> None:
    (table,) = on_devices([of("window", steady_us="fast", outputs_equal=1, loaded=None)], {})
    (row,) = table.remedies
    assert (row.steady_us, row.turn_us, row.outputs_equal, row.loaded) == (None,) * 4
    other = attempt("a passed", axes={"remedy": "none of ours", "contexts": "x"})
    assert on_devices([other, attempt("a passed")], {}) == ()


def test_the_report(snapshot: Snapshot) -> None:
    records = [
        of("sequential"),
        of("window", options={"window": 8}),
        of("reused-io-limit", options={"reused_io_limit_mb": 8}),
        of("init-acceleration", options={"init_acceleration": 1, "unknown": "x"}),
        of("resident", "failed id=pd-exhausted message=no_room", loaded=2, executed=0),
        of("list-loading", "crashed message=unsupported", loaded=0),
        of("spill-fill", "failed id=pd-exhausted message=no_room", loaded=2, executed=0),
    ]
    tables = on_devices(records, {"weight-sharing": "needs the .onnx"})
    report = RemedyReport(1, "model.bin", "run", FORECAST, tables)
    assert report.works
    assert remedy_lines(tables, "model.bin") == snapshot
    uses = {row.remedy: row.use["run"] for row in tables[0].remedies}
    assert uses == {
        "sequential": "--residency=sequential",
        "window": "--residency=window=8",
        "reused-io-limit": None,
        "init-acceleration": "--context-option=init_acceleration=1",
        "resident": None,
        "list-loading": None,
        "spill-fill": None,
        "weight-sharing": None,
    }


def test_a_later_failure_finds_what_worked(tmp_path: Path) -> None:
    failed = of("resident", "failed id=pd-exhausted")
    run_folder(tmp_path, of("sequential"), command=TRIED)
    run_folder(tmp_path, of("window"), failed, of("spill-fill", contexts=2), command=TRIED)
    run_folder(tmp_path, of("spill-fill"))  # no run of remedies
    assert [row.remedy for row in known_remedies(tmp_path, "sim", "5" * 64, 3)] == ["window"]
    for device, sha256, number in (("b", "5" * 64, 3), ("sim", "6" * 64, 3), ("sim", None, 3)):
        assert known_remedies(tmp_path, device, sha256, number) == []
    assert known_remedies(tmp_path / "none", "sim", "5" * 64, 3) == []
