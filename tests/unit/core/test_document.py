"""YAML by line: what is read, what is refused, and that the place named is the right one."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from harness.core import yaml_document as document
from harness.core.errors import ConfigError
from harness.core.yaml_document import field_name, join_mistakes, parse_document, read_document
from tests.properties import reached, reaches
from tests.snapshots import Snapshot

words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), words, st.dates()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=12,
)

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [" + ",".join([f"*{before}"] * 10) + "]\n"
    for before, name in zip("abcde", "bcdef", strict=True)
)


MISTAKES = (
    "a: 1\nb:\n\t- 1\n",
    "a: 1\nb: [1, 2\nc: 3\n",
    "a: 1\nb: 'x",
    "a:\n  - b: 1\n    b: 2\n",
    "a: &x\n  - *x\n",
    "- " * 5000 + "1",
    LAUGHS,
    "a: 1\nb: !!python/object:os.system x\n",
    "a: !own x\n",
    "a: !!set {x}\n",
    "a: 1\nuntil: 2026-13-45\n",
    "a: " + "1" * 5000,
    "a: 1\n<<: {b: 2}\n",
    "a: 1\n? [x]\n: 2\n",
    "a: 1\n2: x\n",
    "a: 1\nb: \x01\n",
    "a: 1\nb: *nix\n",
    "a: .inf\n",
    "a: !!int ''\n",
    "a: 1" + ":59" * 3000,
    "? !!str {a: 1}\n: 2\n",
    'a: "\\ud800"\n',
    "a: " + "x" * 20_000,
    "%YAML 1." + "1" * 5000 + "\n---\na: 1\n",
    'a: "\\UFFFFFFFF"\n',
    "---\na: 1\n---\nb: 1\n",
)


def test_mistakes_are_told_with_their_line(snapshot: Snapshot) -> None:
    mistakes = []
    for text in MISTAKES:
        with pytest.raises(ConfigError) as caught:
            parse_document(text, "f")
        mistakes.append(str(caught.value).partition(" YAML: ")[0])  # behind it: words of yaml
        assert len(str(caught.value)) < 1000
    assert mistakes == snapshot


def test_values_are_counted_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_MAX_VALUES", 1000)
    with pytest.raises(ConfigError) as caught:
        parse_document("- [x]\n" * 5000 + "]", "f")
    assert caught.value.line == 500


def test_a_long_chain_of_aliases_is_refused_and_not_followed() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))
    with pytest.raises(ConfigError):
        parse_document(chain, "lab.yaml")


def test_several_mistakes_come_together_in_the_order_of_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document("a: 1\n1: x\na: 2\nb: !own 3\n", "f")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4"]


def test_aliases_are_filled_in() -> None:
    parsed = parse_document("a: &x {k: [1]}\nb: *x\n", "f")
    assert parsed.value == {"a": {"k": [1]}, "b": {"k": [1]}}


def test_lines_and_text_as_written() -> None:
    parsed = parse_document("# note\na:\n  - x: 0123\n    y: no\n", "f")
    assert parsed.line(("a", 0, "x")) == 3
    assert parsed.line(("a", 0, "y")) == 4
    assert parsed.written["a", 0, "x"] == "0123"
    assert parsed.line(("a", 0, "gone", 3)) == 3
    assert parsed.line(("elsewhere",)) == 2


def test_a_mistake_points_at_its_field() -> None:
    parsed = parse_document("a:\n  - b: 1\n", "lab.yaml")
    mistake = parsed.mistake(("a", 0, "b"), "is odd", ["2", "4"])
    assert (mistake.line, mistake.field, mistake.choices) == (2, "a[0].b", ["2", "4"])
    assert join_mistakes([mistake]) is mistake
    assert field_name(()) == ""


def test_what_is_missing_is_said_after_what_may_be_its_misspelling() -> None:
    missing = ConfigError("is missing: a device needs one", line=3, field="a.serial")
    mistakes = [missing, ConfigError("unknown key", line=4, field="a.seriel")]
    text = str(join_mistakes(mistakes)).splitlines()
    assert text == ["a.seriel: unknown key", "a.serial: is missing: a device needs one"]


def test_files_that_cannot_be_read(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"a: 1\nb: \xff\n")
    (tmp_path / "long.yaml").write_bytes(b"#" * (2 << 20))
    mistakes = []
    for path in ("binary.yaml", "long.yaml", "gone.yaml", ".", "/dev/zero"):
        with pytest.raises(ConfigError) as caught:
            read_document(tmp_path / path)
        mistakes.append(caught.value)
    assert mistakes == snapshot


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_document(path).value == {"a": 1}


@given(plain)
def test_what_yaml_writes_is_read_as_it_was(value: object) -> None:
    assert parse_document(yaml.safe_dump(value, allow_unicode=True), "f").value == value


@reaches(0.2)
@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@` \n\t?,0123456789", max_size=60))
def test_any_text_is_read_or_refused_with_a_configerror(text: str) -> None:
    message = "f:"
    try:
        parse_document(text, "f")
    except ConfigError as error:
        message = str(error)
        reached()
    assert message.startswith("f:")
