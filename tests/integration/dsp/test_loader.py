"""The loader's functions for a skel, by one of the tests: QuRT, DMA, VTCM, memory, exceptions."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.cache import BOARDS, cache_root
from tests.integration.dsp.conftest import BeginDsp
from tests.integration.dsp.dsp_process import Channel, DspGone, DspProcess, Mapped
from tests.needed import DSP, need
from tests.stand_in.skel_build import URI, build_skel

THREADS, SIGNALS, EXCEPTIONS, DMA, VTCM, MEMORY, QUEUE, TEXT, COPY, END = range(1, 11)
CRASHED, NO_INSTRUCTION, NO_IMPORT = 70, 71, 72
MEGABYTE = 1 << 20
DELAYED = 3
BAD_PARAMETER, UNKNOWN_HANDLE, NO_SUCH_SYMBOL = 0x8000040E, 0x8000042C, 0x80000442
ONE_SIZE, BYPASS, ORDER = 1 << 24, 3 << 28, 1 << 30
"""Bits of a DMA descriptor's second word."""


@pytest.fixture(scope="session")
def skel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need(DSP)
    return build_skel(tmp_path_factory.mktemp("skel"), cache_root() / BOARDS / "zig")


@pytest.fixture
def process(begin: BeginDsp, skel: Path) -> DspProcess:
    return begin(skel)


@pytest.fixture
def channel(process: DspProcess) -> Channel:
    """A channel, over which the skel is open."""
    channel = process.channel()
    assert channel.open(URI).status == 0
    return channel


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def call_and_unpack(channel: Channel, method: int, count: int, *values: int) -> tuple[int, ...]:
    answer = channel.invoke(0, method, [words(*values)], [4 * count])
    assert answer.status == 0
    return struct.unpack(f"<{count}I", answer.outputs[0])


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
    channel: Channel,
) -> None:
    counted, was_held, first, changed, ended, same_ids, own_storage, main = call_and_unpack(
        channel, THREADS, 8
    )
    assert (counted, was_held) == (8 * 500, 1)
    assert (first, changed) == (33, 44)
    assert (ended, same_ids, own_storage, main) == (8, 0, 8, 5)


def test_signals_are_waited_for_by_any_or_all_bits_and_for_a_time(channel: Channel) -> None:
    assert call_and_unpack(channel, SIGNALS, 5) == (1, 1, 5, 4, 1)


@pytest.mark.parametrize(("thrown", "reply"), [(0, (0, 1)), (41, (142, 1))])
def test_a_skel_catches_what_it_throws(
    channel: Channel, thrown: int, reply: tuple[int, int]
) -> None:
    assert call_and_unpack(channel, EXCEPTIONS, 2, thrown) == reply


DATA = bytes(range(1, 241))


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
    channel: Channel, head: int, form: int, shape: tuple[int, int, int], copied: bytes
) -> None:
    answer = channel.invoke(0, DMA, [words(0, head, form, *shape) + DATA], [248])
    assert answer.outputs[0] == words(0b01, 0) + copied


def test_user_dma_goes_on_with_what_is_linked_behind(channel: Channel) -> None:
    answer = channel.invoke(0, DMA, [words(1, 8, 0, 0, 0, 0) + DATA], [248])
    assert answer.outputs[0][:16] == words(0b11) + DATA[:4] + DATA[:8]


def test_user_dma_of_another_form_is_what_the_emulator_cannot(
    process: DspProcess, channel: Channel
) -> None:
    with pytest.raises(DspGone):
        channel.invoke(0, DMA, [words(0, ONE_SIZE, 5, 0, 0, 0) + DATA], [248])
    assert process.end() == NO_INSTRUCTION
    (reply,) = process.said()
    assert (reply.kind, reply.answer) == ("emulator", "user DMA")
    assert reply.words == "user DMA with a descriptor of size 1, form 5"


@pytest.mark.parametrize("vtcm_mb", [8, 4])
def test_vtcm_is_held_by_one_client_at_a_time(begin: BeginDsp, skel: Path, vtcm_mb: int) -> None:
    channel = begin(skel, vtcm_mb=vtcm_mb).channel()
    assert channel.open(URI).status == 0
    size = vtcm_mb * MEGABYTE
    reply = call_and_unpack(channel, VTCM, 9, size)
    too_much, got_less, late, waited, cached, asked_back, asked_times, refused, again = reply
    assert (too_much, got_less) == (1, size)
    assert (late, waited) == (1, 1), "who wants it waits until it is free, or for its time"
    assert (cached, asked_back, asked_times) == (1, 1, 1), "a holder is asked to give it up"
    assert (refused, again) == (1, 1), "one that does not keeps it"


