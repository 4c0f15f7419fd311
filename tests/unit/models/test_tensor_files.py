"""Inputs and expected outputs that a user gives: which file is whose, and of what size."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from harness.containers.artefact import Tensor
from harness.core.errors import ConfigError
from harness.models import tensor_files
from harness.models.tensor_files import TensorFiles, made_up, match_files
from tests.snapshots import Snapshot

X, MASK = Tensor("x", 8, "float32"), Tensor("mask:0", 4, "uint8")
BINARY = Path("/mine/model.bin")


@pytest.mark.parametrize(
    ("names", "named", "others"),
    [
        (["mask_0.raw", "x.raw"], "x.raw mask_0.raw", ""),
        (["X.bin", "mask_0.raw", "readme.txt"], "X.bin mask_0.raw", "readme.txt"),
        (["x.npy", "other.npy"], "x.npy", "other.npy"),
        (["input.10.raw", "input.2.raw"], "", "input.2.raw input.10.raw"),
        (["1", "a", "02"], "", "1 02 a"),
    ],
)
def test_whose_a_file_of_a_folder_is(names: list[str], named: str, others: str) -> None:
    matched = match_files([Path(name) for name in names], [X, MASK])
    assert [" ".join(map(str, paths)) for paths in matched[:2]] == [named, others]
    assert matched[2] == (X, MASK)[len(named.split()) :]


@pytest.mark.parametrize("names", [("X", "x"), ("a:0", "a_0")])
def test_tensors_that_are_called_nearly_alike_have_files_of_their_own(names: Sequence[str]) -> None:
    tensors = [Tensor(name, 4, "float32") for name in names]
    named, _, missing = match_files([Path(f"{name}.raw") for name in names], tensors)
    assert [file.stem for file in named] == [*names]
    assert not missing
    assert match_files([Path(f"{names[0]}.raw")], tensors)[2] == (tensors[1],)


@pytest.fixture
def files(tmp_path: Path) -> TensorFiles:
    return TensorFiles(tmp_path / "cache")


def test_raw_files_are_used_as_they_lie_and_arrays_by_their_content(
    files: TensorFiles, tmp_path: Path
) -> None:
    (tmp_path / ".DS_Store").write_bytes(b"?")
    (tmp_path / "mask_0.raw").write_bytes(b"1234")
    np.save(tmp_path / "x.npy", np.array([1, 2], ">f4"))
    x, mask = files.resolve("inputs", tmp_path, [X, MASK], BINARY)
    assert x.read_bytes() == np.array([1, 2], "<f4").tobytes()
    assert mask == tmp_path / "mask_0.raw"
    listed = (tmp_path / "x.npy", tmp_path / "mask_0.raw")
    assert files.resolve("inputs", listed, [X, MASK], BINARY) == (x, mask)
    x.write_bytes(b"damaged")
    assert files.resolve("inputs", listed, [X, MASK], BINARY)[0].stat().st_size == 8


@pytest.mark.parametrize("field", ["inputs", "expected"])
def test_a_file_of_another_name_beside_those_of_tensors_is_never_taken(
    field: str, files: TensorFiles, tmp_path: Path, snapshot: Snapshot
) -> None:
    for name in ("x.raw", "maks_0.raw"):
        (tmp_path / name).write_bytes(b"12345678")
    with snapshot.raises(ConfigError):
        files.resolve(field, tmp_path, [X, MASK], BINARY)


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [
        (["0.raw", "1.raw"], False),
        (["1.raw", "2.npy"], False),
        (["input_0_0.raw", "input_0_1.raw"], False),
        (["input.0.raw", "output.1.raw"], True),
        (["1.raw", "3.raw"], True),
        (["a.raw", "b.raw"], True),
        (["a.raw", "1.raw"], True),
    ],
)
def test_files_that_neither_names_nor_numbers_give_to_tensors_are_refused(
    names: list[str], is_refused: bool, files: TensorFiles, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(bytes(8))
        if name.endswith(".npy"):
            np.save(tmp_path / name, np.zeros(2, "<f4"))
    tensors = [X, Tensor("y", 8, "float32")]
    if not is_refused:
        assert len(files.resolve("inputs", tmp_path, tensors, BINARY)) == 2
        return
    with pytest.raises(ConfigError) as error:
        files.resolve("inputs", tmp_path, tensors, BINARY)
    assert error.value.field == "inputs"


def test_a_single_file_needs_the_name_of_its_tensor_or_a_number(
    files: TensorFiles, tmp_path: Path, snapshot: Snapshot
) -> None:
    (tmp_path / "img.npy").write_bytes(bytes(8))
    with snapshot.raises(ConfigError):
        files.resolve("inputs", tmp_path, [X], BINARY)
    (tmp_path / "img.npy").rename(tmp_path / "input_0.raw")
    assert files.resolve("inputs", tmp_path, [X], BINARY) == (tmp_path / "input_0.raw",)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"a.raw": b"12345678", "b.raw": b"12345678"},
        {"x.raw": b"1234"},
        {"x.npy": np.zeros(2)},
        {"x.npy": np.array([{}], object)},
        {"x.npy": b"no array"},
        {"x.npy": b""},
        {"x.npy": np.zeros(2, "i4")},
    ],
)
def test_files_that_do_not_fit(
    content: dict[str, bytes | np.ndarray], files: TensorFiles, tmp_path: Path
) -> None:
    for name, data in content.items():
        if isinstance(data, bytes):
            (tmp_path / name).write_bytes(data)
        else:
            np.save(tmp_path / name, data)
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(ConfigError) as error:
            files.resolve("inputs", folder, [X], BINARY)
        assert (error.value.file, error.value.field) == (BINARY, "inputs")


@pytest.mark.parametrize(
    ("data_type", "array", "is_accepted"),
    [
        ("ufixed8", "i1", False),
        ("sfixed16", ">i2", True),
        ("sfixed16", "f2", False),
        ("float16", "f2", True),
        ("bool8", "?", True),
        ("bool8", "u1", True),
        ("int64", "f8", False),
        ("sfixed4", "i1", True),
        ("bfloat16", "u2", True),
    ],
)
def test_elements_of_an_array_are_those_of_the_tensor(
    data_type: str, array: str, is_accepted: bool, files: TensorFiles, tmp_path: Path
) -> None:
    values = np.array([1, 0], array)
    np.save(tmp_path / "x.npy", values)
    tensor = Tensor("x", values.nbytes, data_type)
    if is_accepted:
        (raw,) = files.resolve("expected", (tmp_path / "x.npy",), [tensor], BINARY)
        assert raw.read_bytes() == values.astype(values.dtype.newbyteorder("<")).tobytes()
        return
    with pytest.raises(ConfigError, match=f"x.npy .*{data_type}"):
        files.resolve("expected", (tmp_path / "x.npy",), [tensor], BINARY)


@pytest.mark.parametrize(
    ("array_shape", "shape", "fits"),
    [
        ((3, 4), (1, 3, 1, 4), True),
        ((12,), (3, 4), True),
        ((4, 3), (3, 4), False),
        ((1, 3, 2, 2), (1, 2, 2, 3), False),
        ((2, 6), (3, 4), False),
        ((4, 3), None, True),
    ],
)
def test_an_array_has_the_shape_of_the_tensor(
    array_shape: tuple[int, ...],
    shape: tuple[int, ...] | None,
    fits: bool,
    files: TensorFiles,
    tmp_path: Path,
) -> None:
    values = np.arange(12, dtype="f4").reshape(array_shape)
    np.save(tmp_path / "x.npy", values)
    tensor = Tensor("x", 48, "float32", shape)
    if fits:
        (raw,) = files.resolve("inputs", (tmp_path / "x.npy",), [tensor], BINARY)
        assert raw.read_bytes() == values.tobytes()
        return
    with pytest.raises(ConfigError, match=re.escape(f"{[*array_shape]}, ")):
        files.resolve("inputs", (tmp_path / "x.npy",), [tensor], BINARY)


@pytest.mark.parametrize("name", ["x.npy", "x.raw"])
def test_what_is_no_file_is_never_read(name: str, files: TensorFiles, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / f"pipe-{name}")
    for path in (tmp_path / name, tmp_path / f"pipe-{name}"):
        tensor = Tensor("x", path.stat().st_size, "uint8")
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            files.resolve("inputs", (path,), [tensor], BINARY)


def test_inputs_that_are_made_up(files: TensorFiles) -> None:
    real = np.frombuffer(made_up(Tensor("x", 4000, "float32")), "<f4")
    assert 0 <= real.min() < 0.1 < 0.9 < real.max() <= 1
    assert set(made_up(Tensor("b", 100, "bool8"))) == {0, 1}
    rows = np.frombuffer(made_up(Tensor("i", 400, "int32")), "<i4")
    assert set(rows.tolist()) == {0, 1}
    assert len(set(made_up(Tensor("u", 5000, "ufixed16")))) == 256
    assert files.generated([X, MASK], BINARY) == files.generated([X, MASK], BINARY)
    assert made_up(Tensor("a", 8, "uint8")) != made_up(Tensor("b", 8, "uint8"))
    with pytest.raises(ConfigError):
        files.generated([Tensor("x", 1 << 40, "uint8")], BINARY)


@pytest.mark.parametrize("name", ["x.npy", "x.raw"])
def test_a_link_that_was_put_there_meanwhile_is_not_followed(
    name: str, files: TensorFiles, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(tmp_path / "secret.npy", np.array([1, 2], "<f4"))
    (folder / name).write_bytes(b"x" * (tmp_path / "secret.npy").stat().st_size)

    def then_swapped(*arguments: Any) -> Any:
        (folder / name).unlink()
        (folder / name).symlink_to(tmp_path / "secret.npy")
        return match_files(*arguments)

    size = 8 if name == "x.npy" else (tmp_path / "secret.npy").stat().st_size
    tensor = Tensor("x", size, "float32" if name == "x.npy" else "uint8")
    swapped = mock.patch.object(tensor_files, "match_files", then_swapped)
    with swapped, pytest.raises(ConfigError, match=name):
        files.resolve("inputs", folder, [tensor], BINARY)


def test_of_a_folder_where_others_write_a_copy_is_used(files: TensorFiles, tmp_path: Path) -> None:
    """Whoever opens it later does so by its path, where a link may lie by then."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.raw").write_bytes(b"12345678")
    folder.chmod(0o777)
    (x,) = files.resolve("inputs", folder, [X], BINARY)
    assert x != folder / "x.raw"
    assert x.read_bytes() == b"12345678"
    assert files.resolve("inputs", folder / "x.raw", [X], BINARY) == (folder / "x.raw",)
