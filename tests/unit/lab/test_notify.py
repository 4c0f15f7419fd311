"""`notify:` in devices.yaml: what is read, what it is filled in with, and each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.lab.fields import NotifyChannel, load_channels
from harness.lab.inventory import load_lab

LAB = "schema: 1\ndevices: [{name: phone, serial: ABC}]\nnotify:\n"


def read(folder: Path, text: str) -> tuple[NotifyChannel, ...]:
    path = folder / "devices.yaml"
    path.write_text(LAB + text)
    return load_lab(path).notify


def test_secrets_come_from_the_environment_and_are_shown_nowhere(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        "  - {name: team, url: 'slack://${A}/${B}/#lab'}\n  - {name: whole, url: '${URL}'}\n",
    )
    environment = {"A": "T1", "B": "T2\n", "URL": "json://${A}"}
    assert first.address(environment) == "slack://T1/T2/#lab"
    assert second.address(environment) == "json://${A}", "what is filled in is no more filled in"
    assert "slack" not in repr(first)
    for lacking in ({}, {"A": "x"}, {"A": "x", "B": " "}):
        name = "B" if lacking else "A"
        with pytest.raises(
            ConfigError, match=f"^notify team: the environment variable {name} is not set$"
        ):
            first.address(lacking)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  - {name: a, url: nowhere}\n", "4: notify[0].url: must be a URL, as in slack://${"),
        ("  - {name: a, url: 'json://a b'}\n", "4: notify[0].url: must be a URL"),
        ("  - {name: A b, url: 'json://a'}\n", "4: notify[0].name: "),
        ("  - {name: a, url: 'json://a', colour: red}\n", "notify[0].colour: unknown key"),
        ("  - {name: a, url: 'json://a', on: [new]}\n", "4: notify[0]: a key must be text"),
        (
            "  - {name: a, url: 'json://a'}\n  - {name: a, url: 'json://b'}\n",
            "5: notify[1].name: 'a' is taken already by line 4",
        ),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert problem in str(error.value)


def test_channels_are_read_whatever_else_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text("schema: 1\ndevices: [{nome: x}]\nnotify: [{name: a, url: 'json://a'}]\n")
    assert [channel.name for channel in load_channels(path)] == ["a"]
    path.write_text("devices: []\nnotify: {a: b}\n")
    with pytest.raises(ConfigError, match="2: notify: must be a list"):
        load_channels(path)
    with pytest.raises(ConfigError, match="no such file"):
        load_channels(tmp_path / "none.yaml")
