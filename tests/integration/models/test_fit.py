"""Forecasts come true in the real library, for sets that they were not measured on."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from harness.cli.model import fit_command
from harness.models.capacity_forecast import (
    Room,
    Size,
    Unsized,
    forecast,
    reserved,
    room,
)
from harness.models.session_plan import Move
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import run_plan_locally
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.probe.conftest import build_backend
from tests.logged import Logged
from tests.unit.containers.made import epcontext

ROOT = Path(__file__).parents[3]
FIELD = Path(__file__).parents[2] / "field"
FOREIGN = min(FIELD.glob("add_add*.bin"))
SCHEMA = json.loads((ROOT / "docs/schema/fit.schema.json").read_text())
SETS = 8
QUIET = Settings(log_level="error", memory="off")
MADE = (
    ("tiny", "2.47.0"),
    ("io-heavy-56mb", "2.47.0"),
    ("io-heavy-22mb", "2.51.0"),
    ("io-heavy-56mb", "2.51.0"),
    ("weights-heavy-4mb", "2.51.0"),
    ("spill-heavy-2mb", "2.51.0"),
    ("mobilenet-v2-8bit", "2.51.0"),
)


@dataclass(frozen=True)
class Calibrated:
    """A runtime with what it reserves for some files, and of how much."""

    probe: Path
    library: Path
    files: list[Path]
    sizes: list[Size]
    room: Room | None

    def agrees(self, chance: random.Random) -> tuple[int, bool]:
        """Load a random set: if the forecast was right, how many loads, and if one was refused."""
        drawn = chance.choices(range(len(self.files)), self._weights(chance), k=700)
        moves: list[Move] = []
        loaded: list[int] = []
        frees = chance.choice((0.0, 0.1, 0.3))
        for number in range(len(drawn)):
            if loaded and chance.random() < frees:
                moves.append(Move("free", loaded.pop(chance.randrange(len(loaded)))))
            moves.append(Move("load", number))
            loaded.append(number)
        sizes = [self.sizes[index] for index in drawn]
        limit = self.room or Room(sum(size.total for size in sizes))
        outcome = forecast(sizes, moves, limit)
        steps = [
            plan.context_load(move.context, str(self.files[drawn[move.context]]))
            if move.verb == "load"
            else plan.context_free(move.context)
            for move in moves
        ]
        opened = [plan.backend_load(str(self.library)), Step("log-create"), Step("backend-create")]
        run = run_plan_locally(
            self.probe, Plan((*opened, plan.device_create(), *steps), QUIET), env={}, timeout_s=100
        )
        loads = [step for step in run.transcript.steps if step.verb == "context-load"]
        failure = run.transcript.first_failure
        happened = (sum(step.ok for step in loads), failure and (failure.context, failure.code))
        refused = outcome.refused and (outcome.refused.context, 1002)
        assert happened == (outcome.loads, refused), (happened, outcome.loads, outcome.refused)
        return outcome.loads, refused is not None

    def _weights(self, chance: random.Random) -> list[float]:
        # some sets have mostly small ones, others mostly large ones
        return [chance.random() ** chance.choice((1, 4, 8)) for _ in self.files]


def calibrated(
    version: str, runtime_for: RuntimeFor, context_for: ContextFor, probe: Path
) -> Calibrated:
    runtime = runtime_for(version)
    # an older runtime refuses what a newer compiler made
    models = [model for model in MADE if runtime.qnn_version == "2.51.0" or model[1] == "2.47.0"]
    files = [context_for(*model).path for model in models]
    files += [FOREIGN]
    library = runtime.library("libQnnHtp.so")
    sizes = reserved(probe, library, files)
    assert not any(isinstance(size, Unsized) for size in sizes)
    measured = [size for size in sizes if isinstance(size, Size)]
    return Calibrated(probe, library, files, measured, room(probe, library, files[0]))


@pytest.fixture(scope="session")
def probe(probes: ProbeBuilder) -> Path:
    return probes.build("linux-x64")


@pytest.mark.slow
@pytest.mark.parametrize(
    "version",
    [
        "2.51.0",
        *(pytest.param(version, marks=pytest.mark.nightly) for version in ("2.49.40", "2.50.40")),
    ],
)
def test_the_forecast_is_what_happens(
    version: str, runtime_for: RuntimeFor, context_for: ContextFor, probe: Path
) -> None:
    subject = calibrated(version, runtime_for, context_for, probe)
    assert subject.room is not None
    agreements = [subject.agrees(random.Random(f"{version} {number}")) for number in range(SETS)]
    assert any(refused for _, refused in agreements)
    assert len(set(agreements)) > SETS // 2


@pytest.mark.slow
def test_a_runtime_without_a_limit_refuses_nothing(
    runtime_for: RuntimeFor, context_for: ContextFor, probe: Path
) -> None:
    subject = calibrated("2.47.0", runtime_for, context_for, probe)
    assert subject.room is None
    assert subject.agrees(random.Random(1)) == (700, False)


def test_what_is_reserved_by_the_librarys_own_words(
    runtime_for: RuntimeFor, context_for: ContextFor, probe: Path, tmp_path: Path
) -> None:
    spill, tiny = (context_for(name, "2.51.0").path for name in ("spill-heavy-2mb", "tiny"))
    half = tmp_path / "half.bin"
    half.write_bytes(tiny.read_bytes()[:20_000])
    library = runtime_for("2.51.0").library("libQnnHtp.so")
    large, damaged, small = reserved(probe, library, [spill, half, tiny])
    assert isinstance(large, Size)
    assert isinstance(small, Size)
    assert isinstance(damaged, Unsized)
    assert small.spill_fill == 0
    (graph,) = context_for("spill-heavy-2mb", "2.51.0").metadata["graphs"]
    assert large.spill_fill == graph["spill_fill_bytes"]
    old = runtime_for("2.47.0").library("libQnnHtp.so")
    assert [type(size) for size in reserved(probe, old, [tiny, spill])] == [Unsized] * 2


def test_what_kills_the_library_spoils_no_other(probe: Path, tmp_path: Path) -> None:
    stand_in, files = build_backend(tmp_path), []
    for behaviour in ("plain", "dies-read", "refuse"):
        files.append(tmp_path / behaviour)
        files[-1].write_text(f"stand-in {behaviour} 408 2 1 8")
    answers = reserved(probe, stand_in, files)
    reasons = [size.reason for size in answers if isinstance(size, Unsized)]
    assert reasons == ["no reason given", "crashed", "this is 1002"]


def test_the_commands(context_for: ContextFor, tmp_path: Path, logged: Logged) -> None:
    def run(command: object, *arguments: object) -> tuple[int | None, str]:
        completed = CliRunner().invoke(
            command,  # type: ignore[arg-type]
            [str(argument) for argument in arguments],
            standalone_mode=False,
        )
        assert completed.exception is None, completed.exception
        return completed.return_value, completed.stdout

    large = context_for("io-heavy-56mb", "2.51.0").path
    code, text = run(fit_command, large, "--copies", 66, "--json")
    answer = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(answer)
    assert (code, answer["fits"], answer["sessions"]) == (1, False, 1)
    assert answer["budget_bytes"] > 3_000_000_000
    assert answer["loads"] == answer["first_refused"]["load"] == 54
    assert {change["change"]: change["fits"] for change in answer["changes"]}["sequential"]
    code, text = run(fit_command, large, "--copies", 66, "--residency", "sequential")
    assert code == 0
    options = ("--budget", "80000000", "--sessions", "2")
    code, text = run(fit_command, large, FOREIGN, "--copies", 4, *options)
    assert (code, "PD 1 [" in text) == (0, True)
    code, text = run(fit_command, FIELD / "executorch-3-contexts.pte", "--copies", 4, "--json")
    rows = json.loads(text)["contexts"]
    assert (code, {row["source"] for row in rows}) == (0, {"measured"})
    assert [row["name"].partition("#")[2] for row in rows] == ["0", "1", "2", "0"]
    code, text = run(fit_command, large, "--qnn", "2.47", "--budget", "1000")
    assert (code, "5000" in text, "newer-context (known)" in text) == (1, True, True)
    code, text = run(fit_command, large, "--copies", 300, "--qnn", "2.47", "--json")
    answer = json.loads(text)
    assert (code, answer["fits"], answer["loads"], answer["domains"]) == (1, False, 0, [])
    (tmp_path / "cut.bin").write_bytes(FOREIGN.read_bytes()[:5000])
    told_wrong = CliRunner().invoke(fit_command, [f"{tmp_path}/cut.bin"], standalone_mode=False)
    assert str(told_wrong.exception).startswith(f"{tmp_path}/cut.bin: QnnSystemContext_getMeta")
    (tmp_path / "empty.onnx").write_bytes(epcontext([{"embed_mode": 1}]))
    code, text = run(fit_command, FOREIGN, tmp_path / "empty.onnx")
    (warning,) = logged.warnings
    assert (code, "empty.onnx" in warning) == (0, True)
