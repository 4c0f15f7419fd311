"""Models are the same to the byte every time, and as large as their names say."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given

from harness.core.errors import ConfigError, InfraError
from harness.models.builtin_models import KINDS, PREPARATIONS, Model, OnnxFiles
from harness.models.generated_models import OPERATORS, random_bytes
from tests.properties import damaged, reached, reaches
from tests.snapshots import Snapshot

SPECS = {
    "tiny": Model("tiny"),
    "tiny-variant3": Model("tiny", variant=3),
    "weights-heavy-4mb": Model("weights-heavy", 4),
    "io-heavy-56mb": Model("io-heavy", 56),
    "io-heavy-2mb-variant1": Model("io-heavy", 2, 1),
    "spill-heavy-2mb-variant1": Model("spill-heavy", 2, 1),
    "io-heavy-2mb-variant1-by-memhandle": Model("io-heavy", 2, 1, "memhandle"),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_model_has_its_name_is_valid_and_takes_its_inputs(name: str) -> None:
    spec = SPECS[name]
    assert str(spec) == name
    assert Model.parse(name) == spec
    model = spec.build()
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == list(spec.inputs())
    assert [value.name for value in model.graph.output] == list(spec.outputs())
    for value, array in zip(model.graph.input, spec.inputs().values(), strict=True):
        tensor = value.type.tensor_type
        assert tuple(side.dim_value for side in tensor.shape.dim) == array.shape
        assert onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type) == array.dtype


def test_a_model_is_the_same_in_another_process() -> None:
    names = ["tiny", "weights-heavy-4mb", "io-heavy-56mb"]
    code = (
        "import hashlib; from harness.models.builtin_models import Model\n"
        f"for name in {names}:"
        " print(hashlib.sha256(Model.parse(name).serialized()).hexdigest())"
    )
    command, environment = [sys.executable, "-c", code], {"PYTHONHASHSEED": "7"}
    there = subprocess.check_output(command, text=True, env=environment).split()
    assert there == [hashlib.sha256(SPECS[name].serialized()).hexdigest() for name in names]


def test_sums_of_pooled_maps_do_not_saturate() -> None:
    brightest = int(Model("spill-heavy", 2).inputs()["x"].max())
    assert brightest > 20
    assert 9 * brightest <= 255


def test_random_bytes_are_those_of_every_numpy() -> None:
    """Held fixed: other bytes here would silently be other models under the same names."""
    digest = hashlib.sha256(random_bytes("seed", 1000).tobytes()).hexdigest()
    assert digest == "9e08d1d92982bc065f733d27942e7df3a6cfdb5497d1b7f0400de68c3c2ff24f"
    assert len(random_bytes("seed", 7)) == 7
    np.testing.assert_array_equal(random_bytes("seed", 7), random_bytes("seed", 1000)[:7])


@pytest.mark.parametrize("kind", KINDS)
def test_variants_differ(kind: str) -> None:
    size = KINDS[kind].megabytes[0]
    few = kind.startswith("mobilenet") or kind in OPERATORS  # each takes a while to make
    count = 3 if few else 70
    specs = [Model(kind, size, variant) for variant in range(count)]
    assert len({hashlib.sha256(spec.serialized()).digest() for spec in specs}) == count
    assert len({str(spec) for spec in specs}) == count


@pytest.mark.parametrize(
    ("kind", "megabytes", "variant"),
    [
        ("huge", 0, 0),
        ("tiny", 4, 0),
        ("weights-heavy", 0, 0),
        ("io-heavy", 55, 0),
        ("tiny", 0, 10_000),
    ],
)
def test_models_that_do_not_exist(
    kind: str, megabytes: int, variant: int, snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        Model(kind, megabytes, variant)


@reaches(0.01)
@given(damaged("io-heavy-56mb-variant12") | damaged("tiny") | damaged("weights-heavy-8mb-for-v75"))
def test_any_name_is_a_model_or_a_config_error(name: str) -> None:
    try:
        spec = Model.parse(name)
    except ConfigError:
        return
    reached()
    assert Model.parse(str(spec)) == spec


def test_how_a_context_is_prepared_changes_nothing_in_its_model() -> None:
    raw = Model("io-heavy", 2)
    for prepare in PREPARATIONS:
        prepared = Model("io-heavy", 2, prepare=prepare)
        assert prepared.serialized() == raw.serialized()
        assert Model.parse(str(prepared)) == prepared
        np.testing.assert_array_equal(prepared.inputs()["x"], raw.inputs()["x"])
    other = Model("io-heavy", 2, prepare="memhandle", htp_arch=75)
    assert (str(other), Model.parse(str(other))) == ("io-heavy-2mb-by-memhandle-for-v75", other)
    assert other.serialized() == raw.serialized()
    with pytest.raises(ConfigError):
        Model("tiny", prepare="somehow")  # type: ignore[arg-type]


def test_a_models_file_is_made_once(tmp_path: Path) -> None:
    path = OnnxFiles(tmp_path).path(Model("tiny"))
    assert path.read_bytes() == Model("tiny").serialized()
    modified = path.stat().st_mtime_ns
    assert OnnxFiles(tmp_path).path(Model("tiny")) == path
    assert path.stat().st_mtime_ns == modified
    assert [path.name for path in path.parent.iterdir()] == [path.name]
    path.write_bytes(path.read_bytes()[:-1])
    assert OnnxFiles(tmp_path).path(Model("tiny")).read_bytes() == Model("tiny").serialized()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "onnx").write_text("in the way")
    with pytest.raises(InfraError):
        OnnxFiles(tmp_path).path(Model("tiny"))


def test_a_model_whose_digest_is_noted_is_not_built(tmp_path: Path) -> None:
    """Workers of a run would each load onnx and numpy for contexts that are there already."""
    code = (
        "import sys; from pathlib import Path\n"
        "from harness.models.context_cache import ContextStore\n"
        "from harness.models.builtin_models import Model\n"
        "store = ContextStore(Path(sys.argv[1]), None, None)\n"
        "print(store._key(Model('tiny')), 'onnx' in sys.modules, 'numpy' in sys.modules)"
    )

    def key() -> list[str]:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    built = [hashlib.sha256(Model("tiny").serialized()).hexdigest(), "True", "True"]
    assert key() == built
    assert key() == [built[0], "False", "False"]
    (note,) = (tmp_path / "contexts/digests").iterdir()
    for damage in (b"", b"Z" * 64):
        note.write_bytes(damage)
        assert key() == built
    assert (
        len({Model("tiny").recipe, Model("tiny", variant=1).recipe, Model("io-heavy", 2).recipe})
        == 3
    )
    assert Model("tiny", prepare="spill-fill").recipe == Model("tiny").recipe
