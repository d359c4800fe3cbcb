"""Words longer than a window are cut before they are tokenized; all others are read as before."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from headscope.corpus.align import Cuts, cut_windows
from headscope.corpus.overlong import cut_overlong
from headscope.corpus.read import corpus_files, read_documents
from headscope.models.tokenizer import Tokenizer
from headscope.stimuli.text import TextWindows
from tests.limits import no_hang

MOST = 200
BEFORE, AFTER = "Alice looked at her old keys .", "She told them that the house was empty ."


class Counting:
    """A tokenizer that counts the characters that it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self.characters = tokenizer, 0
        self.bos, self.bos_string = tokenizer.bos, tokenizer.bos_string
        self.frame, self.longest_token = tokenizer.frame, tokenizer.longest_token

    def encode(self, document):
        self.characters += len(document.text)
        return self._tokenizer.encode(document)

    def spell(self, tokens):
        return self._tokenizer.spell(tokens)


@pytest.fixture(scope="module")
def encoder(tokenizer) -> Tokenizer:
    return Tokenizer(tokenizer, name="small")


def letters(count: int) -> str:
    rng = random.Random(0)
    return "".join(rng.choices("etaoinshrdlu", k=count))


def conllu(words: list[str]) -> str:
    """One sentence, each word hanging on the one before it, and the first a root."""
    rows = [
        f"{i}\t{word}\t_\tNOUN\t_\t_\t{i - 1}\t{'root' if i == 1 else 'dep'}\t_\t_"
        for i, word in enumerate(words, 1)
    ]
    return "\n".join(["# newdoc id = long", *rows]) + "\n\n"


def written(folder: Path, kind: str, count: int) -> Path:
    path, huge = folder / f"long{kind}", letters(count)
    if kind == ".conllu":
        path.write_text(conllu([*BEFORE.split(), huge, *AFTER.split()]))
    elif kind == ".py":
        path.write_text(f"def first(key):\n    return key\n\n\n{huge} = first(9)\n")
    else:
        path.write_text(f"{BEFORE} {huge} {AFTER}")
    return path


@pytest.mark.parametrize(
    ("kind", "count"),
    [(".conllu", 2_000_000), (".txt", 2_000_000), (".md", 2_000_000), (".py", 190_000)],
)
def test_a_short_run_tokenizes_little_of_a_word_of_any_length(kind, count, encoder, tmp_path):
    path, counting = written(tmp_path, kind, count), Counting(encoder)
    with no_hang(60):
        text = TextWindows([path], counting, max_length=64, seed=0, max_tokens=MOST)
        list(text)
    assert MOST <= text.tokens < 2 * MOST
    # a run of as many tokens of short words reads no more than a few windows' worth
    assert counting.characters < 4 * MOST * encoder.longest_token
    assert any("1 words longer than a window were cut" in note for note in text.notes)


def test_words_on_both_sides_are_read_as_without_the_long_one(encoder, tmp_path):
    path = written(tmp_path, ".conllu", 50_000)
    text = TextWindows([path], encoder, max_length=64, seed=0, max_tokens=10**6)
    windows = list(text)
    spelled = [
        "".join(window.strings[first : last + 1]).strip()
        for window in windows
        for first, last in zip(window.words.first, window.words.last, strict=True)
    ]
    assert spelled == [*BEFORE.split(), *AFTER.split()]
    # nothing of the text is left out
    joined = "".join("".join(window.strings[1:]) for window in windows)
    assert joined == f"{BEFORE} {letters(50_000)} {AFTER}"
    assert [window.name for window in windows] == [f"long#{i}" for i in range(len(windows))]
    # each word hangs on the one before it, but for the first of a window
    for window in windows:
        assert window.words.head.tolist() == list(range(-1, len(window.words) - 1))


def test_a_text_without_such_words_is_cut_as_ever(encoder, annotated):
    documents = list(read_documents(corpus_files(annotated[:1])))
    text = TextWindows(annotated[:1], encoder, max_length=64, seed=0, max_tokens=10**7)
    found = list(text)
    expected = [
        window
        for document in documents
        for window in cut_windows(
            encoder.encode(document), encoder.bos, encoder.bos_string, max_length=64, cuts=Cuts()
        )
    ]
    assert [window.name for window in found] == [window.name for window in expected]
    assert all(
        np.array_equal(one.tokens, other.tokens)
        and np.array_equal(one.words.head, other.words.head)
        for one, other in zip(found, expected, strict=True)
    )
    assert not any("longer than a window were cut before" in note for note in text.notes)


@pytest.mark.parametrize("most", [3, 5, 8, 13])
def test_pieces_hold_every_other_word_at_its_characters(most, annotated):
    for document in read_documents(corpus_files(annotated[:1])):
        pieces = list(cut_overlong(document, most))
        assert "".join(piece.text for piece in pieces) == document.text
        kept = [word for word in document.words if word.end - word.start <= most]
        found = [word for piece in pieces for word in piece.words]
        assert [word.form for word in found] == [word.form for word in kept]
        start, place = 0, 0
        for piece in pieces:
            for word in piece.words:
                assert word.start + start == kept[place].start
                place += 1
                if word.head >= 0:
                    head = document.words[kept[place - 1].head]
                    assert piece.words[word.head].start + start == head.start
            for mention in piece.mentions:
                assert 0 <= mention.first <= mention.head <= mention.last < len(piece.words)
            heads = [piece.words[mention.head] for mention in piece.mentions]
            known = {document.words[mention.head].start for mention in document.mentions}
            assert {word.start + start for word in heads} <= known
            for arrow in piece.arrows:
                assert arrow.right
                assert all(0 <= at < arrow.query for at in (*arrow.right, *arrow.others))
            start += len(piece.text)
