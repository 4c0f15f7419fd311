"""FastRPC by our libcdsprpc.so: handles, calls, shared memory, queues, limits, deaths."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.dsp.simulated_dsp import DspPrograms
from tests.integration.dsp.conftest import MakeRpc, fastrpc_over
from tests.integration.dsp.fastrpc import (
    BAD_PARAMETER,
    BAD_STATE,
    CDSP,
    NO_SUCH,
    NO_SUCH_MAP,
    NO_SUCH_SYMBOL,
    REFUSED,
    FastRpc,
    words,
)
from tests.stand_in.skel_build import SKEL, URI

MEMORY, QUEUE, COPY, END, STAMP = 5, 6, 8, 9, 10
SLEEP = 5
"""The word with which END sleeps."""


def copied(rpc: FastRpc, handle: int, data: bytes) -> tuple[int, bytes]:
    """The error of a call with copied buffers, and what came back."""
    error, (back,) = rpc.call(handle, COPY, data, sizes=[len(data)])
    return error, back


def mapped(rpc: FastRpc, handle: int, fds: set[int]) -> set[int]:
    """Those of the client's fds that the DSP has mapped."""
    return {fd for fd in fds if rpc.ask(handle, MEMORY, 4, fd, 0)[0] == 0}


def ended(rpc: FastRpc, process: int) -> bool:
    """Return whether a process ends within a few seconds."""
    end = time.monotonic() + 20
    while process in rpc.processes() and time.monotonic() < end:
        time.sleep(0.01)
    return process not in rpc.processes()


def test_a_call_goes_to_a_process_that_has_nothing_of_ours_and_ends_with_its_last_handle(
    fastrpc: MakeRpc, skels: Path, tmp_path: Path
) -> None:
    rpc = fastrpc()
    with (tmp_path / "ours").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        error, handle = rpc.open(URI)
    assert (error, copied(rpc, handle, b"hexagon")) == (0, (0, b"hexagon"))
    (process,) = rpc.processes()
    folder = Path(f"/proc/{process}")
    arguments = (folder / "cmdline").read_bytes().split(b"\0")[1:3]
    assert arguments == [os.fsencode(rpc.dsp / "loader"), os.fsencode(skels / SKEL)]
    assert (folder / "environ").read_bytes() == b"QNN_DSP=" + os.fsencode(rpc.dsp) + b"\0"
    assert tmp_path / "ours" not in {file.readlink() for file in (folder / "fd").iterdir()}
    second_error, second = rpc.open(URI)
    assert (second_error, rpc.processes(), rpc.close(handle)) == (0, [process], 0)
    assert copied(rpc, handle, b"x")[0] == 0x2C, "closed handles are unknown"
    assert (copied(rpc, second, b"ab"), rpc.close(second)) == ((0, b"ab"), 0)
    assert ended(rpc, process)
    assert rpc.said("kernel", "emulator") == []


def test_sessions_are_processes_of_their_own_and_the_device_has_so_many(fastrpc: MakeRpc) -> None:
    rpc, other = fastrpc(sessions=2), fastrpc()
    assert [rpc.open(URI, session=item)[0] for item in (0, 1, 2)] == [0, 0, REFUSED]
    (reply,) = rpc.said("kernel")
    assert reply.words == "no session is left: the device has 2"
    assert len(rpc.processes()) == 2
    assert other.open(URI)[0] == REFUSED
    assert rpc.lib.remote_session_control(7, ctypes.byref(ctypes.c_int(CDSP + 8)), 4) == 0
    assert other.open(URI)[0] == 0, "a session that was closed is free for others"


@pytest.mark.parametrize(
    ("uri", "session", "error"),
    [
        (URI, 4, BAD_PARAMETER),
        ("file:///x.so?y&_dom=nodsp", 0, BAD_PARAMETER),
        (URI.replace("cdsp", "adsp"), 0, REFUSED),
        (URI.replace("test_skel", "other_skel"), 0, NO_SUCH_SYMBOL),
    ],
)
def test_what_does_not_open_leaves_no_process(
    fastrpc: MakeRpc, uri: str, session: int, error: int
) -> None:
    rpc = fastrpc()
    assert rpc.open(uri, session)[0] == error
    assert all(ended(rpc, process) for process in rpc.processes())
    assert rpc.open(URI)[0] == 0


