"""A farm of simulated devices with tempers of their own, to try a lab's configuration on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

import yaml

from harness.device.adb.private_server import PrivateAdbServer, harness_key
from harness.device.adb.server import AdbServer
from harness.device.simulator.auth import is_ours
from harness.device.simulator.device import SimulatedDevice
from harness.device.simulator.emulation import build_flaky_dsp
from harness.device.simulator.properties import device_properties
from harness.ground.errors import ConfigError
from harness.ground.files.scratch import scratch_folder
from harness.ground.host.deadline import Deadline

_Loop = asyncio.AbstractEventLoop

MOST_DEVICES: Final = 200
_WORKDIR: Final = "data/local/tmp/qnn-harness"
_CHUNK_BYTES: Final = 1 << 16
_CONNECT_S: Final = 20.0
_AT_ONCE: Final = 4
_DUMPSYS: Final = """#!/bin/sh
[ "$1" = thermalservice ] && echo 'Temperature{mValue=%.1f, mType=3, mName=skin, mStatus=4}'
exit 0
"""


@dataclass(frozen=True)
class Temper:
    """What a device is like: its link, its storage, how often it is away, how hot it is."""

    says: str
    link_bytes_per_s: float | None = None
    storage_bytes: int | None = None
    away_every_s: float | None = None
    away_s: float = 0.0
    skin_c: float | None = None
    flaky_dsp: bool = False


STEADY: Final = Temper("steady")
SLOW: Final = Temper("a slow link, 8 MB/s", link_bytes_per_s=8e6)
SMALL: Final = Temper("small storage, 60 MB", storage_bytes=60_000_000)
DROPS: Final = Temper("drops off for 3 s, every 20 s or so", away_every_s=20.0, away_s=3.0)
HOT: Final = Temper("hot, 95 C", skin_c=95.0)
FLAKY: Final = Temper(
    "a DSP that crashes in every fourth process or so (a stand-in)", flaky_dsp=True
)


@dataclass(frozen=True)
class Profile:
    """Which SoCs and tempers a farm has, in turn."""

    socs: Sequence[str]
    tempers: Sequence[Temper]


PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        "plain": Profile(["QCS8550"], [STEADY]),
        "mixed": Profile(
            ["QCS8550", "QCS8550", "SM8650", "SM8750"],
            [STEADY, SLOW, STEADY, DROPS, STEADY, FLAKY, HOT, STEADY, STEADY, SMALL],
        ),
        "flaky": Profile(["QCS8550"], [STEADY, FLAKY]),
        "stormy": Profile(["QCS8550", "SM8650"], [DROPS]),
    }
)


@dataclass(frozen=True)
class Tempered:
    """One device of a farm."""

    name: str
    soc: str
    temper: Temper


def farm_devices(count: int, profile: str, seed: int) -> list[Tempered]:
    """The devices of a farm: the parts of a profile in turn, dealt out by a seed (pure).

    Raises ConfigError for a number or a profile that cannot be.
    """
    if not 1 <= count <= MOST_DEVICES:
        raise ConfigError(f"{count} is none of 1 to {MOST_DEVICES}", field="--devices")
    if profile not in PROFILES:
        raise ConfigError(f"no profile {profile!r}", field="--profile", choices=PROFILES)
    drawn = random.Random(seed)
    found = PROFILES[profile]
    socs = list(islice(cycle(found.socs), count))
    tempers = list(islice(cycle(found.tempers), count))
    drawn.shuffle(socs)
    drawn.shuffle(tempers)
    return [
        Tempered(f"farm-{number:02}", soc, temper)
        for number, (soc, temper) in enumerate(zip(socs, tempers, strict=True), 1)
    ]


def lab_text(socket: str, devices: Iterable[tuple[Tempered, str, str]]) -> str:
    """devices.yaml of a farm behind the socket of its adb server (pure).

    Of each device there are itself, its serial and its work folder.
    """
    lines = ["# A farm of simulated devices, there while `qnn-harness simulator farm` runs."]
    lines += ["schema: 1", "gate: {max_busy_percent: 100}  # all share this computer's processors"]
    lines += ["hosts:", f"  - {{name: farm, socket: {socket}}}", "devices:"]
    for device, serial, workdir in devices:
        fields = {"name": device.name, "serial": serial, "host": "farm"}
        fields |= {"soc": device.soc, "target": "linux-x64"}
        lines.append(f"  # {device.temper.says}")
        flow = yaml.safe_dump(
            fields | {"workdir": workdir}, default_flow_style=True, sort_keys=False, width=10_000
        )
        lines.append(f"  - {flow.strip()}")
    return "\n".join(lines) + "\n"


class FarmLink:
    """What lies between the adb server and a device: it may be slow, stand still, or be cut.

    All but `address`, `cut` and `stall` is for the thread of its loop.
    """

    def __init__(self, temper: Temper, target: str, seed: str, loop: _Loop) -> None:
        self._temper = temper
        self._host, _, self._port = target.rpartition(":")
        self._random = random.Random(seed)
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._loop = loop
        self._away = False
        self._flows = asyncio.Event()
        self._flows.set()
        self.address = ""

    def cut(self, seconds: float) -> None:
        """Ends all connections, and refuses others for so long."""
        self._loop.call_soon_threadsafe(self._cut, seconds)

    def stall(self, seconds: float) -> None:
        """Carries nothing for so long, while connections stay up."""
        self._loop.call_soon_threadsafe(self._flows.clear)
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._flows.set)

    def _cut(self, seconds: float) -> None:
        self._away = True
        for end in list(self._ends):
            end.transport.abort()
        self._loop.call_later(seconds, self._back)

    def _back(self) -> None:
        self._away = False

    async def begin(self) -> None:
        """Listens on the loopback, and goes away from time to time if it is so."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def live(self) -> None:
        """Goes away and comes back until it is cancelled."""
        every_s = self._temper.away_every_s
        while every_s is not None:
            await asyncio.sleep(every_s * self._random.uniform(0.5, 1.5))
            self._cut(self._temper.away_s)
            await asyncio.sleep(self._temper.away_s)

    def _accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        # asyncio would log a coroutine that ends with the farm as a fault
        carrying = asyncio.create_task(self._connected(near, back))
        self._carrying.add(carrying)
        carrying.add_done_callback(self._carrying.discard)

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        # the device sees the link's own account, so that who is at its other end is asked here
        if self._away or not is_ours(back.get_extra_info("socket")):
            back.transport.abort()
            return
        try:
            far, on = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            back.transport.abort()
            return
        self._ends |= {back, on}
        try:
            ways = [asyncio.create_task(self._carry(*way)) for way in ((near, on), (far, back))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (back, on):
                self._ends.discard(end)
                end.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK_BYTES):
                if self._temper.link_bytes_per_s is not None:
                    await asyncio.sleep(len(data) / self._temper.link_bytes_per_s)
                await self._flows.wait()
                sink.write(data)
                await sink.drain()


