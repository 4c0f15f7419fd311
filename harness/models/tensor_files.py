"""Inputs and expected outputs that a user gives, as the raw files that the probe takes."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from harness.containers.artefact import Blob
from harness.containers.extract import piece_file
from harness.core.errors import ConfigError
from harness.core.names_inside import listed_inside, open_below
from harness.core.outgoing_text import counted
from harness.core.whole_file import keep_whole, open_regular
from harness.core.yaml_document import did_you_mean
from harness.models.metadata import Tensor

_log = logging.getLogger(__name__)

_MAX_BYTES: Final = 2 << 30
MOST_MADE_UP: Final = 512 << 20
"""Bytes of all inputs of a model that are made up."""

_BLOCK: Final = 16 << 20
_MAX_LISTED: Final = 512
_MAX_SAMPLES: Final = 256
_SEED: Final = 20_240
_WORD = re.compile(r"[^A-Za-z0-9]+")
_SAMPLE = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_DIGITS = re.compile(r"(\d+)")
_NUMBER: Final = re.compile(r"(.*?)(\d{1,6})", re.ASCII)
_REALS: Final = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}
# what an index, or a count, is passed as: any table has two rows, and few have a million
_INDICES: Final = ("int32", "uint32", "int64", "uint64")
_NPY_MAGIC: Final = b"\x93NUMPY"
# what numpy calls the elements of a type; one without a type of numpy's (4 bits) takes any
_KINDS: Final = {"float": "f", "int": "i", "sfixed": "i", "uint": "u", "ufixed": "u", "bool": "bui"}
_TYPE: Final = re.compile(r"(float|int|sfixed|uint|ufixed|bool)(8|16|32|64)")


class TensorFiles:
    """Raw files by tensor; what has to be made for that is kept below `<cache_root>/tensors`."""

    def __init__(self, cache_root: Path) -> None:
        self._cache = cache_root
        self._root = cache_root / "tensors"
        self._made_up: dict[Tensor, Path] = {}
        self._looked_at: set[Path] = set()

    def given(
        self,
        what: str,
        where: Path | tuple[Path, ...],
        tensors: Sequence[Tensor],
        binary: Path,
        within: Path | None = None,
        *,
        sample: str = "",
    ) -> tuple[Path, ...]:
        """One raw file per tensor, of those that a folder or a list has.

        Of a folder with several sets, those of `sample`.
        No link is followed in that folder, or from `within` on, which the user has named. A file
        with NaN is told once: whatever is compared of what comes of it says little. Raises
        ConfigError naming `what` and `binary` for a wrong number of files, or a wrong size.
        """
        if sample and isinstance(where, Path):
            where, within = where / sample, where
        wanted = ", ".join(str(one) for one in tensors) or "none"
        if isinstance(where, Path):
            if not where.exists():
                problem = (
                    f"there is no {where}, a folder with a raw file or a .npy for each of: {wanted}"
                )
                raise ConfigError(problem, file=binary, field=what)
            found = f"{where} has " if where.is_dir() else f"{where} is "
            files = listed_files(what, where, binary, within)
            if files != (where,):
                files = self._chosen(what, where, files, tensors, binary)
                within = within or where
        else:
            found, files = "", where
        if len(files) != len(tensors):
            does = "gives" if what == "expected" else "takes"
            there = counted(len(files), "file")
            problem = f"{found}{there}, and the graph {does} {len(tensors)}: {wanted}"
            if found and tensors:
                problem += f"; in a folder each is called as its tensor ({tensors[0].name}.npy)"
            raise ConfigError(problem, file=binary, field=what)
        pairs = zip(files, tensors, strict=True)
        return tuple(self._raw(what, file, tensor, binary, within) for file, tensor in pairs)

    def generated(self, tensors: Sequence[Tensor], binary: Path) -> tuple[Path, ...]:
        """Deterministic inputs: reals from 0 to 1, indices 0 or 1, else whatever bytes come."""
        require_few_bytes(tensors, binary)
        for tensor in tensors:
            if tensor not in self._made_up:
                self._made_up[tensor] = self.keep(made_up(tensor))
        return tuple(self._made_up[tensor] for tensor in tensors)

    def _chosen(
        self,
        what: str,
        folder: Path,
        files: Sequence[Path],
        tensors: Sequence[Tensor],
        binary: Path,
    ) -> tuple[Path, ...]:
        """The files of a folder in the order of its tensors; a guess at whose they are is told."""
        named, left, missing = whose_files(files, tensors)
        if not missing:
            return named
        if named:
            names = [one.name for one in missing]
            strays = [
                f"; {one.name} is called like none{did_you_mean(one.stem, names)}"
                for one in left[: len(names)]
            ]
            problem = f"{folder} has no file for {', '.join(map(str, missing))}{''.join(strays)}"
            raise ConfigError(problem, file=binary, field=what)
        if len(left) == len(tensors) and not _numbered(left) and folder not in self._looked_at:
            self._looked_at.add(folder)
            pairs = zip(left, tensors, strict=True)
            taken = ", ".join(f"{file.name} as {tensor.name}" for file, tensor in pairs)
            why = "is called like a tensor: they are taken in the order of their names"
            _log.warning("%s: no file in %s %s: %s", what, folder, why, taken)
        return left

    def _raw(
        self, what: str, file: Path, tensor: Tensor, binary: Path, within: Path | None
    ) -> Path:
        try:
            with _opened(file, within) as stream:
                size = os.fstat(stream.fileno()).st_size
                if file.suffix == ".npy":
                    content, size, kind, fits = _array(stream, tensor)
                else:
                    content, kind, fits = None, "raw", True
                if size == tensor.size and fits and file not in self._looked_at:
                    self._tell_of_nan(what, file, tensor, stream, content)
        except (OSError, ValueError, EOFError) as error:
            told = error.strerror if isinstance(error, OSError) else None
            raise ConfigError(
                f"cannot read {file}: {told or error}", file=binary, field=what
            ) from error
        if size != tensor.size or not fits:
            problem = f"{file} has {size} bytes ({kind}), and {tensor} is wanted"
            raise ConfigError(problem, file=binary, field=what)
        if content is not None:
            return self.keep(content)
        return file if within is None else _found(file, size, within, self._cache)

    def _tell_of_nan(
        self, what: str, file: Path, tensor: Tensor, stream: BinaryIO, content: bytes | None
    ) -> None:
        self._looked_at.add(file)
        if tensor.data_type not in _REALS:
            return
        if nan := _nan_in(io.BytesIO(content) if content is not None else stream, tensor):
            of_inputs = "what targets make of NaN need not agree"
            comes = of_inputs if what == "inputs" else "only NaN agrees with it"
            where = counted(nan, "element")
            _log.warning("%s: %s has NaN in %s of %s; %s", what, file, where, tensor, comes)

    def keep(self, content: bytes) -> Path:
        """A file with this content, after which it is called, so that it never changes."""
        path = self._root / f"{hashlib.sha256(content).hexdigest()[:32]}.raw"
        keep_whole(path, content)
        return path


def lying_files(what: str, where: Path, binary: Path, cache_root: Path) -> tuple[Path, ...]:
    """The files of a folder in the order of their names, or the file that it is.

    If others could put a link in their place there, they are copies. Raises ConfigError naming
    `what` and `binary`, and InfraError.
    """
    found = in_name_order(listed_files(what, where, binary))
    if found == (where,):
        return found
    try:
        return tuple(_found(one, one.lstat().st_size, where, cache_root) for one in found)
    except OSError as error:
        problem = f"cannot read {where}: {error.strerror}"
        raise ConfigError(problem, file=binary, field=what) from error


def _found(file: Path, size: int, within: Path, cache_root: Path) -> Path:
    return piece_file(Blob(file, 0, size, file.name, within=within), cache_root)


def _opened(file: Path, within: Path | None) -> BinaryIO:
    if within is None:
        return open_regular(file)
    return open_below(within, file.relative_to(within).as_posix())


def sample_names(what: str, folder: Path | tuple[Path, ...] | None, binary: Path) -> list[str]:
    """The names of the folders that a folder has instead of files: each has a set of tensors.

    Raises ConfigError naming `what` and `binary` for one that cannot be read, or has too many.
    """
    if not isinstance(folder, Path) or folder.is_file() or listed_files(what, folder, binary):
        return []
    with os.scandir(folder) as listed:
        found = [
            one.name for one in listed if one.is_dir(follow_symlinks=False) and one.name[0] != "."
        ]
    if len(found) > _MAX_SAMPLES:
        folders = counted(len(found), "folder")
        problem = f"{folder} has {folders}; {_MAX_SAMPLES} sets of tensors are the most"
        raise ConfigError(problem, file=binary, field=what)
    if odd := next((one for one in found if not _SAMPLE.fullmatch(one)), None):
        problem = f"no set of tensors can be called {odd!r}: letters, digits, . _ - are known"
        raise ConfigError(problem, file=binary, field=what)
    return sorted(found, key=_in_order)


def whose_files(
    files: Sequence[Path], tensors: Sequence[Tensor]
) -> tuple[tuple[Path, ...], tuple[Path, ...], tuple[Tensor, ...]]:
    """The files that are called like tensors, the others, and the tensors without one (pure).

    The first are in the order of the tensors, the others in that of their names, input.2 before
    input.10.
    """
    names = [_plain(tensor.name) for tensor in tensors]
    # X and x, or a:0 and a_0, are told apart only as they are written
    plain = _plain if len({*names}) == len(names) else str
    by_name = {plain(file.stem): file for file in files}
    found = {one: by_name[plain(one.name)] for one in tensors if plain(one.name) in by_name}
    named = set(found.values())
    return (
        tuple(found.values()),
        in_name_order([file for file in files if file not in named]),
        tuple(one for one in tensors if one not in found),
    )


def in_name_order(files: Sequence[Path]) -> tuple[Path, ...]:
    """Files by their names, input.2 before input.10 (pure)."""
    return tuple(sorted(files, key=lambda file: _in_order(file.name)))


def _numbered(files: Sequence[Path]) -> bool:
    found = [_NUMBER.fullmatch(file.stem) for file in files]
    alike = len({one and one[1] for one in found}) == 1
    numbers = [int(one[2]) for one in found if one]
    counted_from = [[*range(first, first + len(files))] for first in (0, 1)]
    return alike and sorted(numbers) in counted_from


def require_few_bytes(tensors: Sequence[Tensor], binary: Path) -> None:
    """Raise ConfigError for inputs that are larger than what is made up."""
    if (size := sum(one.size for one in tensors)) > MOST_MADE_UP:
        problem = f"they have {size:,} bytes, and {MOST_MADE_UP:,} are made up at most: give files"
        raise ConfigError(problem, file=binary, field="inputs")


def made_up(tensor: Tensor) -> bytes:
    """An input's content where nobody gave one, the same every time (pure)."""
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
    what: str, folder: Path, binary: Path, within: Path | None = None
) -> tuple[Path, ...]:
    """The files of a folder, which is one below `within`, or the file that it is.

    Raises ConfigError naming `what` and `binary` for one that cannot be read, or has too many.
    """
    if folder.is_file():
        return (folder,)
    try:
        below = within and folder.relative_to(within).as_posix()
        names = listed_inside(within, below) if within and below else os.listdir(folder)
        listed = [folder / name for name in sorted(names) if not name.startswith(".")]
        if link := next((one for one in listed if one.is_symlink()), None):
            problem = f"{link} is a link, and links in a folder are not followed"
            raise ConfigError(f"{problem}: put the file itself there", file=binary, field=what)
        found = tuple(path for path in listed if path.is_file())
    except OSError as error:
        problem = f"cannot read {folder}: {error.strerror or error}"
        raise ConfigError(problem, file=binary, field=what) from error
    if len(found) > _MAX_LISTED:
        problem = f"{folder} has {counted(len(found), 'file')}; a graph takes {_MAX_LISTED} at most"
        raise ConfigError(problem, file=binary, field=what)
    return found


