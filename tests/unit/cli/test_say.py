"""Output of commands: a line is one line, whatever a device or a file put into it."""

import pytest

from harness.cli.say import say


@pytest.mark.parametrize("err", [False, True])
def test_a_newline_of_others_begins_no_line_of_ours(
    err: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    say("1 x it said\nall 12 cases passed\r\nerror: x", err=err)
    text = capsys.readouterr()
    assert (text.err if err else text.out) == (
        "1 x it said\n  | all 12 cases passed\n  | error: x\n"
    )


def test_a_whole_text_has_the_lines_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    say("# a page\n\nof ours\n", nl=False)
    assert capsys.readouterr().out == "# a page\n\nof ours\n"
