"""A board: this computer, behind a real sshd on loopback and a link that can be cut."""

import getpass
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.transport.ssh_board import SshBoard
from harness.transport.ssh_connection import SshLogin
from tests.integration.lab.ssh_host import SshHost
from tests.integration.transport.adb.faulty_link import FaultyLink


@pytest.fixture(scope="session")
def shared_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with SshHost(tmp_path_factory.mktemp("sshd"), devices=0) as host:
        yield host


@pytest.fixture
def sshd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SshHost]:
    """The one of all tests, or where a parameter says `own` one that a test may configure."""
    if getattr(request, "param", None) != "own":
        yield request.getfixturevalue("shared_sshd")
        return
    folder = tmp_path / "sshd"
    folder.mkdir()
    with SshHost(folder, devices=0) as host:
        yield host


@pytest.fixture
def link(sshd: SshHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyLink]:
    """The link of all connections to the board."""
    monkeypatch.setenv("PATH", str(sshd.bin), prepend=":")
    with FaultyLink(f"127.0.0.1:{sshd.port}") as link:
        sshd.trust(link.address.rpartition(":")[2])
        yield link


@pytest.fixture
def board(link: FaultyLink) -> Iterator[SshBoard]:
    host, _, port = link.address.rpartition(":")
    board = SshBoard(SshLogin(f"{getpass.getuser()}@{host}", int(port)))
    yield board
    link.resume()
    board.disconnect()


@pytest.fixture
def device(board: SshBoard) -> SshBoard:
    """By the name that the tests of adb's shell give it."""
    return board


@pytest.fixture
def any_device(board: SshBoard) -> SshBoard:
    return board


@pytest.fixture
def caller(board: SshBoard) -> str:
    """Lines of a program that make the same board."""
    return (
        "from harness.transport.ssh_board import SshBoard\n"
        "from harness.transport.ssh_connection import SshLogin\n"
        f"device = SshBoard({board.login!r})"
    )


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder on the board for the test."""
    return str(Path(tmp_path_factory.getbasetemp()) / f"board-{secrets.token_hex(4)}")
