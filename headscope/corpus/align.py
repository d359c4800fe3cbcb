"""Documents to windows: words are mapped to tokens by character offsets, long texts are cut.

A token belongs to every word whose characters it holds, so a word is a range of tokens. A
window never ends inside a sentence unless that sentence alone is longer than the window.
`window_of_tokens` takes tokens as text, without the tokenizer that made them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from pydantic import Field

from headscope.corpus.document import Document, Mention, Turn, Word
from headscope.corpus.gold_links import arrow_table
from headscope.corpus.mentions import agreeing_mentions, parsed_features, shared_words
from headscope.corpus.window import MentionTable, Window, WordTable, no_mentions
from headscope.errors import PatternError
from headscope.options import checked

_HYPHENS = frozenset("-\u2010\u2011")
_IN_NUMBERS = frozenset(".,:/'\u2019\u2013")
_UNKNOWN = frozenset(("", "_", "X"))
_MARKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})  # how vocabularies write blanks
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # how SentencePiece writes a byte of a rare character


@dataclass(frozen=True)
class TokenizedDocument:
    """A document beside its tokens, without the beginning-of-text token."""

    document: Document
    tokens: Int[ndarray, " token"]
    strings: Sequence[str]
    offsets: Int[ndarray, "token 2"]
    """Characters of the document's text that each token holds: start and end."""


@dataclass
class Cuts:
    """Counts what cutting documents into windows cost, for the run's notes."""

    sentences_cut: int = 0
    words: int = 0
    """Words of the documents that were cut so far."""
    words_lost: int = 0
    """Words of which the tokenizer kept no character."""
    first: str = ""
    """The document in which a sentence was cut first."""


def cut_windows(
    tokenized: TokenizedDocument,
    bos: int,
    bos_string: str,
    *,
    max_length: int,
    cuts: Cuts,
    stimulus: str = "text",
    number: int = -1,
) -> Iterator[Window]:
    """Windows of at most `max_length` tokens, the beginning-of-text token included."""
    document = tokenized.document
    # a word that ends before it starts has no token
    word_starts = np.array([word.start for word in document.words])
    ends = np.array([word.end for word in document.words])
    token_starts, token_ends = tokenized.offsets.T
    first = np.searchsorted(token_ends, word_starts, side="right")
    last = np.searchsorted(token_starts, ends, side="left") - 1
    cuts.words += len(document.words)
    cuts.words_lost += int((last < first).sum())
    has_token = last >= first
    # relations between words leave out the marks that divide the text
    divides = np.array([_divides(document.text, word) for word in document.words], bool)
    ranges = _ranges(tokenized, first, max_length - 1, cuts)
    for window_number, (start, end) in enumerate(ranges):
        # words that lie in the window and have a token; rows of their heads are renumbered
        is_inside = (first >= start) & (last < end)
        inside = np.flatnonzero(is_inside & has_token)
        inner = inside[~divides[inside]]
        row_of = np.full(len(document.words) + 1, -1)  # one more, so that head -1 finds -1
        row_of[inside] = np.arange(len(inside))
        words_inside = [document.words[i] for i in inside]
        words = WordTable(
            first=(first - start + 1)[inside],
            last=(last - start + 1)[inside],
            sentence=np.array([word.sentence for word in words_inside], np.int64),
            head=row_of[np.array([word.head for word in words_inside], np.int64)],
            deprel=_texts(word.deprel for word in words_inside),
            upos=_texts(word.upos for word in words_inside),
            lemma=_texts((word.lemma or word.form).lower() for word in words_inside),
            tense=_texts(_tense(word) for word in words_inside),
        )
        # messages that lie in the window whole
        turns = []
        for turn in document.turns:
            begins = int(np.searchsorted(token_ends, turn.start, side="right"))
            stops = int(np.searchsorted(token_starts, turn.stop, side="left"))
            if start <= begins < stops <= end:
                turns.append(Turn(turn.role, begins - start + 1, stops - start + 1))
        # positions count the beginning-of-text token
        starts = np.array([document.words[i].start for i in inside], np.int64)
        yield Window(
            name=f"{document.name}#{window_number}",
            tokens=np.concatenate([[bos], tokenized.tokens[start:end]]),
            strings=(bos_string, *tokenized.strings[start:end]),
            words=words,
            mentions=_mention_table(document, inside, words),
            inner=_positions(first[inner] - start + 1, last[inner] - start + 1),
            arrows=arrow_table(document.arrows, starts, words.first, words.last),
            stimulus=stimulus,
            document=number,
            turns=tuple(turns),
        )


def _positions(
    first: Int[ndarray, " word"], last: Int[ndarray, " word"]
) -> Int[ndarray, " position"]:
    spans = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
    return np.unique(np.concatenate(spans)) if spans else np.empty(0, np.int64)


