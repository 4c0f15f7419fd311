"""Our libcdsprpc.so, compiled for this computer and called from Python, over a fake DSP."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.core.cache import BOARDS, cache_root
from harness.dsp.dsp import DspLimits, DspPrograms, DspReply, lay_out_dsp, read_replies
from harness.dsp.emulator import build_fastrpc
from tests.needed import C_COMPILERS, need
from tests.stand_in.fake_dsp import Method, install

SKEL: Final = "libFakeV73Skel.so"
URI: Final = f"file:///{SKEL}?fake_skel_handle_invoke&_modver=1.0&_dom=cdsp"
CDSP: Final = 3
UNABLE_TO_LOAD, BAD_STATE = 0x80000406, 0x8000040D
NO_SUCH, CONNECTION_RESET, REFUSED = 0x27, 0x68, 0x72


def elf_of(arch: int, machine: int = 164, bits: int = 1) -> bytes:
    """The head of a library of a Hexagon."""
    head = bytearray(52)
    head[:5] = b"\x7fELF" + bytes([bits])
    head[18:20] = machine.to_bytes(2, "little")
    head[36:40] = int(str(arch), 16).to_bytes(4, "little")
    return bytes(head)


class RemoteArgument(ctypes.Structure):
    """A buffer of a call; where it is a handle, fd and offset are in the first word."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@dataclass
class Wanted:
    """The arguments of a call: bytes in, bytes out, or (fd, offset)."""

    method: int
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    handles: Sequence[tuple[int, int]] = ()


class FastRpc:
    """One instance of the library, with state of its own, and the folder of its DSP."""

    def __init__(self, folder: Path, limits: DspLimits | None = None) -> None:
        """Lays out a fake DSP and a skel in `folder`; the environment is the caller's."""
        compilers = [path for name in C_COMPILERS if (path := shutil.which(name))]
        if not compilers:
            need(*C_COMPILERS)
        built = build_fastrpc(compilers[:1], cache_root() / BOARDS)
        copy = folder / f"libcdsprpc-{len(list(folder.glob('libcdsprpc-*')))}.so"
        shutil.copyfile(built, copy)
        self.dsp, self.skels = folder / "dsp", folder / "skels"
        if not self.dsp.exists():
            loader = folder / "loader-of-the-fake"
            loader.touch()
            lay_out_dsp(self.dsp, DspPrograms(install(folder), loader), limits or DspLimits())
            self.skels.mkdir()
            (self.skels / SKEL).write_bytes(elf_of(73))
        self.library = ctypes.CDLL(str(copy))
        self.library.rpcmem_alloc2.restype = ctypes.c_void_p

    def open(self, uri: str = URI, session: int = 0) -> tuple[int, int]:
        """The error of remote_handle64_open, and the handle."""
        handle = ctypes.c_uint64()
        text = f"{uri}&_session={session}" if session else uri
        return code(
            self.library.remote_handle64_open(text.encode(), ctypes.byref(handle))
        ), handle.value

    def close(self, handle: int) -> int:
        return code(self.library.remote_handle64_close(ctypes.c_uint64(handle)))

    def invoke(self, handle: int, request: Wanted) -> int:
        """The error of remote_handle64_invoke; buffers are addresses or arrays, with sizes."""
        buffers = (*request.inputs, *request.outputs)
        arguments = (RemoteArgument * (len(buffers) + len(request.handles)))()
        for place, (data, size) in zip(arguments, buffers, strict=False):
            place.data, place.size = (
                (data if isinstance(data, int) else ctypes.addressof(data)),
                size,
            )
        for place, (fd, offset) in zip(arguments[len(buffers) :], request.handles, strict=True):
            place.data = fd | offset << 32
        scalars = request.method << 24 | len(request.inputs) << 16 | len(request.outputs) << 8
        scalars |= len(request.handles) << 4
        return code(
            self.library.remote_handle64_invoke(ctypes.c_uint64(handle), scalars, arguments)
        )

    def reverse(self, handle: int, data: bytes) -> tuple[int, bytes]:
        """A call with copied buffers: its error, and what came back."""
        sent, got = (
            ctypes.create_string_buffer(data, len(data)),
            ctypes.create_string_buffer(len(data)),
        )
        request = Wanted(Method.REVERSE, [(sent, len(data))], [(got, len(data))])
        return self.invoke(handle, request), got.raw

    def mapped(self, handle: int) -> list[int]:
        """The fds that the DSP has mapped."""
        got = ctypes.create_string_buffer(4096)
        assert self.invoke(handle, Wanted(Method.MAPPED, (), [(got, 4096)])) == 0
        return [int(fd) for fd in got.value.split()]

    def alloc(self, size: int) -> tuple[int, int]:
        address = self.library.rpcmem_alloc2(25, 1, ctypes.c_size_t(size))
        return address, self.library.rpcmem_to_fd(ctypes.c_void_p(address))

    def free(self, address: int) -> None:
        self.library.rpcmem_free(ctypes.c_void_p(address))

    def map(self, fd: int, size: int, flags: int = 3, domain: int = CDSP) -> int:
        return code(self.library.fastrpc_mmap(domain, fd, None, 0, ctypes.c_size_t(size), flags))

    def unmap(self, fd: int, domain: int = CDSP) -> int:
        return code(self.library.fastrpc_munmap(domain, fd, None, ctypes.c_size_t(0)))

    def said(self) -> tuple[DspReply, ...]:
        """The replies that the harness would read."""
        return read_replies(self.dsp)

    def processes(self) -> list[int]:
        """Ids of all processes that were begun as this DSP."""
        calls = self.dsp / "seen"
        return (
            [int(line.split("\t")[0]) for line in calls.read_text().splitlines()]
            if calls.exists()
            else []
        )


def code(answer: int) -> int:
    """An error as it is written, without a sign."""
    return answer & 0xFFFFFFFF
