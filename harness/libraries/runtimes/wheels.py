"""The cache of wheels: each fetched once by pip, and hashed before it is used."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, Self

from harness.ground.errors import InfraError
from harness.ground.files.fetched import FetchedFile, FetchedFiles
from harness.ground.host.deadline import Deadline
from harness.ground.host.guard import spawn_guarded

_KEPT_OUTPUT_BYTES = 256 * 1024
_MAX_LINE = 240

# What stands in pip's warnings when an index cannot be used, from pip 23 to 26 and urllib3.
_CAUSES: Final = (
    (r"No module named pip\b", "this Python has no pip; `python -m ensurepip` adds it"),
    (r"No space left on device|Errno 28", "no space left on this computer's disk"),
    (
        r"name resolution|Name or service not known|nodename nor servname|Failed to resolve"
        r"|NameResolutionError|getaddrinfo failed",
        "the package index cannot be found by name",
    ),
    (r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerification", "its certificate is not accepted"),
    (r"ProxyError|Tunnel connection failed", "the proxy refuses"),
    (r"40[137] Client Error|40[137] Unauthorized|\b40[137] Forbidden", "the index wants a login"),
    (r"Read timed out|ReadTimeout|ConnectTimeout|timed out", "the index does not answer in time"),
    (
        r"Connection refused|Network is unreachable|No route to host|NewConnectionError"
        r"|RemoteDisconnected|Connection aborted|ConnectionResetError|IncompleteRead",
        "the connection to the package index fails",
    ),
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+", re.IGNORECASE)
_HOST = re.compile(r"host='[^']*'(?:, port=\d+)?")

FETCH_TIMEOUT_S: Final = 1800.0
"""Enough for 100 MB over a line of 0.5 Mbit/s."""


def pip_download(request: WheelRequest, folder: Path, timeout_s: float) -> Path:
    """Runs `pip download` for one wheel, on whatever computer; it is left in `folder`, empty now.

    The user's own configuration of pip decides where from (index, links, proxy, certificates).
    pip and all it starts are ended at the deadline, and when we are ended. Raises InfraError with
    pip's reason in one line, without addresses or credentials.
    """
    command = [sys.executable, "-m", "pip", "download", f"{request.project}=={request.version}"]
    command += ["--platform", request.platform, "--python-version", request.python]
    command += ["--implementation", "cp", "--abi", request.abi]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-color"]
    deadline = Deadline(timeout_s)
    with (
        tempfile.TemporaryFile() as output,
        spawn_guarded(command, env=_environment(), stdout=output, stderr=output) as pip,
    ):
        code = pip.wait(deadline)
        said = _tail(output)
    if code is None:
        raise InfraError(f"pip was not done within {timeout_s:g} s")
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise InfraError(f"pip: {essential_line(said)}")
    return wheels[0]


def essential_line(output: str) -> str:
    """What matters of pip's output after a failure, in one line without addresses (pure)."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "it failed and said nothing"
    # The first says what was wanted, the later ones repeat it with less.
    said = next((line[7:] for line in lines if line.startswith("ERROR: ")), last)
    cause = next((text for pattern, text in _CAUSES if re.search(pattern, output)), None)
    line = _HOST.sub("host=<index>", _URL.sub("<index>", said)).strip()
    line = line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
    return f"{line} ({cause})" if cause else line


def _environment() -> dict[str, str]:
    # Options of a user's `pip download` that would send the file elsewhere or fetch others.
    taken_out = ("PIP_DEST", "PIP_NO_BINARY", "PIP_REQUIREMENT", "PIP_QUIET", "PIP_LOG")
    kept = {name: value for name, value in os.environ.items() if name not in taken_out}
    return kept | {"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "ignore"}


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _KEPT_OUTPUT_BYTES))
    return output.read().decode("utf-8", "replace")


@dataclass(frozen=True)
class WheelRequest:
    """One wheel of a package index: project, version and the tags that pip chooses by.

    `platform` as in manylinux_2_35_x86_64, `python` as in 3.12, `abi` as in cp312.
    """

    project: str
    version: str
    platform: str
    python: str
    abi: str

    @classmethod
    def for_this_python(cls, project: str, version: str, platform: str) -> Self:
        """The wheel for the Python that runs this."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        abi = f"cp{python.replace('.', '')}{sys.abiflags}"
        return cls(project, version, platform, python, abi)

    @property
    def file_name(self) -> str:
        interpreter = "cp" + self.python.replace(".", "")
        project = self.project.replace("-", "_")
        return f"{project}-{self.version}-{interpreter}-{self.abi}-{self.platform}.whl"

    def __str__(self) -> str:
        return f"{self.project} {self.version} ({self.platform})"


@cache
def known_sha256() -> Mapping[str, str]:
    """{name in the cache: sha256} of the wheels that the harness names itself.

    So no other file can pass for them. Any other wheel is trusted when it is first fetched, and
    must stay the same. known_wheels.tsv was made with `pip download --no-deps --only-binary :all:
    --platform P --python-version V --implementation cp --abi A PROJECT==VERSION` and `sha256sum` on
    what came; a package index shows the same numbers beside its files.
    """
    text = files("harness.libraries.runtimes").joinpath("known_wheels.tsv").read_text("ascii")
    rows = (line.split("\t") for line in text.splitlines())
    return MappingProxyType({name: sha256 for sha256, name in rows})


class WheelCache:
    """Wheels below `root`, each fetched by pip and kept as `FetchedFiles` keeps them.

    `known` are the hashes that a wheel must have, by file name in the cache (`known_sha256` unless
    given); others are trusted when first fetched.
    """

    def __init__(
        self,
        root: Path,
        *,
        known: Mapping[str, str] | None = None,
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._files = FetchedFiles(root, timeout_s=timeout_s)
        self._known = known_sha256() if known is None else known
        self._timeout_s = timeout_s

    def is_cached(self, request: WheelRequest) -> bool:
        """Whether the wheel is in the cache; it is not hashed for this."""
        return self._files.is_cached(request.file_name)

    def fetch(self, request: WheelRequest) -> FetchedFile:
        """The wheel, fetched by pip if it is not there or damaged.

        Raises InfraError if it cannot be fetched, or if what comes is not what it should be.
        """
        name, trust = request.file_name, "known"
        expected = self._known.get(name)
        if expected is None:
            expected, trust = self._files.noted_sha256(name), "first use"

        def bring(folder: Path) -> tuple[Path, dict[str, str]]:
            wheel = self._from_pip(request, folder)
            return wheel, {"served_as": wheel.name, "trust": trust}

        return self._files.get(name, bring, what=str(request), expected=expected)

    def damage(self, request: WheelRequest) -> list[str]:
        """What is wrong with a wheel of the cache; nothing for one that is not there."""
        return self._files.damage(request.file_name, self._known.get(request.file_name))

    def _from_pip(self, request: WheelRequest, folder: Path) -> Path:
        try:
            wheel = pip_download(request, folder, self._timeout_s)
        except InfraError as error:
            raise InfraError(
                f"could not fetch {request}: {error}. Connect this computer to a package index "
                "(pip's own configuration is used), or name a folder that holds the wheel in "
                "PIP_FIND_LINKS"
            ) from error
        project, version = (*wheel.name.split("-"), "")[:2]
        if (project.lower().replace("_", "-"), version) != (request.project, request.version):
            raise InfraError(f"pip was asked for {request} and brought {wheel.name[:120]}")
        return wheel
