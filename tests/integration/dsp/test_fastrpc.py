"""FastRPC by our libcdsprpc.so, over a fake DSP: handles, calls, shared memory, limits, deaths."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.dsp.dsp import DspLimits
from tests.integration.dsp.fastrpc import (
    BAD_STATE,
    CDSP,
    NO_SUCH,
    REFUSED,
    SKEL,
    URI,
    FastRpc,
    Wanted,
    elf_of,
)
from tests.needed import C_COMPILERS
from tests.stand_in.fake_dsp import Method

pytestmark = pytest.mark.needs(*C_COMPILERS)


@pytest.fixture
def fastrpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FastRpc]:
    """Makes a library with a DSP of these limits."""

    def make(**limits: int) -> FastRpc:
        rpc = FastRpc(tmp_path, DspLimits(**limits))
        monkeypatch.setenv("QNN_DSP", str(rpc.dsp))
        monkeypatch.setenv("ADSP_LIBRARY_PATH", f"/nowhere;{rpc.skels}")
        monkeypatch.delenv("DSP_LIBRARY_PATH", raising=False)
        return rpc

    return make


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended(process: int) -> bool:
    """Return whether a process ends within a few seconds."""
    end = time.monotonic() + 20
    while is_alive(process) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_alive(process)


def test_a_call_goes_to_a_process_that_has_nothing_of_ours_and_ends_with_its_last_handle(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()
    error, handle = rpc.open()
    assert (error, rpc.reverse(handle, b"hexagon")) == (0, (0, b"nogaxeh"))
    _, arguments, fds, names = (rpc.dsp / "seen").read_text().rstrip("\n").split("\t")
    assert arguments == f"{rpc.dsp}/loader {rpc.skels}/{SKEL}"
    assert fds == "[0, 1, 2, 3]"
    assert names == "QNN_DSP"
    (process,) = rpc.processes()
    second_error, second = rpc.open()
    assert (second_error, rpc.processes(), rpc.close(handle)) == (0, [process], 0)
    assert is_alive(process)
    assert rpc.reverse(handle, b"x")[0] == 0x2C, "closed handles are unknown"
    assert (rpc.reverse(second, b"ab"), rpc.close(second)) == ((0, b"ba"), 0)
    assert ended(process)
    assert rpc.said() == ()


def test_sessions_are_processes_of_their_own_and_the_device_has_so_many(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc(sessions=2)
    assert [rpc.open(session=item)[0] for item in (0, 1, 2)] == [0, 0, REFUSED]
    assert [reply.words for reply in rpc.said()] == ["no session is left: the device has 2"]
    assert len(rpc.processes()) == 2
    other = FastRpc(rpc.dsp.parent)
    assert other.open()[0] == REFUSED
    assert rpc.library.remote_session_control(7, ctypes.byref(ctypes.c_int(CDSP + 8)), 4) == 0
    assert other.open()[0] == 0, "a session that was closed is free for others"


def test_a_uri_that_names_no_session_or_no_dsp_is_refused(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc()
    assert rpc.open(session=4)[0] == 0xE
    assert rpc.open("file:///x.so?y&_dom=nodsp")[0] == 0xE
    assert rpc.open(URI.replace("cdsp", "adsp"))[0] == REFUSED


def test_a_skel_of_an_older_dsp_is_taken(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc()
    (rpc.skels / SKEL).write_bytes(elf_of(68))
    assert rpc.open()[0] == 0


def test_what_the_dsp_answers_to_opening_is_passed_on_and_no_session_is_left(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()
    assert rpc.open(URI.replace("fake_skel", "no_such_symbol"))[0] == 0x80000442
    assert ended(rpc.processes()[0])
    assert rpc.open()[0] == 0


def test_shared_memory_is_one_for_both_and_ends_on_both_sides(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()
    _, handle = rpc.open()
    address, fd = rpc.alloc(100)
    ctypes.memmove(address, b"pages", 5)
    request = Wanted(Method.REVERSE, [(address, 5)], [(address + 50, 5)])
    assert rpc.invoke(handle, request) == 0
    assert ctypes.string_at(address + 50, 5) == b"segap"
    assert rpc.mapped(handle) == [fd]
    rpc.free(address)
    assert rpc.mapped(handle) == [], "what a call had mapped ends with the buffer"
    assert not Path(f"/proc/self/fd/{fd}").exists()


def test_a_handle_names_a_file_that_the_client_made(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()
    _, handle = rpc.open()
    file = os.memfd_create("dma-buf")
    os.truncate(file, 8192)
    try:
        assert rpc.library.remote_register_dma_handle(file, 8192) == 0
        assert rpc.invoke(handle, Wanted(Method.STAMP, handles=[(file, 4096)])) == 0
        assert os.pread(file, 4, 4096) == b"here"
    finally:
        os.close(file)


def test_what_cannot_be_mapped_is_refused_and_told(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc(mapped_mb=2)
    assert rpc.map(0, 4096) == 0x6B, "no session is open"
    rpc.open()
    address, fd = rpc.alloc((2 << 20) + 1)
    assert rpc.map(fd, (2 << 20) + 1) == 1
    assert "0 of 2097152 are mapped" in rpc.said()[0].words
    assert [rpc.map(fd, 4096, flags=1), rpc.map(-1, 4096), rpc.map(fd, 0)] == [0xE] * 3
    rpc.free(address)


def test_a_process_has_so_many_dma_handles(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc(handles=2)
    register = rpc.library.remote_register_dma_handle
    assert [register(fd, 1) for fd in (10, 11, 10, 12)] == [0, 0, 0, 0x2C]


def test_calls_of_several_threads_run_side_by_side(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc()
    _, handle = rpc.open()
    waiting = threading.Thread(target=rpc.invoke, args=(handle, Wanted(Method.SLEEP)))
    waiting.start()
    answers = [rpc.reverse(handle, bytes([n, 0, 1])) for n in range(50)]
    assert answers == [(0, bytes([1, 0, n])) for n in range(50)]
    os.kill(rpc.processes()[0], signal.SIGKILL)
    waiting.join(20)
    assert not waiting.is_alive()


def test_a_dead_process_is_told_by_the_call_under_it_later_calls_and_the_next_opening(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()
    _, handle = rpc.open()
    assert rpc.invoke(handle, Wanted(Method.DIE)) == BAD_STATE
    assert ended(rpc.processes()[0])
    assert rpc.reverse(handle, b"x")[0] == NO_SUCH
    assert rpc.open()[0] == NO_SUCH, "handles of the dead session are open"
    assert rpc.close(handle) == 0
    error, handle = rpc.open()
    assert (error, rpc.reverse(handle, b"ab")) == (0, (0, b"ba"))


def test_packets_come_back_and_a_queue_tells_of_a_death(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc()
    _, _handle = rpc.open()
    address, fd = rpc.alloc(4096)
    queue, size, id_ = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint64()
    failed = threading.Event()
    on_error = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda _queue, error, _context: failed.set() if error == NO_SUCH else None
    )
    lib = rpc.library
    assert lib.dspqueue_create(CDSP, 0, 64, 64, None, on_error, None, ctypes.byref(queue)) == 0
    assert (lib.dspqueue_export(queue, ctypes.byref(id_)), id_.value) == (0, 7)
    buffer = (ctypes.c_uint32 * 6)(fd, 4096, 0, 4, 0, 0)
    message = ctypes.create_string_buffer(64)

    def read(timeout_us: int) -> int:
        return int(
            lib.dspqueue_read(
                queue, None, 0, None, None, 64, ctypes.byref(size), message, timeout_us
            )
        )

    def write(text: bytes, buffers: int = 0) -> int:
        return int(lib.dspqueue_write(queue, 0, buffers, buffer, len(text), text, 1000000))

    assert (read(0), read(1000)) == (516, 0xC)
    assert write(b"abc", 1) == 0x48, "the buffer is not mapped"
    assert rpc.map(fd, 4096) == 0
    assert (write(b"abc", 1), read(20000000), message.raw[:3]) == (0, 0, b"cba")
    assert rpc.unmap(fd) == 0xE, "packets have references"
    assert write(b"die") == 0
    assert failed.wait(20)
    assert (read(0xFFFFFFFF), write(b"x")) == (NO_SUCH, NO_SUCH)
    assert lib.dspqueue_close(queue) == 0
    rpc.free(address)


def test_the_dsp_tells_what_it_is(fastrpc: Callable[..., FastRpc]) -> None:
    rpc = fastrpc(arch=75, hvx_threads=6, vtcm_mb=2)
    values = {0: 1, 1: 1, 3: 6, 4: 2 << 20, 5: 1, 6: 0x75, 9: 0, 16: 0}
    for attribute, value in values.items():
        query = (ctypes.c_uint32 * 3)(CDSP, attribute, 99)
        assert (rpc.library.remote_handle_control(2, query, 12), query[2]) == (0, value)
    assert rpc.library.remote_handle_control(2, (ctypes.c_uint32 * 3)(99, 0, 0), 12) == 0xE


def test_a_session_is_told_by_its_number_and_what_nobody_asks_is_named(
    fastrpc: Callable[..., FastRpc],
) -> None:
    rpc = fastrpc()

    class Effective(ctypes.Structure):
        _fields_ = [("domain", ctypes.c_char_p), ("domain_length", ctypes.c_uint32)]
        _fields_ += [("session", ctypes.c_uint32), ("effective", ctypes.c_uint32)]

    def effective(session: int) -> tuple[int, int]:
        query = Effective(b"cdsp", 4, session)
        error = rpc.library.remote_session_control(14, ctypes.byref(query), ctypes.sizeof(query))
        return error, query.effective

    assert [effective(number) for number in range(4)] == [(0, 3), (0, 11), (0, 19), (0, 27)]
    assert effective(4)[0] == 0xE
    assert rpc.library.remote_session_control(99, ctypes.byref(ctypes.c_int(CDSP)), 4) == 0x14
    assert [(reply.call, reply.words) for reply in rpc.said()] == [("session", "request 99")]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(st.sampled_from(("alloc", "free", "map", "unmap", "call")), st.integers(0, 3)),
        min_size=4,
        max_size=30,
    )
)
def test_the_dsp_has_mapped_what_the_client_asked_for_and_what_calls_named(
    one_session: tuple[FastRpc, int], steps: list[tuple[str, int]]
) -> None:
    rpc, handle = one_session
    page, most = 4096, (1 << 20) // 4096
    buffers: dict[int, tuple[int, int]] = {}  # by place: address, fd
    mapped: dict[int, int] = {}  # pages by fd
    named: dict[int, int] = {}
    try:
        for change, place in steps:
            pages = (1, 100, 200, 256)[place]
            address, fd = buffers.get(place, (0, -1))
            if change == "alloc" and not address:
                address, fd = buffers[place] = rpc.alloc(pages * page)
            elif change == "free" and address and fd not in mapped:
                rpc.free(buffers.pop(place)[0])
                named.pop(fd, None)
            elif change == "map" and address:
                others = sum((named | mapped).values()) - named.get(fd, 0)
                expected = 0x1A if fd in mapped else 1 if others + pages > most else 0
                named.pop(fd, None) if fd not in mapped else None
                if expected == 0:
                    mapped[fd] = pages
                assert rpc.map(fd, pages * page) == expected
            elif change == "unmap" and address:
                assert rpc.unmap(fd) == (0 if mapped.pop(fd, None) else 0x48)
            elif change == "call" and address:
                fits = fd in mapped | named or sum((mapped | named).values()) + pages <= most
                call = Wanted(Method.REVERSE, [(address, 8)], [(address, 8)])
                assert rpc.invoke(handle, call) == (0 if fits else 1)
                if fits and fd not in mapped:
                    named[fd] = pages
            assert rpc.mapped(handle) == sorted(mapped.keys() | named.keys())
    finally:
        for fd in mapped:
            rpc.unmap(fd)
        for address, _ in buffers.values():
            rpc.free(address)
    assert rpc.mapped(handle) == []


@pytest.fixture(scope="module")
def one_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastRpc, int]]:
    """A session in which a MB can be mapped."""
    rpc = FastRpc(tmp_path_factory.mktemp("one"), DspLimits(mapped_mb=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QNN_DSP", str(rpc.dsp))
        patch.setenv("ADSP_LIBRARY_PATH", str(rpc.skels))
        error, handle = rpc.open()
        assert error == 0
        yield rpc, handle
        rpc.close(handle)