def test_shared_memory_is_one_for_both_and_ends_on_both_sides(fastrpc: MakeRpc) -> None:
    rpc = fastrpc()
    _, handle = rpc.open(URI)
    address, fd = rpc.alloc(100)
    ctypes.memmove(address, b"pages", 5)
    assert rpc.invoke(handle, COPY, [(address, 5)], [(address + 50, 5)]) == 0
    assert ctypes.string_at(address + 50, 5) == b"pages"
    assert mapped(rpc, handle, {fd}) == {fd}
    rpc.free(address)
    assert mapped(rpc, handle, {fd}) == set(), "what a call had mapped ends with the buffer"
    assert not Path(f"/proc/self/fd/{fd}").exists()


def test_a_handle_names_a_file_that_the_client_made(fastrpc: MakeRpc) -> None:
    rpc = fastrpc()
    _, handle = rpc.open(URI)
    file = os.memfd_create("dma-buf")
    os.truncate(file, 8192)
    try:
        assert rpc.lib.remote_register_dma_handle(file, 8192) == 0
        assert rpc.invoke(handle, STAMP, handles=[(file, 4096)]) == 0
        assert os.pread(file, 4, 4096) == b"here"
    finally:
        os.close(file)


def test_what_cannot_be_mapped_is_refused_and_told(fastrpc: MakeRpc) -> None:
    rpc = fastrpc(mapped_mb=2)
    assert rpc.map(0, 4096) == 0x6B, "no session is open"
    rpc.open(URI)
    address, fd = rpc.alloc((2 << 20) + 1)
    assert rpc.map(fd, (2 << 20) + 1) == 1
    assert "0 of 2097152 are mapped" in rpc.said("kernel")[0].words
    wrong = [rpc.map(fd, 4096, flags=1), rpc.map(-1, 4096), rpc.map(fd, 0)]
    assert wrong == [BAD_PARAMETER] * 3
    rpc.free(address)


def test_a_process_has_so_many_dma_handles(fastrpc: MakeRpc) -> None:
    register = fastrpc(handles=2).lib.remote_register_dma_handle
    assert [register(fd, 1) for fd in (10, 11, 10, 12)] == [0, 0, 0, 0x2C]


def test_calls_of_several_threads_run_side_by_side(fastrpc: MakeRpc) -> None:
    rpc = fastrpc()
    _, handle = rpc.open(URI)
    waiting = threading.Thread(target=rpc.call, args=(handle, END, words(SLEEP)))
    waiting.start()
    answers = [copied(rpc, handle, bytes([n, 0, 1])) for n in range(50)]
    assert answers == [(0, bytes([n, 0, 1])) for n in range(50)]
    os.kill(rpc.processes()[0], signal.SIGKILL)
    waiting.join(20)
    assert not waiting.is_alive()


def test_a_dead_process_is_told_by_the_call_under_it_later_calls_and_the_next_opening(
    fastrpc: MakeRpc,
) -> None:
    rpc = fastrpc()
    _, handle = rpc.open(URI)
    (process,) = rpc.processes()
    assert rpc.call(handle, END, words(0))[0] == BAD_STATE
    assert ended(rpc, process)
    assert copied(rpc, handle, b"x")[0] == NO_SUCH
    assert rpc.open(URI)[0] == NO_SUCH, "handles of the dead session are open"
    assert rpc.close(handle) == 0
    error, handle = rpc.open(URI)
    assert (error, copied(rpc, handle, b"ab")) == (0, (0, b"ab"))


def test_packets_come_back_and_a_queue_tells_of_a_death(fastrpc: MakeRpc) -> None:
    rpc = fastrpc()
    _, handle = rpc.open(URI)
    address, fd = rpc.alloc(4096)
    ctypes.memmove(address, words(77), 4)
    queue, size, number = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint64()
    failed = threading.Event()
    on_error = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda _queue, error, _context: failed.set() if error == NO_SUCH else None
    )
    lib = rpc.lib
    assert lib.dspqueue_create(CDSP, 0, 64, 64, None, on_error, None, ctypes.byref(queue)) == 0
    assert lib.dspqueue_export(queue, ctypes.byref(number)) == 0
    assert rpc.call(handle, QUEUE, words(number.value + 1))[0] == 0x8000040E, "no such queue"
    assert rpc.call(handle, QUEUE, words(number.value))[0] == 0
    buffer = (ctypes.c_uint32 * 6)(fd, 4096, 0, 4, 0, 0)
    message = ctypes.create_string_buffer(64)

    def read(timeout_us: int) -> int:
        received = (64, ctypes.byref(size), message, timeout_us)
        return int(lib.dspqueue_read(queue, None, 0, None, None, *received))

    def write(text: bytes, buffers: int = 0) -> int:
        return int(lib.dspqueue_write(queue, 0, buffers, buffer, len(text), text, 1000000))

    assert (read(0), read(1000)) == (516, 0xC)
    assert write(words(1, 2), 1) == NO_SUCH_MAP, "the buffer is not mapped"
    assert rpc.map(fd, 4096) == 0
    assert (write(words(1, 2), 1), read(20000000)) == (0, 0)
    assert message.raw[:8] == words(77, 2), "the skel saw the message and the buffer"
    assert rpc.unmap(fd) == BAD_PARAMETER, "packets have references"
    os.kill(rpc.processes()[0], signal.SIGKILL)
    assert failed.wait(20)
    assert (read(0xFFFFFFFF), write(b"x")) == (NO_SUCH, NO_SUCH)
    assert lib.dspqueue_close(queue) == 0
    rpc.free(address)


