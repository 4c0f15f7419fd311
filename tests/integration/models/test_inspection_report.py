"""Files read by the real libQnnSystem.so: whole, damaged, inside of other files."""

import json
import random
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from harness.cli.model import inspect_command
from harness.containers.artefact import Piece
from harness.containers.extract import extract
from harness.containers.open import open_artefact
from harness.models import context_metadata
from harness.models.context_metadata import Unreadable, read_each
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan
from harness.probe.plan_runner import run_plan_locally
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.probe.conftest import build_backend

ROOT = Path(__file__).parents[3]
FIELD = Path(__file__).parents[2] / "field"
FOREIGN = min(FIELD.glob("add_add*.bin"))
VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
SCHEMA = json.loads((ROOT / "docs/schema/inspect.schema.json").read_text())


def whole(path: Path) -> Piece:
    return Piece(path, 0, path.stat().st_size, "", "context")


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_inside_of_a_file_say_what_they_say_alone(
    version: str, tmp_path: Path, runtime_for: RuntimeFor, probes: ProbeBuilder
) -> None:
    library = runtime_for(version).library("libQnnSystem.so")
    content, pieces = FOREIGN.read_bytes(), [whole(FOREIGN)]
    for offset in (1, 8, 4096, 5000):
        path = tmp_path / f"at-{offset}"
        path.write_bytes(b"x" * offset + content + b"behind it")
        pieces.append(Piece(path, offset, len(content), "", "context"))
    first, *others = read_each(probes, library, pieces)
    assert not isinstance(first, Unreadable)
    assert first["build_id"] == "v2.22.0.240425235059_92863"
    assert others == [first] * 4


def test_damaged_binaries_are_told_or_read_and_spoil_no_other(
    tmp_path: Path, context_for: ContextFor, runtime_for: RuntimeFor, probes: ProbeBuilder
) -> None:
    chance = random.Random(15)
    pieces = []
    for number, path in enumerate((FOREIGN, context_for("tiny", "2.51.0").path)):
        content = path.read_bytes()
        for kind in ("cut", "flipped"):
            for _ in range(50):
                place = chance.randrange(len(content))
                changed = bytearray(content[:place] if kind == "cut" else content)
                if kind == "flipped":
                    changed[place] ^= 1 << chance.randrange(8)
                damaged = tmp_path / f"{number}-{len(pieces)}-{kind}"
                damaged.write_bytes(changed)
                pieces.append(whole(damaged))
        pieces.append(whole(path))
    library = runtime_for("2.51.0").library("libQnnSystem.so")
    answers = read_each(probes, library, pieces)
    for piece, answer in zip(pieces, answers, strict=True):
        if not piece.path.name.endswith("flipped"):
            assert isinstance(answer, Unreadable) == piece.path.name.endswith("cut")


def test_what_crashes_or_holds_up_the_library_is_told(
    tmp_path: Path, probes: ProbeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_metadata, "_TIMEOUT_S", 1.0)
    paths = []
    for behaviour in ("plain", "dies-read", "per-channel", "hangs-read", "many-graphs", "plain"):
        paths.append(tmp_path / f"{len(paths)}-{behaviour}")
        paths[-1].write_text(f"stand-in {behaviour} 408 2 1 8")
    library = build_backend(tmp_path)
    plain, dies, channels, hangs, many, last = read_each(probes, library, [*map(whole, paths)])
    assert not isinstance(plain, Unreadable)
    assert not isinstance(channels, Unreadable)
    assert plain == last
    assert channels["graphs"][0]["inputs"][0]["encoding"] == "axis-scale-offset"
    assert channels["graphs"][0]["inputs"][0]["channels"] == 8
    messages = [hang.reason for hang in (dies, hangs, many) if isinstance(hang, Unreadable)]
    for message, part in zip(messages, ("signal 6", "1 s", "100000 graphs"), strict=True):
        assert part in message


