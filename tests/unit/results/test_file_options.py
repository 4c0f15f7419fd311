"""Options for a file in a run's command, as `run` or pytest spell them."""

import pytest

from harness.plugin.options import ALL
from harness.results.file_options import file_options_in, pytest_options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "qnn-harness run m.onnx --inputs in --limit=max-error=0.1",
            {"inputs": "in", "max-error": "0.1"},
        ),
        ("pytest m.onnx --expected=out -k x", {"expected": "out"}),
        (
            "qnn-harness run m.onnx --limit tolerance=1 --limit tolerance=2,drift=1",
            {"tolerance": "2"},
        ),
        ("qnn-harness run m.onnx --inputs", {"inputs": ""}),
        ("run m.bin --context-option a=1 --context-option=b=2", {"context-option": "a=1,b=2"}),
        ("pytest m.bin -o qnn_graph=g --residency window=3", {"graph": "g", "window": "3"}),
        ("pytest --model=m.bin --copies 3", {}),
    ],
)
def test_it_is_read_from_the_command(words: str, expected: dict[str, str]) -> None:
    assert file_options_in(words.split()) == expected
    assert file_options_in(list(pytest_options(expected))) == expected, "pytest is asked the same"


@pytest.mark.parametrize("command", [None, "run --inputs in", 3, {}])
def test_a_command_that_is_none_asks_nothing(command: object) -> None:
    assert file_options_in(command) == {}


def test_options_that_pytest_has() -> None:
    names = ("inputs", "expected", "tolerance", "graph", "window", "reference", "fallback")
    words = [*pytest_options(dict.fromkeys((*names, "context-option"), "1"))]
    known = {option.name for option in ALL}
    assert {word.partition("=")[0] for word in words} - {"-o"} <= known
