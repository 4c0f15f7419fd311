"""The compiler's options in context binaries: those of the field, made ones, and any bytes."""

import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.containers.artefact import Piece
from harness.containers.open import open_artefact
from harness.models.compiler_options import MAIN_OPTIONS, compiler_options
from tests.unit.containers.made import FIELD

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters=";=/"))


def options_in(content: bytes, path: Path) -> dict[str, str]:
    path.write_bytes(content)
    return compiler_options(Piece(path, 0, len(content), "", "context"))


def record(line: str, words: int = 0) -> bytes:
    text = f"Op{line}\0".encode()
    words = words or -(-(len(text) + 2) // 4)
    return (struct.pack("<H", words) + text).ljust(4 * words, b"\0")


def shortened(name: str, before: list[str]) -> str:
    """Write a name as the compiler does, by the longest beginning that one before it has."""
    best = name
    for back, other in enumerate(reversed(before[-36:])):
        alike = len([*filter(None, (name[: i + 1] == other[: i + 1] for i in range(len(name))))])
        if min(alike, len(other)) >= 3 and len(name) - alike + 2 < len(best):
            best = f"{DIGITS[back]}{DIGITS[min(alike, 38) - 3]}{name[min(alike, 38) :]}"
    return best


@pytest.mark.parametrize(
    ("file", "main", "number"),
    [
        ("add_add_1*.bin", "2 UNKNOWN_SDM 73 4 4 2048 false false", 245),
        ("qnn_multi_ctx_embed.onnx", "2 UNKNOWN_SDM 73 4 4 2048 false false", 245),
        ("*sm8650*.tflite", "3 SM8650 75 -1 4 3584 false true", 320),
        ("executorch-3-contexts.pte", "3 SM8550 73 -1 4 3584 false true", 370),
        ("test_abs.dlc", "", 0),
    ],
)
def test_what_people_have(file: str, main: str, number: int) -> None:
    (path,) = FIELD.glob(file)
    for piece in open_artefact(path).pieces:
        options = compiler_options(piece)
        assert " ".join(options[name] for name in MAIN_OPTIONS if name in options) == main
        assert len(options) == number
        assert all(name.isidentifier() for name in options)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=30))
def test_names_are_written_by_those_before_them(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, str]
) -> None:
    options = {"O": "3"} | options
    names = list(options)
    items = [f"{shortened(name, names[:i])}={options[name]};" for i, name in enumerate(names)]
    path = tmp_path_factory.getbasetemp() / "made.bin"
    assert options_in(b"\1\0" + record("".join(items)) + b"behind", path) == options


@given(st.binary(), st.integers(0, 40), st.binary())
def test_any_bytes_are_read(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, words: int, after: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    head = struct.pack("<H", words) + b"OpO=3;ZZ=;0Z=1;"
    assert len(options_in(before + head + after, path)) <= 60


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (record("O=3;") + record("O=2;a=1;"), {"O": "3 / 2", "a": "1"}),
        (record("O=3;", words=9), {}),
        (record("O=3;")[:8], {}),
        (record("O=3;a_registry_listb=1;0Z=2;"), {"O": "3", "a_registry_list": "", "b": "1 / 2"}),
        (bytes((1 << 20) - 5) + record("O=3;" + "abc=1;" * 9_000), {"O": "3", "abc": "1"}),
        (record(f"O={'x' * 70_000};"), {}),
        (b"".join(record(f"O={n};") for n in range(200_000)), None),
        (b"xxOpA=" * 500_000, {}),
    ],
    ids=["two", "size", "cut", "empty list", "between windows", "long", "many", "no end"],
)
def test_what_is_made_up(content: bytes, options: dict[str, str] | None, tmp_path: Path) -> None:
    found = options_in(content, tmp_path / "made.bin")
    if options is None:  # of a record for each of very many graphs only the first are read
        assert 64 <= len(found["O"].split(" / ")) < 200_000
    else:
        assert found == options
