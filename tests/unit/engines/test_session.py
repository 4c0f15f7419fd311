"""Files of a user's .onnx for ONNX Runtime, before any device is used."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.containers.open import open_artefact
from harness.core.engine import ENGINES
from harness.core.errors import ConfigError
from harness.engines.ort import open_session
from harness.models.artefact_sources import ModelOptions, contexts_of
from harness.models.builtin_models import Model
from harness.models.session_plan import ClosenessLimits, DeployedModel
from tests.snapshots import Snapshot
from tests.unit.containers.made import epcontext

FIELD = Path(__file__).parents[2] / "field"
EXTERNAL = FIELD / "qnn_multi_ctx_external.onnx"


def test_files_beside_an_epcontext_model_go_with_it(tmp_path: Path) -> None:
    model = open_session(EXTERNAL)
    assert [str(source) for source in model.sources] == [f"{EXTERNAL.name}#0", f"{EXTERNAL.name}#1"]
    assert (model.model, model.mixed) == (None, False)
    np.save(tmp_path / "0.npy", np.ones((3, 4), np.float32))
    files = model.files(tmp_path, None)
    assert files.pop("model/model.onnx") == EXTERNAL
    assert files.pop("input.0.raw").read_bytes() == np.ones(12, np.float32).tobytes()
    assert {f"model/{path.name}": path for path in FIELD.glob("add_*.bin")} == files
    deployed = model.deployed(None, "/d", model.files(None, tmp_path), 0.5)
    assert deployed == DeployedModel(
        "/d/model/model.onnx", ("/d/input.0.raw",), ("/d/expected.0.raw",), 0.5
    )
    with pytest.raises(ConfigError, match=r"2 files.* 1"):
        model.files((tmp_path, tmp_path), None)


def test_a_plain_model_has_inputs_of_its_own_unless_some_are_given(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(Model("tiny").serialized())
    known = DeployedModel("/m.onnx", ("/i",), ("/e",), 0.1)
    compared, other = open_session(path, 0.1), open_session(path)
    assert compared.files(None, None) == {}
    assert compared.deployed(known, "", (), 0.1) == known
    assert other.deployed(known, "", (), 0).expected == ()
    np.save(tmp_path / "x.npy", np.ones(16, np.float32))
    with_inputs = open_session(path, 0.0, tmp_path / "x.npy", tmp_path / "x.npy")
    assert with_inputs.model.inputs()["x"].all()
    files = with_inputs.files(tmp_path / "x.npy", tmp_path / "x.npy")
    assert list(files) == ["expected.0.raw"]
    deployed = with_inputs.deployed(known, "/d", files, 0)
    assert (deployed.inputs, deployed.expected) == (("/i",), ("/d/expected.0.raw",))


@pytest.mark.parametrize(
    "name", ["executorch-3-contexts.pte", "test_abs.dlc", min(FIELD.glob("*.bin")).name]
)
def test_what_onnx_runtime_does_not_take(name: str, snapshot: Snapshot) -> None:
    snapshot.hide(FIELD, "FIELD")
    with snapshot.raises(ConfigError):
        open_session(FIELD / name)


def test_what_cannot_be_brought_to_a_device_is_told(tmp_path: Path, snapshot: Snapshot) -> None:
    shutil.copy(next(FIELD.glob("*.bin")), tmp_path / "a b.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(epcontext([{"embed_mode": 0, "ep_cache_context": "a b.bin"}]))
    with snapshot.raises(ConfigError):
        open_session(path)


def test_other_nodes_may_be_on_the_cpu_and_empty_caches_are_no_contexts(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    binary = next(FIELD.glob("*.bin")).read_bytes()
    nodes = [{"embed_mode": 1, "ep_cache_context": binary}, {"embed_mode": 1}]
    path.write_bytes(epcontext(nodes, others=1))
    model = open_session(path)
    assert (model.mixed, [str(source) for source in model.sources]) == (True, ["m.onnx"])


def test_another_model_to_compare_with_has_the_same_tensors(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    path, other = tmp_path / "m.onnx", tmp_path / "o.onnx"
    path.write_bytes(Model("tiny").serialized())
    other.write_bytes(Model("io-heavy", 2).serialized())
    closeness = ClosenessLimits(original=path)
    (whole,) = ENGINES["ort"].cases(path, ModelOptions(closeness=closeness))
    assert whole.closeness is closeness
    as_contexts = contexts_of(open_artefact(path), tmp_path, ModelOptions(closeness=closeness))
    assert as_contexts.closeness is closeness
    wrong = ModelOptions(closeness=ClosenessLimits(original=other))
    snapshot.hide(FIELD, "FIELD")
    for model in (path, EXTERNAL):
        with snapshot.raises(ConfigError):
            ENGINES["ort"].cases(model, wrong)
