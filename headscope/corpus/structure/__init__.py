"""Structure of text: what its brackets, quotes, lists and tables say that a word points back to.

It is read from the text alone.
"""

from __future__ import annotations

from dataclasses import replace

from headscope.corpus.document import Document
from headscope.corpus.gold_links import Arrow
from headscope.corpus.structure.lines import ABOVE, HEADER, ITEM, list_items, table_cells
from headscope.corpus.structure.numbers import NUMBER, number_kinds
from headscope.corpus.structure.pairs import BRACKET, QUOTE, brackets, quotes

MARKS = (BRACKET, QUOTE, ITEM, HEADER, ABOVE)
"""What the shipped corpus is built of; numbers are read where a text has them."""
KINDS = (*MARKS, NUMBER)
_RULE = "nearest:"


def rule_kind(kind: str) -> str:
    """The kind of the arrows that hold what a kind's simple rule picks from.

    >>> rule_kind("list-item")
    'nearest:list-item'
    """
    return _RULE + kind


def with_structure(document: Document) -> Document:
    """The document, and what its brackets, quotes, lists, tables and numbers point back to.

    Beside each arrow stands one of `rule_kind` that points to all candidates of the right one's
    form, of which a simple rule picks one, as a window knows tokens and no marks.

    >>> from headscope.corpus.text import read_text
    >>> [each.kind for each in with_structure(read_text("t", "Go (now).")).arrows]
    ['bracket-pair', 'nearest:bracket-pair']
    """
    words = [word.start for word in document.words]
    known = set(words)
    links = [
        *brackets(document.text),
        *quotes(document.text),
        *list_items(document.text),
        *table_cells(document.text, words),
        *number_kinds(document.text, words, [word.end for word in document.words]),
    ]
    arrows = []
    for link in links:
        pointer = link.arrow
        if pointer.query in known and known.intersection(pointer.right):
            arrows += [pointer, Arrow(rule_kind(pointer.kind), pointer.query, link.same_kind, ())]
    return replace(document, arrows=(*document.arrows, *arrows)) if arrows else document
