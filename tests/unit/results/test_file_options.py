"""Options for a file in a run's command, as `run` or pytest spell them."""

import pytest

from harness.plugin.options import OPTIONS
from harness.results.file_options import file_options_in, pytest_options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "qnn-harness run m.onnx --inputs in --max-error=0.1",
            {"inputs": "in", "max-error": "0.1"},
        ),
        ("pytest m.onnx --contexts-expected=out -k x", {"expected": "out"}),
        ("qnn-harness run m.onnx --tolerance 1 --tolerance 2", {"tolerance": "2"}),
        ("qnn-harness run m.onnx --inputs", {"inputs": ""}),
        ("run m.bin --context-option a=1 --context-option=b=2", {"context-option": "a=1,b=2"}),
        ("qnn-harness run m.onnx --rounds 1 --qnn all", {}),
        ("pytest --contexts=m.bin --contexts-number 3", {}),
    ],
)
def test_it_is_read_from_the_command(words: str, expected: dict[str, str]) -> None:
    assert file_options_in(words.split()) == expected
    assert file_options_in(list(pytest_options(expected))) == expected, "pytest is asked the same"


@pytest.mark.parametrize("command", [None, "run --inputs in", 3, {}])
def test_a_command_that_is_none_asks_nothing(command: object) -> None:
    assert file_options_in(command) == {}


def test_every_name_is_an_option_of_pytest_and_of_run() -> None:
    options_by_name = {option.name: option for option in OPTIONS}
    options = file_options_in(
        [f"{name.replace('--contexts-', '--')}=x" for name in options_by_name]
    )
    words = [option.partition("=")[0] for option in pytest_options(options)]
    assert len(words) == 11
    assert all(options_by_name[word].run is not None for word in words), "`run` has it, too"
