"""The real libraries and the contexts of the real compiler, from the user's own cache.

They are fetched and compiled when they are not there yet, so that only the first run of the tests
needs a package index.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.core.state_folders import cache_root
from harness.models.builtin_models import Model
from harness.models.context_cache import ContextStore
from harness.models.session_plan import Context
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.runtime import Runtime
from harness.transport import ssh_connection as connection
from tests.integration.device_runs import DeviceRuns
from tests.integration.lab.ssh_host import SshHost

HTP_ARCH = 73

RuntimeFor = Callable[..., Runtime]
ContextFor = Callable[..., Context]


@pytest.fixture(scope="session")
def user_cache() -> Path:
    """The user's cache: QNN_HARNESS_CACHE, else the usual place."""
    return cache_root()


@pytest.fixture(scope="session")
def catalog(user_cache: Path) -> Catalog:
    return Catalog(user_cache)


@pytest.fixture(scope="session")
def probes(user_cache: Path) -> ProbeBuilder:
    return ProbeBuilder(user_cache / "probe")


@pytest.fixture(scope="session")
def context_store(user_cache: Path, catalog: Catalog, probes: ProbeBuilder) -> ContextStore:
    return ContextStore(user_cache, catalog, probes)


@pytest.fixture(scope="session")
def runtime_for(catalog: Catalog) -> RuntimeFor:
    """runtime_for(version, target="linux-x64"): a runtime on this host."""

    def get(version: str, target: str = "linux-x64") -> Runtime:
        return catalog.runtime(version, target)

    return get


@pytest.fixture(scope="session")
def context_for(context_store: ContextStore) -> ContextFor:
    """context_for(model, compiler, htp_arch=73): a context; the model by spec or by name."""

    def get(model: Model | str, compiler: str, htp_arch: int = HTP_ARCH) -> Context:
        spec = Model.parse(model) if isinstance(model, str) else model
        return context_store.get(spec, compiler, htp_arch)

    return get


@pytest.fixture
def lab(tmp_path: Path) -> DeviceRuns:
    """A lab of its own with one simulated device, and a way to run device tests on it."""
    return DeviceRuns(tmp_path)


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> DeviceRuns:
    """The same for all tests of a file."""
    return DeviceRuns(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def far(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SshHost]:
    """A computer with two simulated devices, or as many as a parameter says, behind ssh."""
    monkeypatch.setattr(connection, "_connections", {})
    folder = tmp_path / "far"
    folder.mkdir()
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as runtime,  # pytest's own is too long for a socket
        SshHost(folder, devices=getattr(request, "param", 2)) as host,
    ):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("PATH", f"{host.bin}{os.pathsep}{os.environ['PATH']}")
        yield host
        host.kill_tunnel()
