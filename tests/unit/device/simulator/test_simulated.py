"""What a simulated farm is made of: the same for a seed, each part of a profile in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.device.lab.inventory import load_lab
from harness.device.simulator.farm import PROFILES, STEADY, FarmLink, farm_devices, lab_text
from harness.ground.errors import ConfigError


@given(st.integers(1, 200), st.sampled_from([*PROFILES]), st.integers(0, 9))
def test_a_seed_deals_the_parts_of_a_profile_out_evenly(
    count: int, profile: str, seed: int
) -> None:
    made = farm_devices(count, profile, seed)
    assert made == farm_devices(count, profile, seed)
    assert len({one.name for one in made}) == len(made) == count
    parts = PROFILES[profile]
    for dealt, told in (
        ([one.soc for one in made], parts.socs),
        ([one.temper.says for one in made], [temper.says for temper in parts.tempers]),
    ):
        for part, often in Counter(told).items():
            share = count / len(told) * often
            assert abs(dealt.count(part) - share) <= often


def test_the_lab_of_a_farm_can_be_read(tmp_path: Path) -> None:
    made = farm_devices(10, "mixed", 1)
    file = tmp_path / "farm.yaml"
    file.write_text(
        lab_text(
            "/tmp/x/server",
            ((one, f"127.0.0.1:{6000 + n}", f"/s/{n}") for n, one in enumerate(made)),
        )
    )
    lab = load_lab(file)
    assert [one.name for one in lab.devices] == [one.name for one in made]
    assert lab.server_of(lab.devices[0]).spec == "localfilesystem:/tmp/x/server"


@pytest.mark.parametrize(("count", "profile"), [(0, "mixed"), (201, "mixed"), (3, "other")])
def test_what_no_farm_can_be(count: int, profile: str) -> None:
    with pytest.raises(ConfigError):
        farm_devices(count, profile, 0)


def test_a_connection_that_ends_with_its_farm_is_no_fault() -> None:
    told: list[dict[str, object]] = []

    async def end_while_it_connects() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        device = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = device.sockets[0].getsockname()[1]
        link = FarmLink(STEADY, f"127.0.0.1:{port}", "seed", loop)
        await link.begin()
        _, near = await asyncio.open_connection(*link.address.split(":"))
        ours = asyncio.current_task()
        while not (others := [task for task in asyncio.all_tasks() if task is not ours]):
            await asyncio.sleep(0)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        near.transport.abort()
        device.close()

    asyncio.run(end_while_it_connects())
    assert told == []