def test_a_large_file_is_not_read_into_memory(
    tmp_path: Path, runtime_for: RuntimeFor, probes: ProbeBuilder
) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.write(FOREIGN.read_bytes())
        file.truncate(4 << 30)
    steps = (
        plan.system_load(str(runtime_for("2.51.0").library("libQnnSystem.so"))),
        plan.context_inspect(str(path), size=FOREIGN.stat().st_size),
        plan.context_inspect(str(path)),
    )
    run = run_plan_locally(probes.build("linux-x64"), Plan(steps), env={}, timeout_s=60)
    part, all_of_it = run.transcript.steps[1:]
    assert part.ok
    assert (all_of_it.data["size"], all_of_it.ended) == (4 << 30, True)
    assert all_of_it.rss_after_bytes is not None
    assert all_of_it.rss_after_bytes < 200e6


def inspected(*words: object) -> Result:
    return CliRunner().invoke(inspect_command, [*map(str, words)], standalone_mode=False)


def test_the_command(tmp_path: Path, context_for: ContextFor) -> None:
    context = context_for("tiny", "2.51.0")
    completed = inspected(FOREIGN, context.path, "--json")
    assert completed.return_value == 0
    inspection = json.loads(completed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(inspection)
    old, new = inspection["contexts"]
    assert (old["build_id"], old["htp_arch"]) == ("v2.22.0.240425235059_92863", None)
    assert (new["sha256"], new["htp_arch"], new["problem"]) == (context.sha256, 73, None)
    assert new["graphs"][0]["inputs"][0]["dimensions"] == [1, 16]
    half = tmp_path / "half.bin"
    half.write_bytes(context.path.read_bytes()[:20_000])
    completed = inspected(half, FOREIGN, "--qnn", "2.47")
    assert completed.return_value == 1
    assert re.search("QnnSystemContext_get(BinaryInfo|Metadata) returned 30010", completed.stdout)
    assert "float32 [3 x 4], 48 bytes, raw" in completed.stdout
    assert "read by QNN 2.47.0" in completed.stdout
    text = tmp_path / "text"
    text.write_text("no context")
    completed = inspected(text, FOREIGN)
    assert completed.return_value == 2
    assert str(text) in completed.stderr
    assert str(FOREIGN) in completed.stdout
    completed = inspected(text)
    assert (completed.return_value, completed.stdout) == (2, "")
    # one that was changed since it was extracted does not hide the others
    extract([open_artefact(FOREIGN)], tmp_path / "out")
    (copied,) = (tmp_path / "out").glob("*.bin")
    copied.write_bytes(copied.read_bytes()[::-1])
    completed = inspected(tmp_path / "out", FOREIGN)
    assert (completed.return_value, str(FOREIGN) in completed.stdout) == (2, True)
    assert str(copied) in completed.stderr


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_what_people_have(version: str) -> None:
    completed = inspected(FIELD, "--qnn", version, "--json")
    assert completed.return_value == 0, completed.output
    inspection = json.loads(completed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(inspection)
    by_kind: dict[str, list[dict[str, object]]] = {}
    for context in inspection["contexts"]:
        by_kind.setdefault(context["artefact"], []).append(context)
    counts = {kind: len(contexts) for kind, contexts in by_kind.items()}
    assert counts == {"pte": 3, "epcontext": 4, "tflite": 2, "dlc": 1}
    builds = {kind: str(contexts[-1]["build_id"]) for kind, contexts in by_kind.items()}
    assert builds["pte"].startswith("v2.49.40.")
    assert builds["epcontext"].startswith("v2.22.0.")
    assert builds["tflite"].startswith("v2.34.0.")
    assert (builds["dlc"], by_kind["dlc"][0]["problem"]) == ("None", None)
    assert [context["htp_arch"] for context in by_kind["tflite"]] == [79, 75]
    assert all(
        context["graphs"] for kind in ("pte", "epcontext", "tflite") for context in by_kind[kind]
    )
