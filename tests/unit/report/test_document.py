"""Blocks as Markdown and as HTML: what each looks like, and that words stay words."""

import pytest
from hypothesis import given, strategies as st

from harness.report.document import (
    Block,
    CodeBlock,
    Heading,
    Item,
    Items,
    Paragraph,
    Span,
    Style,
    Table,
    code,
    html,
    joined,
    markdown,
)
from tests.report_page import Page


@pytest.mark.parametrize(
    ("block", "as_markdown", "as_html"),
    [
        (Heading("New"), "## New\n\n", "<h2>New</h2>"),
        (Heading("All", level=1), "# All\n\n", "<h1>All</h1>"),
        (Paragraph("so", "dim"), "so\n\n", '<p class="dim">so</p>'),
        (
            Paragraph(["in ", Span("a\n<b>", style="strong")]),
            "in **a &lt;b>**\n\n",
            '<p class="">in <b>a\n&lt;b&gt;</b></p>',
        ),
        (Items([Item("one")]), "- one\n\n", "<ul>\n<li>one</li>\n</ul>"),
        (
            Items([Item("one", ["two"], folded=True)]),
            "- one\n  - two\n\n",
            "<ul>\n<li><details><summary>one</summary><ul><li>two</li></ul></details></li>\n</ul>",
        ),
        (CodeBlock(["a", "```"]), "```\na\n'''\n```\n\n", "<pre>a\n```</pre>"),
        (
            Table("", ("A", "B"), [("", code("x|`y`"))]),
            "| A | B |\n| --- | --- |\n|   | `` x\\|`y` `` |\n\n",
            '<div class="scroll"><table class=""><thead><tr><th scope="col">A</th>'
            '<th scope="col">B</th></tr></thead><tbody>\n<tr><td></td><td><code>x|`y`</code></td>'
            "</tr>\n</tbody></table></div>",
        ),
    ],
)
def test_each_block(block: Block, as_markdown: str, as_html: str) -> None:
    assert markdown([block]) == as_markdown
    assert html([block]) == as_html


@pytest.mark.parametrize(
    ("style", "cell", "shown"),
    [
        ("", Span("x", mark="failed"), '<td><span class="o o-failed">x</span></td>'),
        ("", Span("x", title='"', link="./a"), '<td title="&#34;"><a href="./a">x</a></td>'),
        ("stacked", Span("x", style="bad"), '<td data-label="A"><span class="bad">x</span></td>'),
    ],
)
def test_each_kind_of_cell(style: str, cell: Span, shown: str) -> None:
    assert f"<tr>{shown}</tr>" in html([Table("", ["A"], [[cell]], style)])


def test_a_table_with_a_title_can_be_folded() -> None:
    assert html([Table("t", [], [])]).startswith("<details open><summary>t</summary>")
    assert html([Table("t", [], [], folded=True)]).startswith("<details><summary>t</summary>")
    assert markdown([Table("t", ["A"], [])]).startswith("t\n\n| A |\n")


def test_spans_with_commas() -> None:
    first, second = Span("1"), Span("2")
    assert (joined([]), joined([first])) == ([], [first])
    assert joined([first, second]) == [first, ", ", second]


def test_what_goes_beyond_its_bound_is_counted() -> None:
    blocks = [
        Heading("H"),
        Items([Item("12345"), Item("6789", ["x"]), Item("a")]),
        CodeBlock(["- "]),
    ]
    whole = markdown(blocks, deeper=2)
    assert whole.startswith("#### H\n\n- 12345\n- 6789\n")
    assert markdown(blocks, deeper=2, most=len(whole)) == whole
    assert markdown(blocks, deeper=2, most=16) == "#### H\n\n- 12345\n\n... and 2 more\n"


@given(st.text(min_size=1), st.sampled_from(["plain", "code", "strong", "dim", "bad"]))
def test_what_others_said_is_never_a_tag(text: str, style: Style) -> None:
    def blocks(words: str) -> list[Block]:
        span = Span(words, "failed", words, f"./{words}", style)
        listed = Items([Item(span, [span])])
        return [Heading(span), Paragraph(span), listed, Table(words, [words], [[span]])]

    assert Page(html(blocks(text))).tags == Page(html(blocks("x"))).tags
    said = markdown([Paragraph(Span(text, style=style))])
    assert len(said.splitlines()) == 2
    assert "<" not in said or style == "code"
