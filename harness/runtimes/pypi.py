"""Runtimes out of the wheels of onnxruntime-qnn, and the cache of wheels that pip fetches.

Wheels are unpacked once on the host, verified at every use, and unpacked again when damaged. A
table has the use of their files. "Not opened" there: the dynamic loader did not open it while
contexts were compiled, loaded and executed (LD_DEBUG=files, QNN 2.47.0 and 2.51.0). The names on a
device are those of the wheel, as the libraries look for their C++ runtime in $ORIGIN/../*.libs.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Self

from harness.core.archive import names_of, unpack_once
from harness.core.deadline import Deadline
from harness.core.errors import ConfigError, InfraError, VersionError
from harness.core.guarded_process import spawn_guarded
from harness.core.verified_folder import FetchedFile, FetchedFiles, VerifiedFolder, find_damage
from harness.core.versions import QNN_WHEELS, QnnVersion
from harness.runtimes.runtime import LibrarySource, Runtime

_KEPT_OUTPUT_BYTES = 256 * 1024
_MAX_LINE = 240

# Texts of pip's warnings when an index cannot be used, from pip 23 to 26 and urllib3.
_CAUSES: Final = (
    (r"No module named pip\b", "this Python has no pip; `python -m ensurepip` adds it"),
    (r"No space left on device|Errno 28", "the disk of this computer is full"),
    (
        r"name resolution|Name or service not known|nodename nor servname|Failed to resolve"
        r"|NameResolutionError|getaddrinfo failed",
        "the host name of the package index cannot be resolved",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerification",
        "the certificate of the index is not accepted",
    ),
    (r"ProxyError|Tunnel connection failed", "the proxy refuses the connection"),
    (
        r"40[137] Client Error|40[137] Unauthorized|\b40[137] Forbidden",
        "the index requires a login",
    ),
    (r"Read timed out|ReadTimeout|ConnectTimeout|timed out", "the index does not answer in time"),
    (
        r"Connection refused|Network is unreachable|No route to host|NewConnectionError"
        r"|RemoteDisconnected|Connection aborted|ConnectionResetError|IncompleteRead",
        "the connection to the package index fails",
    ),
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_HOST = re.compile(r"host='[^']*'(?:, port=\d+)?")

_LAYOUT: Final = 1
_UNPACKED: Final = "unpacked"
FETCH_TIMEOUT_S: Final = 1800.0
"""Enough for 100 MB over a line of 0.5 Mbit/s."""


def pip_download(request: WheelRequest, folder: Path, timeout_s: float) -> Path:
    """Run `pip download` for one wheel, on any computer, into an empty `folder`.

    The user's own configuration of pip applies (index, links, proxy, certificates). pip and all
    its children are ended at the deadline, and when we are ended. Raises InfraError with pip's
    reason in one line, without addresses or credentials.
    """
    command = [sys.executable, "-m", "pip", "download", f"{request.project}=={request.version}"]
    command += ["--platform", request.platform, "--python-version", request.python]
    command += ["--implementation", "cp", "--abi", request.abi]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-color"]
    deadline = Deadline(timeout_s)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore"}
    with (
        tempfile.TemporaryFile() as output,
        spawn_guarded(command, env=environment, stdout=output, stderr=output) as pip,
    ):
        code = pip.wait(deadline)
        output.seek(max(0, output.seek(0, os.SEEK_END) - _KEPT_OUTPUT_BYTES))
        text = output.read().decode("utf-8", "replace")
    if code is None:
        raise InfraError(f"pip did not finish within {timeout_s:g} s")
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise InfraError(f"pip: {essential_line(text)}")
    return wheels[0]


def essential_line(output: str) -> str:
    """Return the reason of a failure from pip's output, in one line without addresses (pure)."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it failed without output"
    # The first error names the request, later ones repeat it with less detail.
    message = next((line[7:] for line in lines if line.startswith("ERROR: ")), last)
    cause = next((text for pattern, text in _CAUSES if re.search(pattern, output)), None)
    line = _HOST.sub("host=<index>", _URL.sub("<index>", message)).strip()
    line = line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
    return f"{line} ({cause})" if cause else line


@dataclass(frozen=True)
class WheelRequest:
    """One wheel of a package index: project, version and tags.

    `platform` as in manylinux_2_35_x86_64, `python` as in 3.12, `abi` as in cp312.
    """

    project: str
    version: str
    platform: str
    python: str
    abi: str

    @classmethod
    def for_this_python(cls, project: str, version: str, platform: str) -> Self:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(project, version, platform, python, f"cp{python.replace('.', '')}{sys.abiflags}")

    @property
    def file_name(self) -> str:
        interpreter = "cp" + self.python.replace(".", "")
        project = self.project.replace("-", "_")
        return f"{project}-{self.version}-{interpreter}-{self.abi}-{self.platform}.whl"

    def __str__(self) -> str:
        return f"{self.project} {self.version} ({self.platform})"


