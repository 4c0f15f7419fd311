"""`notify:` in devices.yaml: what is read, what it is filled in with, and each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.lab.inventory import load_lab
from harness.device.lab.notify import NewsChannel
from harness.ground.errors import ConfigError

LAB = "schema: 1\ndevices: [{name: phone, serial: ABC}]\nnotify:\n"


def read(folder: Path, text: str) -> tuple[NewsChannel, ...]:
    path = folder / "devices.yaml"
    path.write_text(LAB + text)
    return load_lab(path).notify


def test_secrets_come_from_the_environment_and_are_shown_nowhere(tmp_path: Path) -> None:
    first, second = read(
        tmp_path,
        "  - {name: team, url: 'slack://${A}/${B}/#lab', news: [new, lost]}\n"
        "  - {name: whole, url: '${URL}', template: mine.j2}\n",
    )
    environment = {"A": "T1", "B": "T2\n", "URL": "json://${A}"}
    assert first.address(environment) == "slack://T1/T2/#lab"
    assert second.address(environment) == "json://${A}", "what is filled in is no more filled in"
    assert (first.news, second.news) == (("new", "lost"), ("new", "fixed", "lost", "flaky"))
    assert "slack" not in repr(first)
    for lacking in ({}, {"A": "x"}, {"A": "x", "B": " "}):
        name = "B" if lacking else "A"
        with pytest.raises(ConfigError, match=f"^notify team: the environment has no {name}$"):
            first.address(lacking)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  - {name: a, url: nowhere}\n", "4: notify[0].url: must be a URL, as in slack://${"),
        ("  - {name: a, url: 'json://a b'}\n", "4: notify[0].url: must be a URL"),
        ("  - {name: A b, url: 'json://a'}\n", "4: notify[0].name: "),
        ("  - {name: a, url: 'json://a', news: [old]}\n", "notify[0].news[0]: unknown value 'old'"),
        ("  - {name: a, url: 'json://a', on: [new]}\n", "4: notify[0]: a key must be text"),
        (
            "  - {name: a, url: 'json://a'}\n  - {name: a, url: 'json://b'}\n",
            "5: notify[1].name: 'a' is taken already by line 4",
        ),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert told in str(error.value)
