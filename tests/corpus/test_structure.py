"""What brackets, quotes, lists and tables of a text point back to, and what asks nothing."""

from __future__ import annotations

import pytest

import headscope as hs
from headscope.corpus.document import Document
from headscope.corpus.read import corpus_files, read_corpus
from headscope.corpus.structure import KINDS, with_structure
from headscope.corpus.text import read_text


def pointed(text: str, kind: str) -> list[tuple[int, tuple[int, ...]]]:
    document = with_structure(read_text("it", text))
    return [(each.query, each.right) for each in document.arrows if each.kind == kind]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a) b) (c)", [(8, (6,))]),
        ("(so :) far)", [(10, (0,))]),
        ("(open\n\nclosed)", []),
        ("(a [b) c]", [(5, (0,))]),
        ("[(a])", [(3, (0,))]),
        ("f(g(x))", [(5, (3,)), (6, (1,))]),
    ],
)
def test_brackets_match_by_form_within_a_paragraph(text, found):
    assert pointed(text, "bracket-pair") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"Go," he said, "now."', [(4, (0,)), (20, (15,))]),
        ("It’s ‘the dog’s’ day", [(15, (5,))]),
        ("the dogs’ day", []),
        ("“A ‘b’ c”", [(5, (3,)), (8, (0,))]),
        ("«a «b» c»", [(5, (3,)), (8, (0,))]),
        ("don't 'stop'", []),
        ('("a" or "b")', [(3, (1,)), (10, (8,))]),
    ],
)
def test_quotes_match_and_apostrophes_do_not(text, found):
    assert pointed(text, "quote-pair") == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1. a\n2. b\n", [(5, (0,))]),
        ("- a\n\nSome words.\n\n- b\n", []),
        ("- a\n\n- b\n", [(5, (0,))]),
        ("- a\nmore\n- b\n", [(9, (0,))]),
        ("- a\n* b\n", []),
        ("```\n- a\n- b\n```\n", []),
        ("- a\n\t- b\n\t- c\n- d\n", [(10, (5,)), (14, (0,))]),
    ],
)
def test_items_are_of_one_list(text, found):
    assert pointed(text, "list-item") == found


def test_a_table_without_bars_at_its_ends_and_with_an_escaped_bar():
    text = "a | b\n--|--\nc \\| d | e\n"
    assert pointed(text, "table-header") == [(12, (0,)), (21, (4,))]
    assert pointed("a | b\nc | d\n", "table-header") == []
    assert pointed("| a | b |\n|---|\n| c | d |\n", "table-header") == []


def test_an_empty_cell_asks_nothing_and_a_longer_row_no_header():
    text = "| a | b |\n|---|---|\n|  | c | d |\n| e | f |\n"
    words = {word.start: word.form for word in read_text("it", text).words}
    told = [(words[q], [words[r] for r in right]) for q, right in pointed(text, "table-header")]
    assert told == [("c", ["b"]), ("e", ["a"]), ("f", ["b"])]
    above = [(words[q], [words[r] for r in right]) for q, right in pointed(text, "cell-above")]
    assert above == [("f", ["c"])]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 60_000 + "]" * 60_000,
        "‘“" * 40_000 + "’" * 60_000,
        "|a" * 40_000 + "\n" + "|-" * 40_000 + "\n" + "|b" * 20_000,
        "a |" + " b" * 40_000 + "\n-|-\n" + "c|d\n" * 20_000,
        "a|b\n" + " " * 90_000 + "|x-" + " " * 90_000 + "\n",
        "- a\n" * 40_000,
        "x" + " -" * 60_000,
    ],
)
def test_odd_texts_are_read_without_looking_at_all_pairs(text):
    found = with_structure(read_text("odd", text))
    assert isinstance(found, Document)
    assert all(len(each.others) <= 16 for each in found.arrows)


def test_markdown_is_read_and_a_readme_beside_texts_is_not(tmp_path, tokenizer):
    (tmp_path / "a.md").write_text("# Tea\n\n- (a [b] c)\n- d\n")
    (document,) = read_corpus(tmp_path / "a.md")
    assert {each.kind for each in document.arrows if each.kind in KINDS} == {
        "bracket-pair",
        "list-item",
    }
    assert hs.windows(tmp_path, tokenizer)[0].name == "a#0"
    for name in ("b.txt", "c.txt"):
        (tmp_path / name).write_text("Some words.")
    assert [path.name for path in corpus_files([tmp_path])] == ["b.txt", "c.txt"]


def test_treebanks_are_read_for_structure_too():
    kinds = {each.kind for document in read_corpus("gold") for each in document.arrows}
    assert "quote-pair" in kinds
