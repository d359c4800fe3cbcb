"""Words longer than a window: cut before they are tokenized, so that nothing is done in vain."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headscope.corpus.document import Document, Mention, Word
from headscope.corpus.gold_links import Arrow


def overlong_words(document: Document, max_characters: int) -> list[Word]:
    """The words of more than so many characters, in order.

    >>> words = (Word("Go", 0, 2, sentence=0), Word("aaaa", 3, 7, sentence=0))
    >>> [word.form for word in overlong_words(Document("d", "Go aaaa", words), 3)]
    ['aaaa']
    """
    return [word for word in document.words if word.end - word.start > max_characters]


def cut_overlong(document: Document, max_characters: int) -> Iterator[Document]:
    """The document in pieces that end inside its overlong words; the document if it has none.

    No character is lost, and what follows an overlong word stands behind its last characters, as it
    did. An overlong word itself is in no piece: it would be in no window. Words on both of its
    sides could share no window either, so that dropping the heads that they have there costs
    nothing.

    Args:
        document: any document, whose words stand in the order of their first characters.
        max_characters: characters of the longest word that may fit into a window.

    >>> words = (Word("Go", 0, 2, sentence=0), Word("aaaa", 3, 7, sentence=0))
    >>> pieces = cut_overlong(Document("d", "Go aaaa", words), 3)
    >>> [(piece.text, len(piece.words)) for piece in pieces]
    [('Go aaa', 1), ('a', 0)]
    """
    overlong = overlong_words(document, max_characters)
    if not overlong:
        yield document
        return
    # the parts of a multi-word token can have the same characters, and are cut at the same places
    places = {
        position
        for word in overlong
        for position in range(word.start + max_characters, word.end, max_characters)
    }
    edges = [0, *sorted(places), len(document.text)]
    starts = [word.start for word in document.words]
    rows = [bisect_left(starts, edge) for edge in edges]
    mentions, arrows = _by_piece(document, edges, rows)
    for number in range(len(edges) - 1):
        start, end = edges[number : number + 2]
        first = rows[number]
        words = [word for word in document.words[first : rows[number + 1]] if word.end <= end]
        yield replace(
            document,
            text=document.text[start:end],
            words=tuple(
                _moved(word, start, first, len(words), words[0].sentence) for word in words
            ),
            mentions=tuple(_within(item, first, len(words)) for item in mentions.get(number, ())),
            arrows=tuple(_shifted(item, start, end) for item in arrows.get(number, ())),
            skipped_mentions=document.skipped_mentions if number == 0 else 0,
        )


def _by_piece(
    document: Document, edges: Sequence[int], rows: Sequence[int]
) -> tuple[dict[int, list[Mention]], dict[int, list[Arrow]]]:
    """The mentions and the arrows that lie in each piece, by its number.

    A mention is where its head word is, and an arrow where its query and something right are.
    """
    mentions: dict[int, list[Mention]] = {}
    for mention in document.mentions:
        number = bisect_left(rows, mention.head + 1) - 1
        if document.words[mention.head].end <= edges[number + 1]:
            mentions.setdefault(number, []).append(mention)
    arrows: dict[int, list[Arrow]] = {}
    for arrow in document.arrows:
        number = bisect_left(edges, arrow.query + 1) - 1
        if arrow.right[-1] >= edges[number]:
            arrows.setdefault(number, []).append(arrow)
    return mentions, arrows


def _moved(word: Word, start: int, first: int, count: int, sentence: int) -> Word:
    """A word of a piece that begins at a character, and has words from `first` on."""
    head = word.head - first
    return replace(
        word,
        start=word.start - start,
        end=word.end - start,
        sentence=word.sentence - sentence,
        head=head if 0 <= head < count else -1,
    )


def _within(mention: Mention, first: int, count: int) -> Mention:
    return replace(
        mention,
        first=max(mention.first - first, 0),
        last=min(mention.last - first, count - 1),
        head=mention.head - first,
    )


def _shifted(arrow: Arrow, start: int, end: int) -> Arrow:
    """An arrow by the characters of a piece, to what lies there."""
    right, others = (
        tuple(position - start for position in places if start <= position < end)
        for places in (arrow.right, arrow.others)
    )
    return Arrow(arrow.kind, arrow.query - start, right, others)