def _array(stream: BinaryIO, tensor: Tensor) -> tuple[bytes | None, int, str, bool]:
    """The content of an array, its size, what it is, and whether it is one of the tensor's.

    Its elements are the tensor's, and so is its shape, but for sides of 1; one row of all elements
    will do, too. The content of an array that does not fit is not read: it may be as large as its
    file says.
    """
    import numpy as np

    if stream.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
        raise ValueError("that is no .npy file")
    # the file that was opened, whatever lies in its place by now
    stream.seek(0)
    array = np.load(f"/dev/fd/{stream.fileno()}", mmap_mode="r", allow_pickle=False)
    if array.nbytes > _MAX_BYTES:
        raise ValueError(f"{array.nbytes} bytes are too many")
    wanted = _TYPE.fullmatch(tensor.data_type)
    fits = wanted is None or (
        array.dtype.kind in _KINDS[wanted[1]] and array.itemsize * 8 == int(wanted[2])
    )
    kind = f"{array.dtype.name}, {array.shape}"
    fits &= array.nbytes == tensor.size
    plain = not fits and tensor.data_type in (*_REALS, *_INDICES)
    if plain and array.size * np.dtype(tensor.data_type).itemsize == tensor.size:
        kind += f': save it with .astype("{tensor.data_type}")'
    shape = _sides(tensor.shape or array.shape)
    if fits and array.ndim != 1 and (sides := _sides(array.shape)) != shape:
        cure = "is it transposed?" if sorted(sides) == sorted(shape) else "reshape it"
        kind, fits = f"{kind}, not {tensor.shape}: {cure}", False
    if not fits:
        return None, array.nbytes, kind, fits
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.tobytes(), array.nbytes, kind, fits


def _sides(shape: Sequence[int]) -> list[int]:
    return [side for side in shape if side != 1]


def _nan_in(stream: BinaryIO, tensor: Tensor) -> int:
    """How many elements of a tensor of real numbers are NaN, read block by block."""
    import numpy as np

    blocks = iter(lambda: stream.read(_BLOCK), b"")
    counts = (
        np.count_nonzero(np.isnan(np.frombuffer(one, _REALS[tensor.data_type]))) for one in blocks
    )
    return int(sum(counts))


def _plain(name: str) -> str:
    return _WORD.sub("_", name).strip("_").lower()


def _in_order(name: str) -> list[tuple[int, str]]:
    parts = _DIGITS.split(name)
    return [(int(one), "") if one.isdecimal() else (0, one) for one in parts]
