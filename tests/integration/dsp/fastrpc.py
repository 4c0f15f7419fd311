"""Our libcdsprpc.so, compiled for this computer and called from Python: a skel runs behind it."""

import ctypes
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.core.state_folders import BOARDS, cache_root
from harness.dsp.emulator import build_fastrpc
from harness.dsp.replies import DspReply, read_replies
from harness.dsp.simulated_dsp import DspLimits, DspPrograms, lay_out_dsp
from tests.integration.dsp.board import processes_of
from tests.stand_in.build import c_compiler

CDSP: Final = 3
BAD_PARAMETER, NO_SUCH, NO_SUCH_MAP = 0xE, 0x27, 0x48
REFUSED, BAD_STATE, NO_SUCH_SYMBOL = 0x72, 0x8000040D, 0x80000442
Buffer = tuple[ctypes.Array[ctypes.c_char] | int, int]
"""An array or an address, and the size."""


class RemoteArgument(ctypes.Structure):
    """A buffer of a call; where it is a handle, fd and offset are in the first word."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class FastRpc:
    """One instance of the library, with state of its own, and the folder of its DSP."""

    def __init__(self, folder: Path, programs: DspPrograms, limits: DspLimits) -> None:
        """Lays out a DSP in `folder`; the environment and the skels are the caller's."""
        copy = folder / f"libcdsprpc-{len(list(folder.glob('libcdsprpc-*')))}.so"
        shutil.copyfile(build_fastrpc([c_compiler()], cache_root() / BOARDS), copy)
        self.dsp = folder / "dsp"
        if not self.dsp.exists():
            lay_out_dsp(self.dsp, programs, limits)
        self.lib = ctypes.CDLL(str(copy))
        self.lib.rpcmem_alloc2.restype = ctypes.c_void_p

    def open(self, uri: str, session: int = 0) -> tuple[int, int]:
        """The error of remote_handle64_open, and the handle."""
        handle = ctypes.c_uint64()
        text = f"{uri}&_session={session}" if session else uri
        error = self.lib.remote_handle64_open(text.encode(), ctypes.byref(handle))
        return unsigned(error), handle.value

    def close(self, handle: int) -> int:
        return unsigned(self.lib.remote_handle64_close(ctypes.c_uint64(handle)))

    def invoke(
        self,
        handle: int,
        method: int,
        inputs: Sequence[Buffer] = (),
        outputs: Sequence[Buffer] = (),
        handles: Sequence[tuple[int, int]] = (),
    ) -> int:
        """The error of remote_handle64_invoke; a handle is a fd and an offset."""
        buffers = (*inputs, *outputs)
        arguments = (RemoteArgument * (len(buffers) + len(handles)))()
        for place, (data, size) in zip(arguments, buffers, strict=False):
            place.data = data if isinstance(data, int) else ctypes.addressof(data)
            place.size = size
        for place, (fd, offset) in zip(arguments[len(buffers) :], handles, strict=True):
            place.data = fd | offset << 32
        scalars = method << 24 | len(inputs) << 16 | len(outputs) << 8 | len(handles) << 4
        function = self.lib.remote_handle64_invoke
        return unsigned(function(ctypes.c_uint64(handle), scalars, arguments))

    def call(
        self, handle: int, method: int, *inputs: bytes, sizes: Sequence[int] = ()
    ) -> tuple[int, list[bytes]]:
        """A call with copied buffers: its error, and the outputs of these sizes."""
        sent = [(ctypes.create_string_buffer(data, len(data)), len(data)) for data in inputs]
        got = [(ctypes.create_string_buffer(size), size) for size in sizes]
        return self.invoke(handle, method, sent, got), [array.raw for array, _ in got]

    def ask(self, handle: int, method: int, count: int, *values: int) -> tuple[int, ...]:
        """A call with words, which is answered by so many words."""
        error, (words_back,) = self.call(handle, method, words(*values), sizes=[4 * count])
        assert error == 0, self.log()
        return struct.unpack(f"<{count}I", words_back)

    def alloc(self, size: int) -> tuple[int, int]:
        """The address and the fd of memory that both sides can have."""
        address = self.lib.rpcmem_alloc2(25, 1, ctypes.c_size_t(size))
        return address, self.lib.rpcmem_to_fd(ctypes.c_void_p(address))

    def free(self, address: int) -> None:
        self.lib.rpcmem_free(ctypes.c_void_p(address))

    def map(self, fd: int, size: int, flags: int = 3) -> int:
        return unsigned(self.lib.fastrpc_mmap(CDSP, fd, None, 0, ctypes.c_size_t(size), flags))

    def unmap(self, fd: int) -> int:
        return unsigned(self.lib.fastrpc_munmap(CDSP, fd, None, ctypes.c_size_t(0)))

    def said(self, *kinds: str) -> list[DspReply]:
        """The replies that the harness would read, of these kinds."""
        return [reply for reply in read_replies(self.dsp) if reply.by in kinds]

    def log(self) -> str:
        return (self.dsp / "log").read_text(errors="replace")

    def processes(self) -> list[int]:
        """The running processes of this DSP."""
        return sorted(processes_of(self.dsp / "loader"))


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def unsigned(error: int) -> int:
    return error & 0xFFFFFFFF
