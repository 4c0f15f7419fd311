"""Inputs and expected outputs of users, as the raw files that the probe reads."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from harness.containers.artefact import Blob, Tensor
from harness.containers.extract import piece_file
from harness.core.errors import ConfigError
from harness.core.files import keep_whole, open_regular
from harness.core.outgoing_text import counted, first_names
from harness.core.paths_inside import list_inside, open_below

_MAX_BYTES: Final = 2 << 30
MOST_MADE_UP: Final = 512 << 20
"""Most bytes of generated inputs of one model."""

_MAX_LISTED: Final = 512
_SEED: Final = 20_240
_WORD = re.compile(r"[^A-Za-z0-9]+")
_DIGITS = re.compile(r"(\d+)")
_NUMBER: Final = re.compile(r"(.*?)(\d{1,6})", re.ASCII)
_REALS: Final = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
# types of indices and counts: any table has two rows, and few have a million
_INDICES: Final = ("int32", "uint32", "int64", "uint64")
_NPY_MAGIC: Final = b"\x93NUMPY"
# numpy's kinds by data type; a type that numpy does not have (4 bits) accepts any
_KINDS: Final = {"float": "f", "int": "i", "sfixed": "i", "uint": "u", "ufixed": "u", "bool": "bui"}
_TYPE: Final = re.compile(r"(float|int|sfixed|uint|ufixed|bool)(8|16|32|64)")


class TensorFiles:
    """Raw files by tensor; converted and generated ones are kept below `<cache_root>/tensors`."""

    def __init__(self, cache_root: Path) -> None:
        self._cache = cache_root
        self._root = cache_root / "tensors"
        self._made_up: dict[Tensor, Path] = {}

    def resolve(
        self,
        field: str,
        source: Path | tuple[Path, ...],
        tensors: Sequence[Tensor],
        binary: Path,
        root: Path | None = None,
    ) -> tuple[Path, ...]:
        """Return one raw file per tensor, from a folder or a list of files.

        No link is followed in that folder, or below `root`, the folder that the user named.
        Raises ConfigError naming `field` and `binary` for a wrong number of files or a wrong size.
        """
        tensor_list = ", ".join(str(tensor) for tensor in tensors) or "none"
        if isinstance(source, Path):
            if not source.exists():
                problem = (
                    f"{source} does not exist; give a folder with a raw or .npy file for each of: "
                )
                raise ConfigError(problem + tensor_list, file=binary, field=field)
            prefix = f"{source} has " if source.is_dir() else f"{source} is "
            files = listed_files(field, source, binary, root)
            if files != (source,):
                files = self._match_folder(field, source, files, tensors, binary)
                root = root or source
        else:
            prefix, files = "", source
        if len(files) != len(tensors):
            verb = "gives" if field == "expected" else "takes"
            file_count = counted(len(files), "file")
            problem = f"{prefix}{file_count}, but the graph {verb} {len(tensors)}: {tensor_list}"
            if prefix and tensors:
                problem += f"; name each file after its tensor ({tensors[0].name}.npy)"
            raise ConfigError(problem, file=binary, field=field)
        pairs = zip(files, tensors, strict=True)
        return tuple(self._raw_file(field, file, tensor, binary, root) for file, tensor in pairs)

    def generated(self, tensors: Sequence[Tensor], binary: Path) -> tuple[Path, ...]:
        """Return deterministic inputs: reals from 0 to 1, indices 0 or 1, else random bytes."""
        require_few_bytes(tensors, binary)
        for tensor in tensors:
            if tensor not in self._made_up:
                self._made_up[tensor] = self.store(made_up(tensor))
        return tuple(self._made_up[tensor] for tensor in tensors)

    def _match_folder(
        self,
        field: str,
        folder: Path,
        files: Sequence[Path],
        tensors: Sequence[Tensor],
        binary: Path,
    ) -> tuple[Path, ...]:
        """Return a folder's files in the order of the tensors."""
        named, others, missing = match_files(files, tensors)
        if not missing:
            return named
        if named:
            strays = "".join(f"; no tensor is named like {file.name}" for file in others[:5])
            problem = f"{folder} has no file for {', '.join(map(str, missing))}{strays}"
            raise ConfigError(problem, file=binary, field=field)
        if len(others) == len(tensors) and others and not _numbered(others):
            names = ", ".join(tensor.name for tensor in tensors)
            problem = f"files in {folder} ({first_names(file.name for file in others)}) need the "
            problem += f"names of their tensors ({names}) or numbers from 0"
            raise ConfigError(problem, file=binary, field=field)
        return others

    def _raw_file(
        self, field: str, file: Path, tensor: Tensor, binary: Path, root: Path | None
    ) -> Path:
        try:
            with (
                open_regular(file)
                if root is None
                else open_below(root, file.relative_to(root).as_posix())
            ) as stream:
                size = os.fstat(stream.fileno()).st_size
                if file.suffix == ".npy":
                    content, size, kind, fits = _array(stream, tensor)
                else:
                    content, kind, fits = None, "raw data", True
        except (OSError, ValueError, EOFError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise ConfigError(
                f"cannot read {file}: {reason or error}", file=binary, field=field
            ) from error
        if size != tensor.size or not fits:
            problem = f"{file} has {kind}, {size} bytes; expected {tensor}"
            raise ConfigError(problem, file=binary, field=field)
        if content is not None:
            return self.store(content)
        if root is None:
            return file
        return piece_file(Blob(file, 0, size, file.name, root=root), self._cache)

    def store(self, content: bytes) -> Path:
        """Return a file with this content, named by its digest, so that it never changes."""
        path = self._root / f"{hashlib.sha256(content).hexdigest()[:32]}.raw"
        keep_whole(path, content)
        return path


def match_files(
    files: Sequence[Path], tensors: Sequence[Tensor]
) -> tuple[tuple[Path, ...], tuple[Path, ...], tuple[Tensor, ...]]:
    """Return the files named like tensors, the other files, and the tensors without one (pure).

    The first are in the order of the tensors, the others by name, input.2 before input.10.
    """
    names = [_plain(tensor.name) for tensor in tensors]
    # X and x, or a:0 and a_0, differ only as they are written
    plain = _plain if len({*names}) == len(names) else str
    by_name = {plain(file.stem): file for file in files}
    keys = {tensor: plain(tensor.name) for tensor in tensors}
    by_tensor = {tensor: by_name[key] for tensor, key in keys.items() if key in by_name}
    named = set(by_tensor.values())
    return (
        tuple(by_tensor.values()),
        tuple(sorted({*files} - named, key=lambda file: _in_order(file.name))),
        tuple(tensor for tensor in tensors if tensor not in by_tensor),
    )


def _numbered(files: Sequence[Path]) -> bool:
    matches = [_NUMBER.fullmatch(file.stem) for file in files]
    same_prefix = len({match and match[1] for match in matches}) == 1
    numbers = [int(match[2]) for match in matches if match]
    counted_from = [[*range(first, first + len(files))] for first in (0, 1)]
    return same_prefix and sorted(numbers) in counted_from


def require_few_bytes(tensors: Sequence[Tensor], binary: Path) -> None:
    """Raise ConfigError for inputs that are too large to be generated."""
    if (size := sum(tensor.size for tensor in tensors)) > MOST_MADE_UP:
        problem = (
            f"inputs of {size:,} bytes are not generated (at most {MOST_MADE_UP:,}); pass --inputs"
        )
        raise ConfigError(problem, file=binary, field="inputs")


def made_up(tensor: Tensor) -> bytes:
    """Return the generated content of an input, the same every time (pure)."""
    import numpy as np

    random = np.random.default_rng([_SEED, *tensor.name.encode()])
    if (real := _REALS.get(tensor.data_type)) is not None:
        return random.random(tensor.size // np.dtype(real).itemsize).astype(real).tobytes()
    if tensor.data_type in _INDICES:
        dtype = np.dtype(tensor.data_type).newbyteorder("<")
        return random.integers(0, 2, tensor.size // dtype.itemsize).astype(dtype).tobytes()
    content = random.bytes(tensor.size)
    return bytes(byte & 1 for byte in content) if tensor.data_type == "bool8" else content


def listed_files(
    field: str, folder: Path, binary: Path, root: Path | None = None
) -> tuple[Path, ...]:
    """Return the files of a folder, at or below `root`, or the one file.

    Raises ConfigError naming `field` and `binary` for one that cannot be read, or has too many.
    """
    if folder.is_file():
        return (folder,)
    try:
        below = root and folder.relative_to(root).as_posix()
        names = list_inside(root, below) if root and below else os.listdir(folder)
        paths = [folder / name for name in sorted(names) if not name.startswith(".")]
        if link := next((path for path in paths if path.is_symlink()), None):
            problem = f"{link} is a link, and links in a folder are not followed"
            raise ConfigError(f"{problem}; put the file itself there", file=binary, field=field)
        files = tuple(path for path in paths if path.is_file())
    except OSError as error:
        problem = f"cannot read {folder}: {error.strerror or error}"
        raise ConfigError(problem, file=binary, field=field) from error
    if len(files) > _MAX_LISTED:
        problem = f"{folder} has {counted(len(files), 'file')}; a graph takes {_MAX_LISTED} at most"
        raise ConfigError(problem, file=binary, field=field)
    return files


def _array(stream: BinaryIO, tensor: Tensor) -> tuple[bytes | None, int, str, bool]:
    """Return an array's content, its size, its description, and whether it fits the tensor.

    It fits if its elements and its shape are the tensor's, but for sides of 1; one row of all
    elements fits, too. The content of an array that does not fit is not read: it may be as large
    as its file says.
    """
    import numpy as np

    if stream.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
        raise ValueError("it is not a .npy file")
    # the file that was opened, even if it has been replaced since
    stream.seek(0)
    array = np.load(f"/dev/fd/{stream.fileno()}", mmap_mode="r", allow_pickle=False)
    if array.nbytes > _MAX_BYTES:
        raise ValueError(f"{array.nbytes} bytes are more than the limit of {_MAX_BYTES}")
    type_match = _TYPE.fullmatch(tensor.data_type)
    fits = type_match is None or (
        array.dtype.kind in _KINDS[type_match[1]] and array.itemsize * 8 == int(type_match[2])
    )
    kind = f"{array.dtype.name} {list(array.shape)}"
    fits &= array.nbytes == tensor.size
    shape = _sides(tensor.shape or array.shape)
    fits &= array.ndim == 1 or _sides(array.shape) == shape
    if not fits:
        return None, array.nbytes, kind, fits
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.tobytes(), array.nbytes, kind, fits


def _sides(shape: Sequence[int]) -> list[int]:
    return [side for side in shape if side != 1]


def _plain(name: str) -> str:
    return _WORD.sub("_", name).strip("_").lower()


def _in_order(name: str) -> list[tuple[int, str]]:
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]