@cache
def known_sha256() -> Mapping[str, str]:
    """Return {name in the cache: sha256} of the wheels that the harness pins.

    Any other wheel is trusted when it is first fetched, and must stay the same. known_wheels.tsv
    was made with `pip download --no-deps --only-binary :all: --platform P --python-version V
    --implementation cp --abi A PROJECT==VERSION` and `sha256sum` of the files; a package index
    shows the same digests.
    """
    text = files("harness.runtimes").joinpath("known_wheels.tsv").read_text("ascii")
    rows = (line.split("\t") for line in text.splitlines())
    return MappingProxyType({name: sha256 for sha256, name in rows})


class WheelCache:
    """Wheels of the cache, each fetched by pip and kept as `FetchedFiles` keeps them, and unpacked.

    `known` are the hashes that a wheel must have, by file name in the cache (`known_sha256` unless
    given); others are trusted when first fetched.
    """

    def __init__(
        self,
        cache_root: Path,
        *,
        known: Mapping[str, str] | None = None,
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._root = cache_root
        self._files = FetchedFiles(cache_root / "wheels", timeout_s=timeout_s)
        self._known = known_sha256() if known is None else known
        self._timeout_s = timeout_s

    def is_cached(self, request: WheelRequest) -> bool:
        return self._files.is_cached(request.file_name)

    def fetch(self, request: WheelRequest) -> FetchedFile:
        """Return the wheel, fetched if it is missing or damaged. Raises InfraError."""
        name = request.file_name
        expected = self._known.get(name) or self._files.noted_sha256(name)

        def bring(folder: Path) -> Path:
            try:
                wheel = pip_download(request, folder, self._timeout_s)
            except InfraError as error:
                raise InfraError(
                    f"could not fetch {request}: {error}. Connect this computer to a package index "
                    "(as pip is configured), or set PIP_FIND_LINKS to a folder with the wheel"
                ) from error
            project, version = (*wheel.name.split("-"), "")[:2]
            if (project.lower().replace("_", "-"), version) != (request.project, request.version):
                raise InfraError(f"pip fetched {wheel.name[:120]} instead of {request}")
            return wheel

        return self._files.get(name, bring, title=str(request), expected=expected)

    def folder(
        self, request: WheelRequest, is_wanted: Callable[[str], bool], below: str = _UNPACKED
    ) -> VerifiedFolder:
        """Return the wanted files of a wheel, in a folder `below` the cache. Raises InfraError."""
        wheel = self.fetch(request)
        names = sorted(name for name in names_of(wheel.path) if is_wanted(name))
        facts = {"layout": _LAYOUT, "wheel": wheel.sha256, "names": names}
        folder = self._root / below / request.file_name.removesuffix(".whl")
        return unpack_once(wheel.path, folder, facts, is_wanted, lambda *_: {}, title=str(request))

    def damage(self, request: WheelRequest) -> list[str]:
        folder = self._root / _UNPACKED / request.file_name.removesuffix(".whl")
        unpacked = [f"{folder.name}: {damage}" for damage in find_damage(folder)]
        name = request.file_name
        return [*self._files.damage(name, self._known.get(name)), *unpacked]


Use = Literal["device", "host", "none"]
"""device: deployed (and on the host); host: for compiling there; none: not even unpacked."""

LIBRARY_FOLDER: Final = "onnxruntime_qnn"
RUNTIME_FOLDER: Final = "onnxruntime_qnn.libs"

QNN_PROJECT: Final = "onnxruntime-qnn"
PYPI: Final = "pypi"
# Every Python tag of a QNN wheel holds the same libraries (compared for 2.3.0 to 2.7.0), so that
# one tag, the first that aarch64 has too, serves every host.
_QNN_PYTHON = ("3.12", "cp312")
QNN_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"linux-x64": "manylinux_2_35_x86_64", "linux-arm64": "manylinux_2_34_aarch64"}
)
ORT_PROJECT: Final = "onnxruntime"
ORT_HOST_VERSION: Final = "1.26.0"
"""The ORT that compiles contexts: works with the QNN wheels 2.3.0 to 2.7.0 (tested for each).

Not every pair that pip accepts does: from 1.28.0 on ORT makes no session with the plug-in of 2.3.0.
"""

_ORT_PLATFORM = "manylinux_2_28_x86_64"