def _ranges(
    tokenized: TokenizedDocument, first: Int[ndarray, " word"], tokens_per_window: int, cuts: Cuts
) -> Iterator[tuple[int, int]]:
    """Token ranges that end at sentence ends where they can, at word ends where they must."""
    # places at which a window may end: sentence ends, and word ends if a sentence is too long
    total = len(tokenized.tokens)
    sentence = np.array([word.sentence for word in tokenized.document.words])
    opens = np.flatnonzero(np.diff(sentence, prepend=-1))
    sentence_starts = np.append(first[opens], total)
    word_starts = np.unique(np.append(first, total))
    start = 0
    while start < total:
        end = _last_in(sentence_starts, start, start + tokens_per_window)
        # a sentence that alone is too long is cut, and the run's notes say so
        if end is None:
            cuts.sentences_cut += 1
            cuts.first = cuts.first or tokenized.document.name
            end = _last_in(word_starts, start, start + tokens_per_window) or min(
                start + tokens_per_window, total
            )
        yield start, end
        start = end


def _last_in(places: Int[ndarray, " place"], after: int, upto: int) -> int | None:
    inside = places[(places > after) & (places <= upto)]
    return int(inside.max()) if len(inside) else None


def _tense(word: Word) -> str:
    """Tense and form of a verb; empty for any other word, and for a verb without a tense.

    >>> _tense(Word("ran", 0, 3, 0, upos="VERB", feats="Mood=Ind|Tense=Past|VerbForm=Fin"))
    'Past Fin'
    """
    features = parsed_features(word.feats)
    if word.upos != "VERB" or "Tense" not in features:
        return ""
    return f"{features['Tense']} {features.get('VerbForm', '')}".strip()


def _mention_table(
    document: Document, inside: Int[ndarray, " kept"], words: WordTable
) -> MentionTable:
    """The mentions whose head words lie in the window, each with its name's other parts."""
    # by the rows of their head words, which mentions need to be found by
    row_of = {int(word): row for row, word in enumerate(inside)}
    mentions = [mention for mention in document.mentions if mention.head in row_of]
    mentions.sort(key=lambda mention: mention.head)
    if not mentions:
        return no_mentions()
    head_rows = np.array([row_of[mention.head] for mention in mentions])
    # a name ends with the last `flat` part that follows its head without a gap
    name_rows = []
    for mention in mentions:
        end = mention.head
        while end < mention.last and (
            document.words[end + 1].head == mention.head
            and document.words[end + 1].deprel.startswith("flat")
            and end + 1 in row_of
        ):
            end += 1
        name_rows.append(row_of[end])
    # without features a pronoun counts as a personal one
    heads = [document.words[mention.head] for mention in mentions]
    pronoun = np.array([head.upos == "PRON" for head in heads])
    prs = np.array(["PronType=Prs" in head.feats or not head.feats for head in heads])
    return MentionTable(
        first=words.first[head_rows],
        last=words.last[np.array(name_rows)],
        entity=_texts(mention.entity for mention in mentions),
        surface=_texts(_surface(document, mention) for mention in mentions),
        lemma=_texts((head.lemma or head.form).lower() for head in heads),
        shared=shared_words(document, mentions),
        agrees=agreeing_mentions(document, mentions),
        pronoun=pronoun,
        personal=pronoun & prs,
    )


_WIDTH = 400  # an array of strings has the width of its longest: one long word must not fill memory


def _texts(strings: Iterable[str]) -> ndarray:
    """Strings to compare, by their first 400 characters; the longest word has a hundred or two."""
    return np.array([string[:_WIDTH] for string in strings], "U")


def _surface(document: Document, mention: Mention) -> str:
    start = document.words[mention.first].start
    end = document.words[mention.last].end
    return document.text[start:end].lower()


def _divides(text: str, word: Word) -> bool:
    """True for a mark that divides the text.

    False for words with a letter or digit ("n't", "Dr.", "3.5") and those that are annotated as
    another class than punctuation ("%", "&"), for a hyphen between two letters ("well-known"), and
    for a mark between two digits, which plain text takes for words of their own.
    """
    if any(char.isalnum() for char in word.form):
        return False
    if word.upos != "PUNCT" and word.upos not in _UNKNOWN:
        return False
    # empty at the beginning and at the end of the text
    before = text[max(word.start - 1, 0) : word.start]
    after = text[word.end : word.end + 1]
    if word.form in _HYPHENS:
        return not (before.isalnum() and after.isalnum())
    if word.form in _IN_NUMBERS:
        return not (before.isdigit() and after.isdigit())
    return True


