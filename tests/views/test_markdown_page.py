"""A run as Markdown: readable where it is pasted, and nothing in it acts there."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conductor_cli.core.question import PastTurn
from conductor_cli.views.markdown_page import conversation_markdown, fenced, harmless_markdown

PIECES = st.sampled_from(
    [
        "<b>",
        "<script>x</script>",
        "![a](http://x/y.png)",
        "![a][b]",
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "\\\\",
        "    ",
        "> ",
        "- ",
        "| ",
        "word",
        "<!-- c -->",
        "[b]: http://x",
        "\t",
        "*",
        "_",
        "\x1b[31m",
        "</div>",
    ]
)


def kinds(text: str) -> set[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    children = chain.from_iterable(block.children or () for block in tokens)
    return {token.type for token in chain(tokens, children)}


@given(st.lists(PIECES, max_size=14).map("".join))
@example("`a\n\n<b>`")
@example("\\\\![a](b)")
@example("```\n<b>\n\n```x\n<i>")
def test_nothing_in_an_answer_acts(text: str) -> None:
    """A page that shows it would load an image from anywhere, or obey the HTML of a worker."""
    shown = kinds(f"## Answer\n\n{harmless_markdown(text)}\n\n## Plan\n")
    assert not shown & {"image", "html_block", "html_inline"}


@pytest.mark.parametrize(
    "text",
    [
        "# Title\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |",
        "```html\n<b>bold</b>\n```",
        "use `<b>` there",
        "1 < 2 and a [link](https://example.com)",
    ],
)
def test_markdown_that_does_nothing_stays_as_it_was_written(text: str) -> None:
    assert harmless_markdown(text) == text


def test_html_and_images_are_shown_as_text() -> None:
    text = "<b>x</b> ![a](http://x) `![kept](<b>)`"
    assert harmless_markdown(text) == "&lt;b>x&lt;/b> &#33;[a](http://x) `![kept](<b>)`"


@given(
    st.lists(st.sampled_from(["`", "```", "~~~", "text", "\n", "<b>"]), max_size=12).map("".join)
)
def test_no_text_closes_its_fence(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(f"{fenced(text)}\n\nafter")
    assert tokens[0].type == "fence"
    assert tokens[-2].content == "after"
    assert len(tokens) == 4


def test_a_conversation_has_all_its_turns_in_order() -> None:
    turns = (PastTurn(question="Why?", answer="*So.*"), PastTurn(question="And?", answer="Yes."))
    assert conversation_markdown(turns, "r1") == (
        "# Conversation of run r1\n\n## Question 1\n\n```text\nWhy?\n```\n\n## Answer 1\n\n"
        "*So.*\n\n"
        "## Question 2\n\n```text\nAnd?\n```\n\n## Answer 2\n\nYes.\n"
    )
