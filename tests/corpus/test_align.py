from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document, Mention, Word
from headscope.corpus.text import read_text
from headscope.corpus.window import NO_FRAME
from headscope.errors import CorpusError
from headscope.stimuli.natural_text import ENOUGH_WORDS, TextWindows
from headscope.stimuli.stimulus import TextTokenizer


def by_characters(document: Document, size: int = 2) -> TokenizedDocument:
    """Tokens of `size` characters each, whatever they hold."""
    starts = np.arange(0, len(document.text), size)
    ends = np.minimum(starts + size, len(document.text))
    strings = [document.text[s:e] for s, e in zip(starts, ends, strict=True)]
    return TokenizedDocument(
        document, np.arange(len(starts)) + 1, strings, np.stack([starts, ends], 1)
    )


def cut(document: Document, max_length: int, size: int = 2) -> tuple[list, Cuts]:
    cuts = Cuts()
    tokenized = by_characters(document, size)
    return list(cut_windows(tokenized, 0, "<bos>", max_length=max_length, cuts=cuts)), cuts


def test_a_word_holds_every_token_that_holds_one_of_its_characters():
    # "an odd cat" in twos: "an" " o" "dd" " c" "at"
    (window,), _ = cut(read_text("t", "an odd cat"), 20)
    assert window.words.first.tolist() == [1, 2, 4]
    assert window.words.last.tolist() == [1, 3, 5]
    # in threes, "an " "odd" " ca" "t": nothing is shared; in fours, "an o" belongs to two words
    (window,), _ = cut(read_text("t", "an odd cat"), 20, size=4)
    assert window.words.first.tolist() == [1, 1, 2]
    assert window.words.last.tolist() == [1, 2, 3]


def test_long_documents_are_cut_at_sentence_boundaries_and_nothing_is_lost():
    text = " ".join(f"Sentence number {i} is here." for i in range(40))
    document = read_text("t", text)
    windows, cuts = cut(document, 64)
    assert cuts.sentences_cut == 0
    assert len(windows) > 5
    assert max(map(len, windows)) <= 64
    assert np.concatenate([w.tokens[1:] for w in windows]).tolist() == list(
        range(1, len(text) // 2 + 1 + len(text) % 2)
    )
    assert all(w.tokens[0] == 0 for w in windows)
    starts = ["".join(w.strings[1:]).lstrip(" .").startswith("Sentence") for w in windows]
    assert all(starts)
    assert sum(len(w.words) for w in windows) == len(document.words)


def test_a_sentence_longer_than_a_window_is_cut_between_words_and_counted():
    document = read_text("t", " ".join(["word"] * 60) + ".")
    windows, cuts = cut(document, 32, size=5)
    assert cuts.sentences_cut == len(windows) - 1 > 0
    assert sum(len(w.words) for w in windows) == 61


def test_heads_outside_the_window_are_gone_and_mentions_keep_their_entity():
    words = tuple(
        Word(form, 3 * i, 3 * i + 2, sentence=i // 2, head=head, deprel="dep", upos="NOUN")
        for i, (form, head) in enumerate([("ab", -1), ("cd", 0), ("ef", 0), ("gh", 2)])
    )
    mentions = (Mention("x", 0, 0, 0), Mention("x", 3, 3, 3))
    document = Document("d", "ab cd ef gh", words, mentions)
    windows, _ = cut(document, 4, size=3)
    assert [w.words.head.tolist() for w in windows] == [[-1, 0], [-1, 0]]
    assert [w.mentions.entity.tolist() for w in windows] == [["x"], ["x"]]


def test_names_count_with_their_flat_parts():
    words = (
        Word("Dr", 0, 2, 0, head=1, deprel="compound", upos="PROPN"),
        Word("Anna", 3, 7, 0, head=-1, deprel="root", upos="PROPN"),
        Word("Bell", 8, 12, 0, head=1, deprel="flat", upos="PROPN"),
    )
    document = Document("d", "Dr Anna Bell", words, (Mention("e", 0, 2, 1),))
    (window,), _ = cut(document, 20, size=1)
    assert (window.mentions.first.tolist(), window.mentions.last.tolist()) == ([4], [12])


@pytest.mark.parametrize(
    ("deprel", "head", "last"),
    [("flat", 0, 4), ("nmod", 0, 2), ("flat", -1, 2), ("flat:name", 0, 4)],
)
def test_a_name_ends_before_a_word_that_is_no_flat_part_of_it(deprel, head, last):
    # "AnnaBell" in twos: the name is the tokens 1 and 2, or 1 to 4 with "Bell"
    words = (
        Word("Anna", 0, 4, 0, head=-1, deprel="root", upos="PROPN"),
        Word("Bell", 4, 8, 0, head=head, deprel=deprel, upos="PROPN"),
    )
    document = Document("d", "AnnaBell", words, (Mention("e", 0, 1, 0),))
    (window,), _ = cut(document, 20, size=2)
    assert window.mentions.first.tolist() == [1]
    assert window.mentions.last.tolist() == [last]


class LosesCapitals(TextTokenizer):
    """A tokenizer that keeps no character of the words in capitals."""

    bos, bos_string = 0, "<s>"
    frame, template = NO_FRAME, None

    def encode(self, document: Document) -> TokenizedDocument:
        kept = [word for word in document.words if not word.form.isupper()]
        offsets = np.array([(word.start, word.end) for word in kept], np.int64).reshape(-1, 2)
        return TokenizedDocument(document, np.arange(len(kept)), [w.form for w in kept], offsets)


def windows_without(tmp_path, lost: int, words: int) -> TextWindows:
    (tmp_path / "text.txt").write_text(" ".join(["a"] * (words - lost) + ["B"] * lost))
    return TextWindows([tmp_path], LosesCapitals(), max_tokens=100 * words, max_length=128, seed=0)


@pytest.mark.parametrize(
    ("lost", "share"), [(0, ""), (1, "1 of 300 words (0.3 %)"), (60, "60 of 300 words (20.0 %)")]
)
def test_the_share_of_words_without_a_token_is_noted(tmp_path, lost, share):
    windows = windows_without(tmp_path, lost, 300)
    assert sum(len(window.words) for window in windows) == 300 - lost
    assert share in " ".join(windows.notes)
    assert ("keeps no character" in " ".join(windows.notes)) == bool(lost)


@pytest.mark.parametrize(("lost", "words"), [(61, 300), (300, 300), (810, 1000), (301, 1500)])
def test_text_of_which_most_words_have_no_token_is_refused(tmp_path, lost, words):
    windows = windows_without(tmp_path, lost, words)
    with pytest.raises(CorpusError, match=rf"\b{lost}\b.*\b{words:,}\b"):
        # much text is refused before the first window, a little at its end
        next(iter(windows)) if words >= ENOUGH_WORDS else list(windows)
