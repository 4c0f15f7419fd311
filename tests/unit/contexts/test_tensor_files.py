"""Inputs and expected outputs that a user gives: which file is whose, and of what size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from harness.contexts.metadata import Tensor
from harness.contexts.tensor_files import TensorFiles, chosen_files, made_up
from harness.errors import ConfigError

X, MASK = Tensor("x", 8, "float32"), Tensor("mask:0", 4, "uint8")
BINARY = Path("/mine/model.bin")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["mask_0.raw", "x.raw"], ["x.raw", "mask_0.raw"]),
        (["input.10.raw", "input.2.raw"], ["input.2.raw", "input.10.raw"]),
        (["x.npy", "other.npy"], ["other.npy", "x.npy"]),
        (["X.bin", "mask_0.raw", "readme.txt"], ["X.bin", "mask_0.raw"]),
        (["1", "a", "02"], ["1", "02", "a"]),
    ],
)
def test_whose_a_file_of_a_folder_is(names: list[str], expected: list[str]) -> None:
    found = chosen_files([Path(name) for name in names], [X, MASK])
    assert [path.name for path in found] == expected


@pytest.fixture
def files(tmp_path: Path) -> TensorFiles:
    return TensorFiles(tmp_path / "cache")


def test_raw_files_are_used_as_they_lie_and_arrays_by_their_content(
    files: TensorFiles, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / ".DS_Store").write_bytes(b"?")
    (folder / "mask_0.raw").write_bytes(b"1234")
    np.save(folder / "x.npy", np.array([1, 2], ">f4"))
    x, mask = files.given("inputs", folder, [X, MASK], BINARY)
    assert x.read_bytes() == np.array([1, 2], "<f4").tobytes()
    assert mask == folder / "mask_0.raw"
    listed = (folder / "x.npy", folder / "mask_0.raw")
    assert files.given("inputs", listed, [X, MASK], BINARY) == (x, mask)
    x.write_bytes(b"damaged")
    assert files.given("inputs", listed, [X, MASK], BINARY)[0].stat().st_size == 8


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, r"in has 0 files, and the graph has 1: x \(8 bytes of float32\)"),
        ({"a.raw": b"12345678", "b.raw": b"12345678"}, "in has 2 files, and the graph has 1"),
        ({"x.raw": b"1234"}, r"x.raw has 4 bytes \(raw\), and x \(8 bytes of float32\) is wanted"),
        ({"x.npy": np.zeros(2)}, r"x.npy has 16 bytes \(float64, \(2,\)\), and x "),
        ({"x.npy": np.array([{}], object)}, "cannot read .*x.npy: "),
        ({"x.npy": b"no array"}, "cannot read .*x.npy: that is no .npy file$"),
        ({"x.npy": b""}, "cannot read .*x.npy: that is no .npy file$"),
        ({"x.npy": np.zeros(2, "i4")}, r"x.npy has 8 bytes \(int32, \(2,\)\), and x .*float32"),
        ({"x.npy": np.zeros(1, "f8")}, r"x.npy has 8 bytes \(float64, \(1,\)\), and x "),
        (None, "cannot read .*in: No such file"),
    ],
)
def test_files_that_do_not_fit(
    content: dict[str, bytes | np.ndarray] | None, told: str, files: TensorFiles, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    for name, data in (content or {}).items():
        folder.mkdir(exist_ok=True)
        if isinstance(data, bytes):
            (folder / name).write_bytes(data)
        else:
            np.save(folder / name, data)
    if content == {}:
        folder.mkdir()
    with pytest.raises(ConfigError, match=f"^/mine/model.bin: inputs: .*{told}"):
        files.given("inputs", folder, [X], BINARY)


@pytest.mark.parametrize(
    ("data_type", "array", "taken"),
    [
        ("ufixed8", "u1", True),
        ("ufixed8", "i1", False),
        ("sfixed16", ">i2", True),
        ("sfixed16", "f2", False),
        ("float16", "f2", True),
        ("bool8", "?", True),
        ("bool8", "u1", True),
        ("int64", "i8", True),
        ("int64", "f8", False),
        ("sfixed4", "i1", True),
        ("bfloat16", "u2", True),
    ],
)
def test_elements_of_an_array_are_those_of_the_tensor(
    data_type: str, array: str, taken: bool, files: TensorFiles, tmp_path: Path
) -> None:
    values = np.array([1, 0], array)
    np.save(tmp_path / "x.npy", values)
    tensor = Tensor("x", values.nbytes, data_type)
    if taken:
        (raw,) = files.given("expected", (tmp_path / "x.npy",), [tensor], BINARY)
        assert raw.read_bytes() == values.astype(values.dtype.newbyteorder("<")).tobytes()
        return
    with pytest.raises(ConfigError, match=f"x.npy has .*, and x .*{data_type}.* is wanted"):
        files.given("expected", (tmp_path / "x.npy",), [tensor], BINARY)


@pytest.mark.parametrize("name", ["x.npy", "x.raw"])
def test_what_is_no_file_is_never_read(name: str, files: TensorFiles, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / f"pipe-{name}")
    for path in (tmp_path / name, tmp_path / f"pipe-{name}"):
        tensor = Tensor("x", path.stat().st_size, "uint8")
        with pytest.raises(ConfigError, match=f"inputs: cannot read {path}: that is not a file"):
            files.given("inputs", (path,), [tensor], BINARY)


def test_inputs_that_are_made_up(files: TensorFiles) -> None:
    real = np.frombuffer(made_up(Tensor("x", 4000, "float32"), BINARY), "<f4")
    assert 0 <= real.min() < 0.1 < 0.9 < real.max() <= 1
    assert set(made_up(Tensor("b", 100, "bool8"), BINARY)) == {0, 1}
    rows = np.frombuffer(made_up(Tensor("i", 400, "int32"), BINARY), "<i4")
    assert set(rows.tolist()) == {0, 1}
    assert len(set(made_up(Tensor("u", 5000, "ufixed16"), BINARY))) == 256
    assert files.generated([X, MASK], BINARY) == files.generated([X, MASK], BINARY)
    assert made_up(Tensor("a", 8, "uint8"), BINARY) != made_up(Tensor("b", 8, "uint8"), BINARY)
    with pytest.raises(ConfigError, match="give files"):
        made_up(Tensor("x", 1 << 40, "uint8"), BINARY)
