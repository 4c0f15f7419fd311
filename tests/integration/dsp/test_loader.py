"""The loader's functions for a skel, by one of the tests: QuRT, DMA, VTCM, memory, exceptions."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.dsp.conftest import MakeRpc
from tests.integration.dsp.fastrpc import BAD_STATE, FastRpc, words
from tests.stand_in.skel_build import URI

THREADS, EXCEPTIONS, DMA, VTCM, MEMORY, _, TEXT, _, END = range(1, 10)
MEGABYTE = 1 << 20
DELAYED = 3
BAD_PARAMETER = 0x8000040E
ONE_SIZE, BYPASS, ORDER = 1 << 24, 3 << 28, 1 << 30
"""Bits of a DMA descriptor's second word."""


@pytest.fixture
def rpc(fastrpc: MakeRpc) -> FastRpc:
    return fastrpc()


@pytest.fixture
def handle(rpc: FastRpc) -> int:
    """The skel is open."""
    error, handle = rpc.open(URI)
    assert error == 0
    return handle


@contextmanager
def shared(data: bytes) -> Iterator[int]:
    """A file in memory with these bytes."""
    fd = os.memfd_create("shared")
    try:
        os.write(fd, data)
        yield fd
    finally:
        os.close(fd)


def test_threads_have_ids_priorities_and_storage_of_their_own_and_wait_for_each_other(
    rpc: FastRpc, handle: int
) -> None:
    reply = rpc.ask(handle, THREADS, 8, 0)
    counted, was_held, first, changed, ended, same_ids, own_storage, main = reply
    assert (counted, was_held) == (8 * 500, 1)
    assert (first, changed) == (33, 44)
    assert (ended, same_ids, own_storage, main) == (8, 0, 8, 5)


@pytest.mark.parametrize(("thrown", "reply"), [(0, (0, 1)), (41, (142, 1))])
def test_a_skel_catches_what_it_throws(
    rpc: FastRpc, handle: int, thrown: int, reply: tuple[int, int]
) -> None:
    assert rpc.ask(handle, EXCEPTIONS, 2, thrown) == reply


DATA = bytes(range(1, 241))


def dma(rpc: FastRpc, handle: int, *request: int) -> tuple[int, bytes]:
    error, (output,) = rpc.call(handle, DMA, words(*request) + DATA, sizes=[248])
    return error, output


def rectangle(
    width: int, height: int, *, source_stride: int, target_stride: int, size: int
) -> bytes:
    """Return zeros over which the beginning of DATA was copied by rows."""
    target = bytearray(size)
    for row in range(height):
        line = DATA[row * source_stride :][:width]
        target[row * target_stride : row * target_stride + width] = line
    return bytes(target)


@pytest.mark.parametrize(
    ("head", "form", "shape", "copied"),
    [
        (100, 0, (0, 0, 0), DATA[:100] + bytes(140)),
        (100 | BYPASS | ORDER, 0, (0, 0, 0), DATA[:100] + bytes(140)),
        (
            ONE_SIZE,
            0,
            (12 | 5 << 16, 20 | 32 << 16, 0),
            rectangle(12, 5, source_stride=20, target_stride=32, size=240),
        ),
        (
            ONE_SIZE | 24,
            9,
            (7 | 3 << 24, 0 | 40 << 8, 0),
            rectangle(7, 3, source_stride=40, target_stride=24, size=240),
        ),
    ],
    ids=["line", "flags", "narrow", "wide"],
)
def test_user_dma_copies_lines_and_rectangles(
    rpc: FastRpc, handle: int, head: int, form: int, shape: tuple[int, int, int], copied: bytes
) -> None:
    assert dma(rpc, handle, 0, head, form, *shape) == (0, words(0b01, 0) + copied)


def test_user_dma_goes_on_with_what_is_linked_behind(rpc: FastRpc, handle: int) -> None:
    assert dma(rpc, handle, 1, 8, 0, 0, 0, 0)[1][:16] == words(0b11) + DATA[:4] + DATA[:8]


