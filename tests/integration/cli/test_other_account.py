"""Another account of this computer sees and changes no file of a run."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.core.state_folders import cache_root
from tests.conftest import ONE_DEVICE, ROOT
from tests.other_account import as_nobody

pytestmark = pytest.mark.needs("root")

SUITE = """import pytest

@pytest.mark.device
def test_it(bench):
    assert bench.device.name == "sim-run"
"""
FOLDERS = ("cache", "simulated", "reports")


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that every account can enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="other-account-"))
    folder.chmod(0o755)
    (folder / "devices.yaml").write_text(
        ONE_DEVICE.format(name="sim-test") + "  - {name: sim-run, simulated: true, soc: QCS8550}\n"
    )
    yield folder
    shutil.rmtree(folder)


def reached_below(folder: Path) -> list[str]:
    """Return the paths that this account can read, list or write to, of all that it can see."""
    reached = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            continue
        kinds = (os.R_OK, os.W_OK, *((os.X_OK,) if path.is_dir() else ()))
        if any(os.access(path, kind) for kind in kinds):
            reached.append(path.relative_to(folder).as_posix())
    return reached


@pytest.mark.nightly
def test_files_and_folders_while_a_device_runs(base: Path) -> None:
    environment = os.environ | {
        "QNN_HARNESS_CACHE": str(base / "cache"),
        "QNN_HARNESS_SIMULATED": str(base / "simulated"),
        "QNN_HARNESS_LEASES": str(base / "leases"),
        "PYTHONPATH": str(ROOT),
    }
    (base / "test_it.py").write_text(SUITE)
    cache = cache_root()
    (base / "cache").mkdir(mode=0o700)
    for name in ("wheels", "unpacked"):  # large, and made by other tests
        (cache / name).mkdir(exist_ok=True)
        (base / "cache" / name).symlink_to(cache / name)
    lab = ["--lab", str(base / "devices.yaml")]
    command = [sys.executable, "-m", "harness.cli.main", "simulator", "start", *lab]
    process = subprocess.Popen(
        command, env=environment, cwd=base, stdout=subprocess.PIPE, text=True, umask=0
    )
    try:
        process.stdout.readline()
        match = re.search(r"localfilesystem:(\S+)", process.stdout.readline())
        run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        subprocess.run(
            [*run, "--lab=devices.yaml", "--device=sim-run", "--reports=reports", "test_it.py"],
            env=environment,
            cwd=base,
            check=True,
            timeout=120,
            umask=0,
        )
        for name in FOLDERS:
            assert any((base / name).iterdir())
            assert name in reached_below(base)  # we can, so the attempt is a true one
        reached = as_nobody(lambda: "\n".join(reached_below(base))).splitlines()
        remaining = [path for path in reached if not path.startswith(("leases", "__pycache__"))]
        assert remaining == ["devices.yaml", "test_it.py"]
        for folder in (*(base / name for name in FOLDERS), Path(match[1]).parent):
            for attempt in (
                lambda folder=folder: os.listdir(folder),
                lambda folder=folder: (folder / "new").write_text("x"),
                lambda folder=folder: folder.rename(folder.with_name("theirs")),
            ):
                assert as_nobody(attempt) == "PermissionError"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert not Path(match[1]).parent.exists()