@checked
def window_of_tokens(
    tokens: Annotated[Sequence[str], Field(min_length=1)],
    document: Document | None = None,
    *,
    bos: bool = True,
) -> Window:
    """A window of tokens that are given as text; the first stands at position 0.

    Tokens may be text, or entries of a vocabulary, as `convert_ids_to_tokens` of transformers gives
    them: the byte alphabet of GPT-2, `##` of BERT, `▁` and `<0xE4>` of SentencePiece. Text of the
    document after the last token is omitted. Bare tokens of the form `[bos, r, r]`
    count as repeated random tokens.

    Args:
        tokens: the tokens as text.
        document: the annotated text that they spell, from `headscope.read_corpus`.
        bos: whether the first of them is a beginning-of-text token or another token before the
            text. Otherwise it is part of the text, and its word is not a word of the window,
            because the first position is an attention sink.

    Raises:
        PatternError: the tokens do not spell the document's text.

    >>> window_of_tokens(["<s>", "a", "b", "a", "b"]).copy_length
    2
    """
    strings = tuple(token.translate(_MARKS) for token in tokens)
    places: list[tuple[int, int]] = []
    if document is not None:
        strings, places = _spelling(tokens, document, bos=bos)
    # the same string is the same token
    numbers = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    ids = np.array([numbers[string] for string in strings], np.int64)
    if document is None:
        # the document is a repeat if its second half is its first
        half, odd = divmod(len(ids) - 1, 2)
        n = half if half and not odd and np.array_equal(ids[1 : half + 1], ids[half + 1 :]) else 0
        stimulus = "repeat" if n else "text"
        return Window("tokens", ids, strings, copy_length=n, stimulus=stimulus)
    # the same cut as of any document, into one window
    offsets = np.array(places[1:], np.int64).reshape(-1, 2)
    tokenized = TokenizedDocument(document, ids[1:], strings[1:], offsets)
    (window,) = cut_windows(
        tokenized,
        int(ids[0]),
        strings[0],
        max_length=len(strings),
        cuts=Cuts(),
        stimulus=document.stimulus,
    )
    return window


def _spelling(
    tokens: Sequence[str], document: Document, *, bos: bool
) -> tuple[tuple[str, ...], list[tuple[int, int]]]:
    """The first way to read the tokens by which they spell the document's text.

    Returns:
        The tokens as text, and the characters of the document that each holds.

    Raises:
        PatternError: no way does; the message is on the tokens as text.
    """
    failures: list[PatternError] = []
    for bytes_of in (_plain_bytes, _bytes_of_alphabet, _bytes_of_piece):
        pieces = [bytes_of(token) for token in tokens]
        strings = tuple(piece.decode("utf-8", "replace") for piece in pieces)
        first = tokens[0].translate(_MARKS) if bos else strings[0]
        try:
            places = list(_spell_out(pieces[1:] if bos else pieces, document))
        except PatternError as error:
            failures.append(error)
            continue
        return (first, *strings[1:]), [(0, 0), *places] if bos else places
    # tokens as plain text are what most users give
    raise failures[0]


def _plain_bytes(token: str) -> bytes:
    return token.translate(_MARKS).encode()


def _bytes_of_piece(token: str) -> bytes:
    """Bytes of an entry of BERT's or SentencePiece's vocabulary."""
    byte = _BYTE.fullmatch(token)
    if byte is not None:
        return bytes.fromhex(byte[1])
    return _plain_bytes(token.removeprefix("##"))


def _bytes_of_alphabet(token: str) -> bytes:
    """Bytes of an entry of GPT-2's vocabulary, which writes each byte as a character."""
    alphabet = _byte_alphabet()
    if all(char in alphabet for char in token):
        return bytes(alphabet[char] for char in token)
    return _plain_bytes(token)


@cache
def _byte_alphabet() -> dict[str, int]:
    """The byte of each character of GPT-2's alphabet (Radford et al. 2019, `bytes_to_unicode`).

    Printable bytes stand for themselves, the others for the characters from 256 on.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + number): byte for number, byte in enumerate(unprintable)}


def _spell_out(pieces: Sequence[bytes], document: Document) -> Iterator[tuple[int, int]]:
    """Spans of the tokens in the document's text; blanks may differ.

    Tokens are compared byte by byte: a token may hold a part of a character.
    """
    # every byte of the text with its character, blanks left out
    characters: list[tuple[int, int]] = []
    for offset, char in enumerate(document.text):
        if not char.isspace():
            characters += [(offset, byte) for byte in char.encode()]
    position = 0
    for number, piece in enumerate(pieces, start=1):
        start = position
        try:
            letters = "".join(piece.decode().split()).encode()
        except UnicodeDecodeError:  # a part of a character
            letters = piece.strip()
        for byte in letters:
            if position == len(characters) or characters[position][1] != byte:
                unread = characters[position:]
                next_start = unread[0][0] if unread else len(document.text)
                remainder = (
                    repr(document.text[next_start : next_start + 12]) if unread else "its end"
                )
                raise PatternError(
                    f"{document.name}: token {number} is {piece.decode('utf-8', 'replace')!r}, but "
                    f"the text goes on with {remainder}"
                )
            position += 1
        # a blank alone stands where the next character does
        if position == start:
            following = (
                characters[position][0] if position < len(characters) else len(document.text)
            )
            yield following, following
        else:
            yield characters[start][0], characters[position - 1][0] + 1