class SimulatedFarm:
    """Simulated devices behind links of their own and one adb server; a context manager.

    `key_folder` has the harness's key. The devices and their storage go with it.
    """

    def __init__(self, devices: Sequence[Tempered], *, key_folder: Path) -> None:
        self._described = devices
        self._key_folder = key_folder
        self._ends = contextlib.ExitStack()
        self.devices: list[SimulatedDevice] = []
        self.links: list[FarmLink] = []
        self.server: AdbServer | None = None
        self.lab = ""

    def __enter__(self) -> Self:
        """Starts all of it. Raises InfraError."""
        with contextlib.ExitStack() as ends:
            folder = ends.enter_context(scratch_folder())
            key = harness_key(self._key_folder).with_suffix(".pub")
            flaky = any(one.temper.flaky_dsp for one in self._described)
            flaky_dsp = build_flaky_dsp(folder / "built") if flaky else None
            private = ends.enter_context(PrivateAdbServer(key_folder=self._key_folder))
            made = [self._device(one, folder / one.name, key, flaky_dsp) for one in self._described]
            for device in made:
                ends.callback(device.stop)
            with ThreadPoolExecutor(_AT_ONCE) as starting:
                list(starting.map(SimulatedDevice.start, made))
            loop = asyncio.new_event_loop()
            self.devices = made
            self.links = [
                FarmLink(one.temper, device.address, one.name, loop)
                for one, device in zip(self._described, made, strict=True)
            ]
            ends.callback(self._run_links(loop))
            self.server = private.server
            for link in self.links:
                self.server.connect(link.address, deadline=Deadline(_CONNECT_S))
            for one, device in zip(self._described, made, strict=True):
                if one.temper.skin_c is not None:
                    program = device.storage / "system/bin/dumpsys"
                    program.write_text(_DUMPSYS % one.temper.skin_c)
                    program.chmod(0o755)
            self.lab = lab_text(
                self.server.address.spec.partition(":")[2],
                (
                    (one, link.address, f"{device.storage}/{_WORKDIR}")
                    for one, link, device in zip(self._described, self.links, made, strict=True)
                ),
            )
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @staticmethod
    def _device(one: Tempered, storage: Path, key: Path, flaky_dsp: Path | None) -> SimulatedDevice:
        properties = device_properties(one.name, one.soc)
        if one.temper.flaky_dsp:  # in the records of all that runs there
            properties |= {"ro.build.id": "a stand-in for a flaky DSP"}
        return SimulatedDevice(
            one.name,
            storage=storage,
            properties=properties,
            preload=flaky_dsp if one.temper.flaky_dsp else None,
            public_key=key,
            storage_limit_bytes=one.temper.storage_bytes,
            prepares_gpu=True,
        )

    def _run_links(self, loop: _Loop) -> Callable[[], None]:
        """Has the links live in a thread of their own, and returns what ends them."""
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        async def begin() -> None:
            for link in self.links:
                await link.begin()

        async def end() -> None:
            ours = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not ours]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        def stop() -> None:
            asyncio.run_coroutine_threadsafe(end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        asyncio.run_coroutine_threadsafe(begin(), loop).result()
        for link in self.links:
            asyncio.run_coroutine_threadsafe(link.live(), loop)
        return stop
