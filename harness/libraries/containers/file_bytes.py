"""A file that is read at places: what does not lie within it is an ArtefactError, not a crash."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from harness.ground.files.names_inside import NotInsideError
from harness.libraries.containers.artefact import ArtefactError, open_file

_MAX_READ: Final = 1 << 20
# What all reads of a file may cost: its bytes, and for each read some more. The largest models that
# people have come to a fifth of it; a file that was made to be endless ends here in some ten s.
_BUDGET: Final = 1 << 27
_COST_OF_A_READ: Final = 16


class FileBytes:
    """The bytes of one file, `size` of them. Little of it is in memory, however large it is.

    Not a memory map: a file that somebody cuts off meanwhile is an error, not a SIGBUS.
    """

    def __init__(self, path: Path, within: Path | None = None) -> None:
        """`within` is a folder that the file must lie in, with no link on the way.

        Raises ArtefactError for what is no readable, regular file.
        """
        self.path, self.within = path, within
        try:
            # a FIFO would have to be waited for
            if within is None and not stat.S_ISREG(path.stat().st_mode):
                raise ArtefactError("is not a file", file=path)
            self._file = open_file(path, within)
            self.size = os.fstat(self._file.fileno()).st_size
        except NotInsideError as error:
            raise ArtefactError(str(error.strerror), file=path) from error
        except OSError as error:
            raise ArtefactError(f"cannot be read: {error.strerror or error}", file=path) from error
        self._left = _BUDGET

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def open(self) -> BinaryIO:
        """The file once more, for what reads it in its own way. Raises OSError."""
        return open_file(self.path, self.within)

    def error(self, problem: str, offset: int) -> ArtefactError:
        """An error about this file at an offset."""
        return ArtefactError(problem, file=self.path, offset=offset)

    def require(self, offset: int, size: int, what: str) -> None:
        """Raises ArtefactError if `size` bytes from `offset` on do not lie within the file."""
        if offset < 0 or size < 0 or offset + size > self.size:
            problem = f"{what} of {size} bytes does not lie within the file of {self.size}"
            if offset <= self.size:
                problem += ": the file is cut off, or damaged"
            raise self.error(problem, offset)

    def at(self, offset: int, size: int, what: str) -> bytes:
        """So many bytes, at most 1 MiB of them. Raises ArtefactError."""
        self.require(offset, size, what)
        if size > _MAX_READ:
            raise self.error(f"{what} has {size} bytes, more than the {_MAX_READ} allowed", offset)
        self._left -= size + _COST_OF_A_READ
        if self._left < 0:
            raise self.error("the file has more parts than any artefact that is known", offset)
        try:
            self._file.seek(offset)
            content = self._file.read(size)
        except OSError as error:
            raise self.error(f"{what} cannot be read: {error.strerror}", offset) from error
        if len(content) < size:
            raise self.error(f"the file was cut off while {what} was read", offset)
        return content

    def number(self, form: str, offset: int, what: str) -> Any:
        """One number in a form of `struct`, such as "<I". Raises ArtefactError."""
        return struct.unpack(form, self.at(offset, struct.calcsize(form), what))[0]