def test_user_dma_of_another_form_is_what_the_emulator_cannot(rpc: FastRpc, handle: int) -> None:
    assert dma(rpc, handle, 0, ONE_SIZE, 5, 0, 0, 0)[0] == BAD_STATE
    (reply,) = rpc.said("emulator")
    assert reply.answer == "user DMA"
    assert reply.words == "user DMA with a descriptor of size 1, form 5"


@pytest.mark.parametrize("vtcm_mb", [8, 4])
def test_vtcm_is_held_by_one_client_at_a_time(fastrpc: MakeRpc, vtcm_mb: int) -> None:
    rpc = fastrpc(vtcm_mb=vtcm_mb)
    size = vtcm_mb * MEGABYTE
    reply = rpc.ask(rpc.open(URI)[1], VTCM, 9, size)
    too_much, got_less, late, waited, cached, asked_back, asked_times, refused, again = reply
    assert (too_much, got_less) == (1, size)
    assert (late, waited) == (1, 1), "who wants it waits until it is free, or for its time"
    assert (cached, asked_back, asked_times) == (1, 1, 1), "a holder is asked to give it up"
    assert (refused, again) == (1, 1), "one that does not keeps it"


@pytest.mark.parametrize("flags", [0, DELAYED])
def test_both_processes_see_memory_that_is_mapped(rpc: FastRpc, handle: int, flags: int) -> None:
    with shared(words(1234, 0) + bytes(4088)) as fd:
        assert rpc.map(fd, 4096, flags) == 0
        error, _, content, given_back = rpc.ask(handle, MEMORY, 4, fd, 0)
        assert (error, content, given_back) == (0, 1234, 0)
        assert os.pread(fd, 8, 0) == words(1234, 1235)
        assert rpc.unmap(fd) == 0
        assert rpc.ask(handle, MEMORY, 4, fd, 0)[0] == BAD_PARAMETER


def test_a_number_that_the_client_gives_to_another_file_names_that_one(
    rpc: FastRpc, handle: int
) -> None:
    with shared(words(1, 0) + bytes(4088)) as old, shared(words(2, 0) + bytes(4088)) as new:
        number = os.dup(old)
        assert rpc.map(number, 4096) == 0
        previous = rpc.ask(handle, MEMORY, 4, number, 1)
        assert rpc.unmap(number) == 0
        os.dup2(new, number)
        assert rpc.map(number, 4096) == 0
        error, address, content, _ = rpc.ask(handle, MEMORY, 4, number, 0)
        assert (error, content) == (0, 2)
        assert address != previous[1], "what the skel kept stays where it is"
        assert os.pread(old, 8, 0) == words(1, 2)
        os.close(number)


def test_arguments_without_names_lie_on_the_stack(rpc: FastRpc, handle: int) -> None:
    text = b"-3 skel 1.50 123456789 x"
    length, (output,) = rpc.call(handle, TEXT, b"    ", sizes=[64])
    assert (length, output.rstrip(b"\0")) == (len(text), text)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (0, "the protection domain crashed: signal 11 at address 0x8"),
        (4, "the skel calls nobody_has_this, which nothing here gives"),
    ],
    ids=["crash", "import"],
)
def test_a_process_that_cannot_go_on_says_why(
    rpc: FastRpc, handle: int, failure: int, message: str
) -> None:
    assert rpc.call(handle, END, words(failure))[0] == BAD_STATE
    assert rpc.said("emulator") == []
    assert message in rpc.log()
    assert "test_skel_handle_invoke" in rpc.log()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (1, "vector float instruction 1dffffff"),
        (2, "HMX instruction a6e0dfff"),
        (3, "unknown instruction ffffffff"),
    ],
)
def test_an_instruction_that_is_none_is_named_with_its_kind_and_place(
    rpc: FastRpc, handle: int, failure: int, message: str
) -> None:
    assert rpc.call(handle, END, words(failure))[0] == BAD_STATE
    (reply,) = rpc.said("emulator")
    assert (reply.call, reply.answer) == ("method 9 of the skel", "SIGILL")
    assert reply.words.startswith(f"{message} at skel+0x")
    assert reply.words.endswith(", test_skel_handle_invoke")
