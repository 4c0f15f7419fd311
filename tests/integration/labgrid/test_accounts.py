"""Two accounts share a labgrid lab, and the devices themselves say who used them when.

No lease keeps the sessions apart: each has a folder of leases of its own, as on another computer.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from packaging.version import Version

from harness.core.cache import cache_root
from tests.integration.device_runs import RUN_TIMEOUT_S, DeviceRuns, Finished
from tests.integration.labgrid.rack import Rack

MARKS = "data/local/tmp/marks"
CASES = 5
# A session is what labgrid calls it. Only one of those who make a folder at once succeeds.
SUITE = f'''"""Cases that mark on their device that they use it."""
import json
import os
import shlex
from pathlib import Path
import pytest
from harness.probe.plan import Plan, Step

SCRIPT = """mkdir -p /{MARKS}; cd /{MARKS} || exit
mkdir in-use || echo "both $1" >>journal
echo "alone $1" >>journal
sleep 0.2
rmdir in-use
"""

@pytest.mark.device
@pytest.mark.parametrize("number", range({CASES}))
def test_use(bench, number):
    owner = Path(os.environ["QNN_HARNESS_LABGRID_SESSION"], "owner.json").read_text()
    name = shlex.quote(json.loads(owner)["name"])
    bench.run(Plan((Step("noop"),))).check()
    used = bench.device.transport.shell(f"set -- {{name}}\\n{{SCRIPT}}", timeout_s=60)
    assert used.exit_code == 0, used
'''

Start = Callable[[DeviceRuns], subprocess.Popen[str]]


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    with Rack(tmp_path_factory.mktemp("rack"), 2) as started:
        yield started


def begin(runs: DeviceRuns, *prefix: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*prefix, *runs.command(runs.folder / "test_use.py")],
        cwd=runs.folder,
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def share(rack: Rack, folder: Path, start: dict[str, Start]) -> None:
    """Has each account run two sessions at once, four on two places, and asks the devices."""
    with contextlib.ExitStack() as ends:
        started: list[tuple[DeviceRuns, subprocess.Popen[str]]] = []
        for name in [*start, *start]:
            run_folder = folder / f"{len(started)}-{name}"
            run_folder.mkdir()
            runs = DeviceRuns(run_folder)
            (run_folder / "test_use.py").write_text(SUITE)
            rack.describe(runs)
            process = start[name](runs)
            ends.callback(process.kill)
            started.append((runs, process))
        for runs, process in started:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
            assert process.returncode == 0, output
            cases = Finished(0, "", runs.reports).cases
            assert [case["outcome"] for case in cases] == ["passed"] * CASES
    sessions = []
    for device in rack.devices.values():
        journal = device.storage / MARKS / "journal"
        lines = journal.read_text().splitlines()
        journal.unlink()
        assert {line.partition(" ")[0] for line in lines} == {"alone"}
        # a place is a session's from its first case to its last
        sessions += [(name, len(list(uses))) for name, uses in groupby(lines)]
    assert sorted(uses for _, uses in sessions) == [CASES] * 4, sessions
    users = sorted(name.rpartition("/")[2] for name, _ in sessions)
    assert users == sorted([*start, *start])
    assert not rack.holders()
    assert not rack.has_reservations()


@pytest.fixture
def accounts() -> Iterator[list[str]]:
    """Two accounts of this computer, which are gone afterwards."""
    names = [f"qnn-{name}-{os.getpid()}" for name in ("alice", "bob")]
    with contextlib.ExitStack() as ends:
        for name in names:
            subprocess.run(["useradd", "--no-create-home", name], check=True, timeout=60)
            ends.callback(subprocess.run, ["userdel", name], check=True, timeout=60)
        yield names


@pytest.mark.nightly
@pytest.mark.needs("root")
@pytest.mark.needs("setpriv")
@pytest.mark.needs("useradd")
def test_two_accounts_of_a_computer_never_use_a_device_both(
    rack: Rack, tmp_path: Path, accounts: list[str]
) -> None:
    # what both would fetch otherwise
    wheels = (cache_root() / "wheels").glob("onnxruntime_qnn-*x86_64.whl")
    newest = max(wheels, key=lambda file: Version(file.name.split("-")[1]), default=None)

    def start_as(name: str) -> Start:
        home = tmp_path / f"home-{name}"
        cache = home / "cache/wheels"
        cache.mkdir(parents=True)
        for file in [] if newest is None else newest.parent.glob(f"{newest.name}*"):
            shutil.copy(file, cache)
        account = pwd.getpwnam(name)

        def start(runs: DeviceRuns) -> subprocess.Popen[str]:
            runs.environment |= {"USER": name, "LOGNAME": name, "HOME": str(home)}
            runs.environment["QNN_HARNESS_CACHE"] = str(home / "cache")
            for one in (home, runs.folder):
                for path in (one, *one.rglob("*")):
                    os.chown(path, account.pw_uid, account.pw_gid)
            # the tests' own files may lie where only root looks, but nothing of root's is written
            may_read = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
            ids = ("--reuid", name, "--regid", str(account.pw_gid), "--clear-groups")
            return begin(runs, "setpriv", *ids, *may_read)

        return start

    share(rack, tmp_path, {name: start_as(name) for name in accounts})