def test_the_dsp_tells_what_it_is(fastrpc: MakeRpc) -> None:
    rpc = fastrpc(arch=75, hvx_threads=6, vtcm_mb=2)
    values = {0: 1, 1: 1, 3: 6, 4: 2 << 20, 5: 1, 6: 0x75, 9: 0, 16: 0}
    for attribute, value in values.items():
        query = (ctypes.c_uint32 * 3)(CDSP, attribute, 99)
        assert (rpc.lib.remote_handle_control(2, query, 12), query[2]) == (0, value)
    assert rpc.lib.remote_handle_control(2, (ctypes.c_uint32 * 3)(99, 0, 0), 12) == 0xE


def test_a_session_is_told_by_its_number_and_what_nobody_asks_is_named(fastrpc: MakeRpc) -> None:
    rpc = fastrpc()

    class Effective(ctypes.Structure):
        _fields_ = [("domain", ctypes.c_char_p), ("domain_length", ctypes.c_uint32)]
        _fields_ += [("session", ctypes.c_uint32), ("effective", ctypes.c_uint32)]

    def effective(session: int) -> tuple[int, int]:
        query = Effective(b"cdsp", 4, session)
        error = rpc.lib.remote_session_control(14, ctypes.byref(query), ctypes.sizeof(query))
        return error, query.effective

    assert [effective(number) for number in range(4)] == [(0, 3), (0, 11), (0, 19), (0, 27)]
    assert effective(4)[0] == 0xE
    assert rpc.lib.remote_session_control(99, ctypes.byref(ctypes.c_int(CDSP)), 4) == 0x14
    assert [(reply.call, reply.words) for reply in rpc.said("kernel")] == [
        ("session", "request 99")
    ]


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
    asked: dict[int, int] = {}  # pages by fd
    named: dict[int, int] = {}
    fds = set()
    try:
        for change, place in steps:
            pages = (1, 100, 200, 256)[place]
            address, fd = buffers.get(place, (0, -1))
            if change == "alloc" and not address:
                address, fd = buffers[place] = rpc.alloc(pages * page)
                fds.add(fd)
            elif change == "free" and address and fd not in asked:
                rpc.free(buffers.pop(place)[0])
                named.pop(fd, None)
            elif change == "map" and address:
                others = sum((named | asked).values()) - named.get(fd, 0)
                expected = 0x1A if fd in asked else 1 if others + pages > most else 0
                named.pop(fd, None) if fd not in asked else None
                if expected == 0:
                    asked[fd] = pages
                assert rpc.map(fd, pages * page) == expected
            elif change == "unmap" and address:
                assert rpc.unmap(fd) == (0 if asked.pop(fd, None) else 0x48)
            elif change == "call" and address:
                fits = fd in asked | named or sum((asked | named).values()) + pages <= most
                error = rpc.invoke(handle, COPY, [(address, 8)], [(address, 8)])
                assert error == (0 if fits else 1)
                if fits and fd not in asked:
                    named[fd] = pages
            assert mapped(rpc, handle, fds) == asked.keys() | named.keys()
    finally:
        for fd in asked:
            rpc.unmap(fd)
        for address, _ in buffers.values():
            rpc.free(address)


@pytest.fixture(scope="module")
def one_session(
    tmp_path_factory: pytest.TempPathFactory, programs: DspPrograms, skels: Path
) -> Iterator[tuple[FastRpc, int]]:
    """A session in which a MB can be mapped."""
    with fastrpc_over(tmp_path_factory.mktemp("one"), programs, skels, mapped_mb=1) as rpc:
        error, handle = rpc.open(URI)
        assert error == 0
        yield rpc, handle
