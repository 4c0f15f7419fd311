"""Files of a lab that are damaged or meant to harm: loading ends, and says what is wrong."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from harness.core.errors import ConfigError
from harness.lab.inventory import load_lab
from harness.results.known_issues import load_known_issues
from tests.properties import reached, reaches

ROOT = Path(__file__).parents[3]
LOADERS: dict[Callable[[Path], object], str] = {
    load_lab: (ROOT / "devices.yaml").read_text()
    + """
hosts: [{name: far, host: 10.0.0.1, port: 5037}]
health: {min_free_storage_mb: 50}
runtimes: [{name: m, kind: maven, coordinates: "a:b", repository: "https://example.com/x"}]
""",
    load_known_issues: (ROOT / "suites" / "known_issues.yaml").read_text(),
}
PIECES = st.one_of(
    st.sampled_from(
        [
            *"!&*-:?{}[]#|>%@`'\"\n\t,",
            *("!!int ", "!!bool ", "!!timestamp ", "!!float ", "!!null ", "!!str ", "!!map "),
            *("!!binary ", "!!set ", "!!omap ", "!!pairs ", "!!seq ", "!!python/name:os.system "),
            *("? ", "<<: ", "&a ", "*a", "*a : ", ": ", "- ", "---\n", "...\n", "%YAML 9.9\n"),
            *("''", '"\\ud800"', '"\\0"', '"\\UFFFFFFFF"', '"\\e]0;x\\a"'),
            *("\ufeff", "\u2028", "\x00"),
            *("1:59:59", ".inf", ".nan", "0x", "0b", "-0", "1_", "2026-13-45", "2026-01-01T99:99"),
            *("true", "null", "~", "1e999", "{a: 1}", "[x]", "9" * 70, "é" * 3),
        ]
    ),
    st.text(max_size=5),
)


@reaches(0.4)
@settings(max_examples=150)
@given(
    st.sampled_from(list(LOADERS)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), PIECES), min_size=1, max_size=4),
    st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)
def test_whatever_a_file_holds_it_is_loaded_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    load: Callable[[Path], object],
    edits: list[tuple[float, int, str]],
    encoding: str,
) -> None:
    text = LOADERS[load]
    for offset, taken_out, put_in in edits:
        begin = int(offset * len(text))
        text = text[:begin] + put_in + text[begin + taken_out :]
    path = tmp_path_factory.getbasetemp() / "hostile.yaml"
    path.write_bytes(text.encode(encoding, "replace"))
    message = str(path)
    try:
        load(path)
    except ConfigError as error:
        message = str(error)
        reached()
    assert str(path) in message
    assert len(message) < 20_000
    assert message.encode()


def lines(count: int, line: str) -> str:
    return "".join(line.format(number) for number in range(count))


DEVICE = "  - {{name: d{0}, serial: s{0}, host: h{0}}}\n"
HOSTS = "hosts:\n" + lines(300, "  - {{name: h{0}x, host: a}}\n")


@pytest.mark.parametrize(
    "text",
    [
        "schema: 1\n" + lines(6000, "k{}: 1\n"),
        HOSTS + "schema: 1\ndevices:\n" + lines(1250, DEVICE),
        "schema: 1\n" + "k" * 900 + ": 1\n",
        "schema: 1\ndevices:\n" + 30 * f"  - {{name: {'n' * 9000}, serial: a}}\n",
    ],
    ids=["keys", "hosts", "long-key", "long-names"],
)
def test_what_is_said_is_short_however_much_is_wrong(tmp_path: Path, text: str) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_lab(path)
    assert len(str(caught.value)) < 10_000
    *messages, last = str(caught.value).splitlines()
    assert len(messages) <= 20
    assert last.startswith(("and ", str(path)))


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for load in LOADERS:
        for path in (pipe, tmp_path, Path("/dev/zero"), Path("/proc/self/mem")):
            with pytest.raises(ConfigError):
                load(path)
