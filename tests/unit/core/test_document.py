"""YAML by line: what is read, what is refused, and that the place named is the right one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from harness.core import yaml_document as document
from harness.core.errors import ConfigError
from harness.core.yaml_document import field_name, join_mistakes, parse_document, read_document
from tests.properties import reached, reaches

words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), words, st.dates()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(words, inner, max_size=4),
    ),
    max_leaves=12,
)

LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [" + ",".join([f"*{before}"] * 10) + "]\n"
    for before, name in zip("abcde", "bcdef", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb:\n\t- 1\n", 3, "a tab stands where YAML wants spaces"),
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "not valid YAML: expected ',' or ']'"),
        ("a: 1\nb: 'x", 2, "unexpected end of stream"),
        ("a: 1\nb: 2\na: 3\n", 3, "a: is repeated; it already stands in line 1"),
        ("a:\n  - b: 1\n    b: 2\n", 3, "a[0].b: is repeated; it already stands in line 2"),
        ("a: &x\n  - *x\n", 1, "aliases are nested too deeply, or without end"),
        ("- " * 5000 + "1", 1, "nested deeper than 32 levels"),
        ("[" * 5000, 1, "nested deeper than 32 levels"),
        (LAUGHS, 1, "has more than 100000 values once its aliases are filled in"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "'x' is not a valid python/object"),
        ("a: !own x\n", 1, "'x' is not a valid !own"),
        ("a: 1\nuntil: 2026-13-45\n", 2, "until: '2026-13-45' is not a valid timestamp"),
        ("a: " + "1" * 5000, 1, "is not a valid int"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys (<<) are not supported"),
        ("a: 1\n2: x\n", 2, "a key must be text"),
        ("a: 1\n? [x]\n: 2\n", 2, "a key must be text"),
        ("a: 1\nb: \x01\n", 2, "holds a character that YAML does not allow"),
        ("a: 1\nb: *nix\n", 2, "found undefined alias 'nix'"),
        ("a: !!int ''\n", 1, "a: '' is not a valid int"),
        ("a: !!float x\n", 1, "a: 'x' is not a valid float"),
        ("a: !!bool x\n", 1, "a: 'x' is not a valid bool"),
        ("a: !!timestamp x\n", 1, "a: 'x' is not a valid timestamp"),
        ("a: 1" + ":59" * 3000, 1, "a: '1:59:59"),
        ("a: 0x" + "f" * 9000, 1, "is not a valid int"),
        ("a: .inf\n", 1, "a: '.inf' is not a valid float"),
        ("a: 1.0e+999\n", 1, "a: '1.0e+999' is not a valid float"),
        ("? !!str {a: 1}\n: 2\n", 1, "a key must be text"),
        ("a: !!str [x]\n", 1, "a: str is no tag that is known here"),
        ("a: !!set {x}\n", 1, "a: set is no tag that is known here"),
        ("a: !!int {x: 1}\n", 1, "a: int is no tag that is known here"),
        ('a: "\\ud800"\n', 1, "a: holds half of a character"),
        ('"\\ud800": 1\n', 1, "a key holds half of a character"),
        ("a: " + "x" * 20_000, 1, "a: is longer than 10000 characters"),
        ("a: 1" + ":59" * 300_000, 1, "a: is longer than 10000 characters"),
        ("%YAML 1." + "1" * 5000 + "\n---\na: 1\n", None, "not valid YAML: Exceeds the limit"),
        ('a: "\\UFFFFFFFF"\n', None, "not valid YAML: "),
        ("---\na: 1\n---\nb: 1\n", 3, "found another document"),
    ],
)
def test_mistakes_name_their_line(text: str, line: int | None, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "lab.yaml")
    assert str(caught.value).startswith("lab.yaml: " if line is None else f"lab.yaml:{line}: ")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_values_are_counted_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_MAX_VALUES", 1000)
    with pytest.raises(ConfigError, match="f:500: has more than 1000 values"):
        parse_document("- [x]\n" * 5000 + "]", "f")


def test_a_long_chain_of_aliases_is_refused_and_not_followed() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 2000))
    with pytest.raises(ConfigError, match="nested too deeply"):
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
    assert str(mistake) == "lab.yaml:2: a[0].b: is odd (valid: 2, 4)"
    assert join_mistakes([mistake]) is mistake


def test_what_is_missing_is_said_after_what_may_be_its_misspelling() -> None:
    missing = ConfigError("is missing: a device needs one", line=3, field="a.serial")
    mistakes = [missing, ConfigError("unknown key", line=4, field="a.seriel")]
    text = str(join_mistakes(mistakes)).splitlines()
    assert text == ["a.seriel: unknown key", "a.serial: is missing: a device needs one"]


def test_field_names() -> None:
    assert field_name(("devices", 0, "tags", 1)) == "devices[0].tags[1]"
    assert field_name(()) == ""


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"a: 1\nb: \xff\n", ":2", "is not UTF-8 text"),
        (b"#" * (2 << 20), "", "cannot be read: it has more than 1048576 bytes"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, line: str, problem: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    assert str(caught.value) == f"{path}{line}: {problem}"


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_document(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="is not a file"):
        read_document(tmp_path)
    with pytest.raises(ConfigError, match="is not a file"):
        read_document(Path("/dev/zero"))


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
