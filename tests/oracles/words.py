"""The words of controlled English as tokens, and what a hand-built head may know of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from data.corpora import make as lexicon
from headscope.relations.types.semantic import shipped_pairs

BOS, UNKNOWN = "<bos>", "<unk>"
_TOKEN = r"'s|\w+|[^\w\s]"


class Traits(NamedTuple):
    """What a hand-built head may know of each word."""

    names: Sequence[str]
    table: Float[ndarray, "word trait"]
    """1 where a word has a trait."""

    @classmethod
    def of(
        cls, words: Sequence[str], known: Mapping[str, Set[str]], names: Sequence[str]
    ) -> Traits:
        """The traits of a vocabulary from those of each word that has any."""
        table = [[float(name in known.get(word, ())) for name in names] for word in words]
        return cls(names, np.array(table))


ENGLISH = (
    "bos",
    "determiner",
    "noun",
    "name",
    "person",
    "thing",
    "singular",
    "plural",
    "feminine",
    "masculine",
    "verb",
    "verb:singular",
    "she",
    "he",
    "it",
    "they",
    "punctuation",
)


def vocabulary(texts: list[str]) -> list[str]:
    """Every word of the texts, after the special tokens, in alphabetical order."""
    return [BOS, UNKNOWN, *sorted({word for text in texts for word in re.findall(_TOKEN, text)})]


def sentence_texts(corpus: str) -> list[str]:
    """The sentences of CoNLL-U, from its comments."""
    begin = "# text = "
    return [line.removeprefix(begin) for line in corpus.split("\n") if line.startswith(begin)]


def english_traits(words: Sequence[str]) -> Traits:
    """Traits of words of controlled English; a word has those of its lower case too."""
    classes = _classes()
    known = {word: classes.get(word, set()) | classes.get(word.lower(), set()) for word in words}
    return Traits.of(words, known | {BOS: {"bos"}}, ENGLISH)


def save_tokenizer(words: list[str], folder: Path, *, context: int) -> None:
    """A tokenizer with one token per word, in Hugging Face layout."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s+"), "removed"),
            pre_tokenizers.Split(Regex(_TOKEN), "isolated"),
        ]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS,
        eos_token=BOS,
        unk_token=UNKNOWN,
        model_max_length=context,
    ).save_pretrained(folder)


def _classes() -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}

    def mark(words: list[str], *names: str) -> None:
        for word in words:
            known.setdefault(word, set()).update(names)

    mark(["the", "a", "an", "this", "these", "those"], "determiner")
    for deck in ("PEOPLE", "FEMALE", "MALE", "THINGS", "PLACES"):
        for entry in getattr(lexicon, deck):
            singular, plural = entry.split("/")
            mark([singular], "noun", "singular")
            mark([plural], "noun", "plural")
            if deck in ("THINGS", "PLACES"):
                mark([singular], "thing")
            else:
                mark([singular, plural], "person")
            if deck in ("FEMALE", "MALE"):
                mark([singular], "feminine" if deck == "FEMALE" else "masculine")
    mark(lexicon.WOMEN, "name", "person", "singular", "feminine")
    mark(lexicon.MEN, "name", "person", "singular", "masculine")
    for deck in ("ON_THINGS", "ON_PEOPLE", "GIVING", "PLANNING", "SAYING"):
        for entry in getattr(lexicon, deck):
            base, third, past, participle = entry.split("/")
            if base in lexicon.ADJECTIVES:  # "clean" is an adjective far more often
                base = third
            mark([base, third, past, participle], "verb")
            mark([third], "verb:singular")
    for pair in shipped_pairs().pairs:
        if pair.upos == "NOUN":  # unless controlled English uses the word otherwise: "cold"
            mark([w for w in (pair.first, pair.second) if w not in lexicon.WORDS], "noun")
    mark(["she", "her"], "she")
    mark(["he", "him", "his"], "he")
    mark(["it", "its"], "it")
    mark(["they", "them", "their"], "they")
    mark([".", ","], "punctuation")
    return known
