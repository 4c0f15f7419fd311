"""The suite of damaged contexts: a case for each binary, which differs from a whole one in one bit.

Run by test_flipped_bits.py in a process of its own. Every case first loads and executes the whole
binary, in the same process: whether the case before it left the device fit is thus seen 400 times.
"""

import random
from dataclasses import replace
from typing import Final

import pytest

from harness.bench.bench import Bench
from harness.models.builtin_models import Model
from harness.models.session_plan import Move, Schedule
from harness.probe.plan import Settings
from harness.transport.files import PushItem

TINY = Model.parse("tiny")
CASES = 400
TIMEOUT_S = 5.0
"""Far more than the 0.1 s that a process takes here, for machines that are busy."""

WHOLE, DAMAGED = 0, 1
VERBS: Final = ("load", "execute", "free")
IN_TURN = Schedule(tuple(Move(verb, one) for one in (WHOLE, DAMAGED) for verb in VERBS), ())


def flipped(content: bytes, seed: int) -> tuple[bytes, int]:
    """The content with the bit that belongs to this seed the other way round, and which that is."""
    damaged = bytearray(content)
    bit = random.Random(f"flipped bit {seed}").randrange(len(damaged) * 8)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged), bit


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each device of the lab gets every second binary."""
    (marker,) = metafunc.definition.iter_markers("device")
    (tag,) = marker.kwargs["tags"]
    metafunc.parametrize("seed", range(("even", "odd").index(tag), CASES, 2))


def run(bench: Bench, seed: int) -> None:
    (whole,) = bench.contexts(TINY)
    content, bit = flipped(whole.context.path.read_bytes(), seed)
    bench.measure(bit=bit)
    with bench.scratch() as folder:
        damaged = replace(whole, binary=f"{folder}/context.bin")
        bench.device.transport.push([PushItem(content, damaged.binary)], timeout_s=20)
        plan = bench.context_plan([whole, damaged], IN_TURN, Settings(memory="off"))
        bench.run(plan, timeout_s=TIMEOUT_S).check()


@pytest.mark.device(tags=["even"])
def test_even(bench: Bench, seed: int) -> None:
    run(bench, seed)


@pytest.mark.device(tags=["odd"])
def test_odd(bench: Bench, seed: int) -> None:
    run(bench, seed)