@pytest.mark.parametrize("flags", [0, DELAYED])
def test_both_processes_see_memory_that_is_mapped(
    process: DspProcess, channel: Channel, flags: int
) -> None:
    with shared(words(1234, 0) + bytes(4088)) as fd:
        status, address = process.map(7, fd, 4096, flags)
        assert (status, address == 0) == (0, flags == DELAYED)
        error, at, content, given_back = call_and_unpack(channel, MEMORY, 4, 7)
        assert (error, content, given_back) == (0, 1234, 0)
        assert at == address or flags == DELAYED
        assert os.pread(fd, 8, 0) == words(1234, 1235)
        assert process.map(7, fd, 4096, flags)[0] == 0
        assert [process.unmap(7) for _ in range(2)] == [0, BAD_PARAMETER]
        assert call_and_unpack(channel, MEMORY, 4, 7)[0] == BAD_PARAMETER


def test_a_number_that_the_client_gives_to_another_file_names_that_one(
    process: DspProcess, channel: Channel
) -> None:
    with shared(words(1, 0) + bytes(4088)) as old, shared(words(2, 0) + bytes(4088)) as new:
        assert process.map(7, old, 4096)[0] == 0
        previous = call_and_unpack(channel, MEMORY, 4, 7, 1)
        assert process.unmap(7) == 0
        assert process.map(7, new, 4096)[0] == 0
        error, address, content, _ = call_and_unpack(channel, MEMORY, 4, 7)
        assert (error, content) == (0, 2)
        assert address != previous[1], "what the skel kept stays where it is"
        assert os.pread(old, 8, 0) == words(1, 2)


def test_arguments_in_mapped_memory_are_not_copied(process: DspProcess, channel: Channel) -> None:
    with shared(b"skel" * 1024) as fd:
        assert process.map(7, fd, 4096)[0] == 0
        data, got = Mapped(7, 0, 16), Mapped(7, 1024, 16, written=True)
        os.pwrite(fd, bytes(range(16)), 0)
        assert channel.invoke(0, COPY, [data], [got]).status == 0
        assert os.pread(fd, 16, 1024) == bytes(range(16))
        beyond = Mapped(7, 4090, 16)
        assert channel.invoke(0, COPY, [beyond], [16]).status == BAD_PARAMETER


def test_a_packet_of_a_queue_names_memory_by_its_fd(process: DspProcess, channel: Channel) -> None:
    packets, number = process.queue()
    with packets, shared(words(77) + bytes(4092)) as fd:
        assert process.map(7, fd, 4096)[0] == 0
        assert channel.invoke(0, QUEUE, [words(number)], []).status == 0
        assert channel.invoke(0, QUEUE, [words(number + 1)], []).status == BAD_PARAMETER
        named = struct.pack("<IIIIQ", 7, 4096, 0, 5, 0)
        for _ in range(3):
            packets.send(words(9, 1, 8, 0) + named + words(1, 2))
            answer = packets.recv(1 << 16)
            assert answer[:16] == words(9, 1, 8, 0)
            assert answer[40:] == words(77, 2)


def test_arguments_without_names_lie_on_the_stack(channel: Channel) -> None:
    answer = channel.invoke(0, TEXT, [b"    "], [64])
    assert answer.outputs[0].rstrip(b"\0") == b"-3 skel 1.50 123456789 x"
    assert answer.status == len(b"-3 skel 1.50 123456789 x")


def test_what_is_not_open_or_not_there_is_refused(process: DspProcess, channel: Channel) -> None:
    assert process.channel().open("no question").status == BAD_PARAMETER
    missing = URI.replace("test_skel", "other_skel")
    assert process.channel().open(missing).status == NO_SUCH_SYMBOL


def test_without_opening_nothing_is_called(process: DspProcess) -> None:
    assert process.channel().invoke(0, COPY, [b"abcd"], [4]).status == UNKNOWN_HANDLE


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (0, CRASHED, "the protection domain crashed: signal 11 at address 0x8"),
        (4, NO_IMPORT, "the skel calls nobody_has_this, which nothing here gives"),
    ],
    ids=["crash", "import"],
)
def test_a_process_that_cannot_go_on_says_why(
    process: DspProcess, channel: Channel, failure: int, code: int, message: str
) -> None:
    with pytest.raises(DspGone):
        channel.invoke(0, END, [words(failure)], [4])
    assert process.end() == code
    assert process.said() == ()
    assert message in process.log()
    assert "test_skel_handle_invoke" in process.log()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (1, "vector float instruction 1dffffff"),
        (2, "HMX instruction a6e0dfff"),
        (3, "unknown instruction ffffffff"),
    ],
)
def test_an_instruction_that_is_none_is_named_with_its_kind_and_place(
    process: DspProcess, channel: Channel, failure: int, message: str
) -> None:
    with pytest.raises(DspGone):
        channel.invoke(0, END, [words(failure)], [4])
    assert process.end() == NO_INSTRUCTION
    (reply,) = process.said()
    assert (reply.kind, reply.call, reply.answer) == ("emulator", "method 10 of the skel", "SIGILL")
    assert reply.words.startswith(f"{message} at skel+0x")
    assert reply.words.endswith(", test_skel_handle_invoke")


def test_a_process_ends_with_its_client(process: DspProcess, channel: Channel) -> None:
    assert call_and_unpack(channel, EXCEPTIONS, 2, 0) == (0, 1)
    assert process.end() == 0
