"""A phone for tests: the real adbd, Android 11's shell and programs, arm64 programs under qemu.

All of it is a phone's own code but the processor, the kernel, and what only vendors have: its
properties, its log and the nodes of its DSP are stood in for.
"""

import contextlib
import os
from pathlib import Path
from typing import Any, Self

import yaml

from tests.android.system import SOC, android
from tests.faults.breakable import KeptServer
from tests.integration.device_runs import DeviceRuns
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.integration.transport.adb.real_adbd import RealDevice
from tests.needed import FORMATS, need

ADBD = "QNN_HARNESS_ADBD_ROOT"


class Phone:
    """A started phone, on an adb server of its own, and runs on it.

    `data` is its /data, on this host, `link` its cable; devices.yaml of `runs` calls it `phone`,
    and names `repository` as a place of libraries.
    """

    link: FaultyLink

    def __init__(self, folder: Path, **options: Any) -> None:
        need("qemu-aarch64")
        need(FORMATS)
        folder.mkdir(exist_ok=True)
        self.data = folder / "data"
        self.runs = DeviceRuns(folder)
        self.repository = folder / "maven"
        self.home = folder / "home"
        self._options = options
        self._cleanup = contextlib.ExitStack()
        self._port = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as cleanup:
            server = KeptServer(self.home)
            cleanup.callback(server.stop)
            server.start()
            options = {"storage": self.data, "android": android(self.runs.folder), **self._options}
            device = cleanup.enter_context(RealDevice(Path(os.environ[ADBD]), **options))
            self.link = cleanup.enter_context(FaultyLink(device.address))
            self._port = server.port
            self.describe()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def describe(self, **more: str) -> None:
        """Writes devices.yaml; `more` is what it says of the phone besides."""
        phone = {"name": "phone", "serial": self.link.address, "host": "here", "soc": SOC}
        lab = {
            "schema": 1,
            "hosts": [{"name": "here", "host": "127.0.0.1", "port": self._port}],
            "devices": [phone | more],
            "runtimes": [
                {
                    "name": "qualcomm",
                    "kind": "maven",
                    "coordinates": "com.qualcomm.qti:qnn-runtime",
                    "repository": str(self.repository),
                }
            ],
        }
        self.runs.file.write_text(yaml.safe_dump(lab))

    def log(self, text: str) -> None:
        """Replace its log."""
        (self.data / "misc").mkdir(exist_ok=True)
        (self.data / "misc/log").write_text(text)
