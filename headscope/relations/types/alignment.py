"""Alignment heads attend from a word of a translation to the source word that it translates.

The stimulus is sentences before their translations, from two parallel treebanks that the user
names: `It rained. = Es regnete.` Gold links lead from a word of the translation to the word that it
translates. Both are an entry of a dictionary, which is made from other documents of the treebanks.
Garg et al. 2019 (arXiv 1909.02074) read word alignments from the attention of translation models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

from headscope.corpus.conllu import SENT_ID, read_conllu
from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import Arrow
from headscope.corpus.read import read_text_file
from headscope.corpus.shipped import uncompressed
from headscope.corpus.window import Window
from headscope.relations.annotated_links import linked_relation
from headscope.relations.head_type import HeadType
from headscope.stimuli.stimulus import Stimulus, StimulusConfig, cut_document

TRANSLATION, IN_ORDER = "translation", "in-order"
"""Kinds of arrows from a word of a translation: to the source word that it translates, and to the
source word of its class at the most similar place of the sentence."""
FOLDS = 10
"""Parts of the documents. The dictionary of each part is made from the others."""
FEWEST, LEAST_DICE = 3, 0.5
"""Least number of sentence pairs with both words of an entry, and their least Dice coefficient."""
SHARED_LETTERS = 3
"""Letters in a row that linked words do not share: a head that copies could find them."""
IN_DOCUMENT = 6
"""Most sentence pairs in a document of the stimulus, on average."""
CONTENT = frozenset(("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"))
"""Classes of the words in the dictionary."""


class Sentence(NamedTuple):
    """A sentence, and the name of its document."""

    document: str
    text: str
    words: tuple[Word, ...]
    """Words with their places in the sentence."""
    depth: tuple[int, ...]
    """Number of words that govern each word, directly or not."""


SentencePair = tuple[Sentence, Sentence]


def sentence_pairs(corpora: Sequence[str | Path]) -> list[SentencePair]:
    """Sentences of the first of two CoNLL-U files with their translations in the second.

    Pairs have the same `sent_id`. If the files have no `sent_id` in common, they must have equally
    many sentences, which are paired in order. Other corpora give no pairs.
    """
    files = [Path(corpus) for corpus in corpora]
    if [uncompressed(file).suffix for file in files] != [".conllu", ".conllu"]:
        return []
    source, target = map(_sentences, files)
    if common := [name for name in source if name in target]:
        return [(source[name], target[name]) for name in common]
    if len(source) != len(target):
        return []
    return list(zip(source.values(), target.values(), strict=True))


def _sentences(path: Path) -> dict[str, Sentence]:
    """The sentences of a file by `sent_id`, or by file and number.

    In a file of one document each sentence counts as a document.
    """
    text = read_text_file(path)
    documents = list(read_conllu(path, text))
    # each sentence with positions from its own beginning
    sentences = []
    for document in documents:
        for number, group in groupby(document.words, lambda word: word.sentence):
            words = list(group)
            start, end = words[0].start, words[-1].end
            sentences.append(
                Sentence(
                    document.name if len(documents) > 1 else f"{document.name}-{number}",
                    document.text[start:end],
                    tuple(_moved(word, -start) for word in words),
                    tuple(_depth(word, document.words) for word in words),
                )
            )
    # without a sent_id for each sentence they pair by number
    names = SENT_ID.findall(text)
    if len({*names}) != len(sentences):
        names = [f"{path}:{number}" for number in range(len(sentences))]
    return dict(zip(names, sentences, strict=True))


def _moved(word: Word, characters: int) -> Word:
    start, end = word.start + characters, word.end + characters
    return replace(word, start=start, end=end, sentence=0, head=-1)


def _depth(word: Word, words: Sequence[Word]) -> int:
    above = set[int]()
    while word.head >= 0 and word.head not in above:
        above.add(word.head)
        word = words[word.head]
    return len(above)


def dictionary(pairs: Iterable[SentencePair]) -> set[tuple[str, str]]:
    """Lemmas of content words that are each other's best partner in these sentence pairs.

    The Dice coefficient 2 n(a, b) / (n(a) + n(b)) compares partners; n counts the sentence pairs
    that have one or both lemmas.
    """
    # sentence pairs with each lemma, and with both
    together = Counter[tuple[str, str]]()
    in_source = Counter[str]()
    in_target = Counter[str]()
    for source, target in pairs:
        source_lemmas = _content_lemmas(source)
        target_lemmas = _content_lemmas(target)
        in_source.update(source_lemmas)
        in_target.update(target_lemmas)
        together.update(product(source_lemmas, target_lemmas))
    # the best partner of each lemma
    dice: dict[tuple[str, str], float] = {}
    best_of_source: dict[str, float] = {}
    best_of_target: dict[str, float] = {}
    for (first, second), count in together.items():
        if count < FEWEST:
            continue
        score = 2 * count / (in_source[first] + in_target[second])
        dice[first, second] = score
        best_of_source[first] = max(best_of_source.get(first, LEAST_DICE), score)
        best_of_target[second] = max(best_of_target.get(second, LEAST_DICE), score)
    # entries are each other's best
    entries: set[tuple[str, str]] = set()
    for (first, second), score in dice.items():
        if score == best_of_source[first] == best_of_target[second]:
            entries.add((first, second))
    return entries


def _content_lemmas(sentence: Sentence) -> set[str]:
    return {_lemma(word) for word in sentence.words if word.upos in CONTENT}


def _lemma(word: Word) -> str:
    return (word.lemma or word.form).lower()


def prompts(pairs: Sequence[SentencePair]) -> list[Document]:
    """Each sentence pair with a gold link as a text, which has the name of its document."""
    names = list(dict.fromkeys(source.document for source, _ in pairs))
    texts = []
    for part in range(FOLDS):
        # whole documents, so that no sentence of a document makes its own dictionary
        fold = {*names[part::FOLDS]}
        inside: list[SentencePair] = []
        outside: list[SentencePair] = []
        for source, target in pairs:
            side = inside if source.document in fold else outside
            side.append((source, target))
        entries = dictionary(outside)
        texts += [_prompt(source, target, entries) for source, target in inside]
    return [text for text in texts if text.arrows]


def _prompt(source: Sentence, target: Sentence, entries: set[tuple[str, str]]) -> Document:
    """A sentence pair with an arrow from each word that translates one word, and alone does.

    Other candidates are source words of the class at the same depth, or the most similar one.
    """
    before = f"{source.text} = "
    moved = [_moved(word, len(before)) for word in target.words]
    words = (*source.words, *moved)
    linked = _linked_words(source.words, moved, entries)
    times_key = Counter(key for key, _ in linked)
    times_query = Counter(query for _, query in linked)
    arrows = []
    for key, query in linked:
        word, translation = source.words[key], moved[query]
        if times_key[key] > 1 or times_query[query] > 1:
            continue
        # a cognate would be found by its letters alone
        form, other_form = word.form.lower(), translation.form.lower()
        shared = SequenceMatcher(None, form, other_form).find_longest_match().size
        if shared >= min(SHARED_LETTERS, len(form)):
            continue
        # the word that the order of the sentence alone would give
        of_class = [i for i, other in enumerate(source.words) if other.upos == word.upos]
        position = query / len(moved) * len(source.words)
        in_order = min(of_class, key=lambda i: abs(i - position))
        # candidates are the words of the class that are nearest in depth in the tree
        distance = {i: abs(source.depth[i] - source.depth[key]) for i in of_class if i != key}
        least = min(distance.values(), default=0)
        others = tuple(source.words[i].start for i, apart in distance.items() if apart == least)
        start = translation.start
        arrows.append(Arrow(TRANSLATION, start, (word.start,), others))
        arrows.append(Arrow(IN_ORDER, start, (source.words[in_order].start,), ()))
    return Document(
        source.document,
        before + target.text,
        words,
        arrows=tuple(arrows),
        stimulus=TRANSLATIONS.name,
    )


def _linked_words(
    keys: Sequence[Word], queries: Sequence[Word], entries: set[tuple[str, str]]
) -> list[tuple[int, int]]:
    """Numbers of a word and of one of the same class that the dictionary has as its translation."""
    linked = []
    for i, key in enumerate(keys):
        for j, query in enumerate(queries):
            is_entry = (_lemma(key), _lemma(query)) in entries
            if is_entry and key.upos == query.upos:
                linked.append((i, j))
    return linked


def _build(config: StimulusConfig) -> Iterator[Window]:
    texts = prompts(sentence_pairs(config.corpora))[: IN_DOCUMENT * config.documents]
    names = sorted({text.name for text in texts})
    for text in texts:
        yield from cut_document(
            text,
            config.tokenizer,
            text.stimulus,
            config.max_length,
            number=names.index(text.name) % config.documents,
        )


TRANSLATIONS = Stimulus(
    name="translations",
    title="sentences and their translations",
    build=_build,
    before_text=32,
    needs="alignment needs two --corpus files in CoNLL-U, of many sentences that translate each "
    "other: with the same sent_id, or equally many in the same order",
)


TYPE = HeadType(
    name="alignment",
    letter="A",
    order=120,
    colour="#aa4499",
    relations=(
        linked_relation(
            "alignment",
            "translation",
            kind=TRANSLATION,
            baseline_kind=IN_ORDER,
            stimulus=TRANSLATIONS.name,
            meaning="the source word that the word translates",
        ),
    ),
    stimuli=(TRANSLATIONS,),
    looks_at="in a translation: the source word that the word translates",
    control_keys="other source words of its class at the same depth of the tree; the source word "
    "of its class at the same place of the sentence",
    on_request=True,
    behaviour=TRANSLATIONS.name,
)