WHEEL_RULES: Final[tuple[tuple[str, Use], ...]] = (
    # names the QNN version, for people
    (f"{LIBRARY_FOLDER}/build_and_package_info.py", "host"),
    # ORT's plug-in makes contexts on the host; a device gets it once ORT runs there
    ("*/libonnxruntime_providers_qnn.so", "host"),
    # not opened: on x86-64 libQnnHtp.so holds the same code, and both have 100 MB
    ("*/libHtpPrepare.so", "none"),
    # prepares graphs on a board (QAIRT docs, HTP backend: online prepare), where ORT compiles there
    ("*/libQnnHtpPrepare.so", "host"),
    # not opened: language models, an extension of Python, a config file of qnn-net-run
    ("*/libGenie.so", "none"),
    ("*/libDlModelToolsPy*.so", "none"),
    ("*/libQnnHtpNetRunExtensions.so", "none"),
    # record calls and write DLC files; only compilers unpack them
    ("*/libQnnSaver.so", "none"),
    ("*/libQnnIr.so", "none"),
    # backends, stubs, skels, system library; the C++ runtime, found by $ORIGIN/../*.libs
    (f"{LIBRARY_FOLDER}/*.so", "device"),
    (f"{RUNTIME_FOLDER}/*", "device"),
    ("*", "none"),
)
"""Uses of files by patterns of their names in the wheel; the first match decides."""


def use_of(name: str) -> Use:
    """Return the use of a file of the wheel (pure)."""
    return next(use for pattern, use in WHEEL_RULES if fnmatchcase(name, pattern))


def all_versions() -> list[str]:
    """Return every QNN version that has a wheel, oldest first (pure)."""
    return sorted(QNN_WHEELS, key=QnnVersion.parse)


class PyPiSource(LibrarySource):
    """The QNN versions of onnxruntime-qnn on a package index."""

    name = PYPI
    origin = f"{QNN_PROJECT} on the package index of pip"

    def __init__(self, wheels: WheelCache) -> None:
        self._wheels = wheels
        self._runtimes: dict[tuple[str, str], Runtime] = {}

    def versions(self, target: str) -> list[str]:
        return all_versions() if target in QNN_PLATFORMS else []

    def is_cached(self, version: str, target: str) -> bool:
        return self._wheels.is_cached(qnn_wheel(version, target))

    def runtime(self, version: str, target: str) -> Runtime:
        key = (version, target)
        if key not in self._runtimes:
            folder = self.folder(version, target)
            files = tuple(
                file for name, file in sorted(folder.files.items()) if use_of(name) == "device"
            )
            self._runtimes[key] = Runtime(version, target, folder.path, files, self.name)
        return self._runtimes[key]

    def damage(self, version: str, target: str) -> list[str]:
        return self._wheels.damage(qnn_wheel(version, target))

    def folder(self, version: str, target: str) -> VerifiedFolder:
        """Return the unpacked wheel, with files that only the host uses. Raises as `runtime`."""
        wheel = qnn_wheel(version, target)
        try:
            return self._wheels.folder(wheel, lambda name: use_of(name) != "none")
        except InfraError as error:
            raise InfraError(f"QNN {version} for {target}: {error}") from error


def qnn_wheel(version: str, target: str) -> WheelRequest:
    """Return the wheel of an exact QNN version. Raises ConfigError for an unknown one."""
    if target not in QNN_PLATFORMS:
        raise ConfigError(f"PyPI has no QNN libraries for target {target!r}", choices=QNN_PLATFORMS)
    if version not in QNN_WHEELS:
        raise VersionError(f"unknown QNN version {version!r}", choices=all_versions())
    return WheelRequest(QNN_PROJECT, QNN_WHEELS[version], QNN_PLATFORMS[target], *_QNN_PYTHON)


@dataclass(frozen=True)
class CompilerHost:
    """A compiler of contexts on this computer: one ORT, and one QNN.

    `ort_root` and `qnn_root` are folders for PYTHONPATH.
    """

    qnn_version: str
    ort_version: str
    ort_root: Path
    qnn_root: Path

    @property
    def backend(self) -> Path:
        return self.qnn_root / LIBRARY_FOLDER / "libQnnHtp.so"

    @property
    def system_library(self) -> Path:
        return self.qnn_root / LIBRARY_FOLDER / "libQnnSystem.so"

    @property
    def plugin(self) -> Path:
        return self.qnn_root / LIBRARY_FOLDER / "libonnxruntime_providers_qnn.so"


def require_compiling_host() -> None:
    """Raise InfraError unless this computer can compile: x86-64 Linux."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InfraError(
            "contexts can be compiled only on x86-64 Linux; this computer is "
            f"{sys.platform} {platform.machine()}"
        )


def ort_folder(wheels: WheelCache) -> VerifiedFolder:
    """Return the unpacked wheel of `ORT_HOST_VERSION` for this Python. Raises InfraError."""
    request = WheelRequest.for_this_python(ORT_PROJECT, ORT_HOST_VERSION, _ORT_PLATFORM)
    # devices get other files of the same wheel, in a folder of their own
    return wheels.folder(request, lambda name: name.startswith("onnxruntime/"), "unpacked-host")
