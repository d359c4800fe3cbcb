"""Heads that know earn their tags, and lazy heads with baselines that come near earn none."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.align import TokenizedDocument
from headscope.corpus.conllu import CAUSAL, OTHER, UNIT
from headscope.corpus.document import Document
from headscope.corpus.python_files import KINDS
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.window import NO_FRAME, MentionTable, Window, WordTable
from headscope.relations.types.alignment import IN_ORDER, TRANSLATION, TRANSLATIONS
from headscope.relations.types.concept_induction import WORDS
from headscope.relations.types.semantic import PAIRS, shipped_pairs
from headscope.relations.types.semantic import RELATIONS as PAIR_RELATIONS
from headscope.relations.types.topic import CONTENT, FREQUENT, NOUNS, TOPIC, TOPICS
from headscope.stimuli.facts import FACTS, HALF_RIGHT, KIND, PROPERTY
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.stimulus import StimulusConfig, TextTokenizer
from tests.helpers.prose import annotated_prose, built_windows_of, mini_tokenizer
from tests.helpers.treebanks import save_treebanks
from tests.relations.looking import (
    Keys,
    Look,
    candidate,
    candidates,
    judged,
    knows,
    pattern,
    same_word,
    words_back,
)
from tests.relations.type_file import NOISES, Case, type_files

# retrieval: from a question to what the text says of the one asked for -----------------------


def facts() -> list[Window]:
    return built_windows_of(FACTS, documents=16)


def of_the_person(window: Window) -> dict[int, list[int]]:
    """Both values of the person that is asked for."""
    half, own = candidates(HALF_RIGHT)(window), candidates(PROPERTY)(window)
    answers = knows(KIND)(window)
    return {q: sorted({*keys} - {*own[q]} | {answers[q]}) for q, keys in half.items()}


def like_the_answer(feature: Callable[[Window, int], object]) -> Look:
    """Values of the person that is asked for, if they share a feature of their word's row."""

    def look(window: Window) -> Keys:
        def of(key: int) -> object:
            return feature(window, int(np.searchsorted(window.words.last, key)))

        answers = knows(KIND)(window)
        return {
            query: [key for key in keys if of(key) == of(answers[query])]
            for query, keys in of_the_person(window).items()
        }

    return look


def word_before(window: Window, row: int) -> str:
    return str(window.words.lemma[row - 1])


def has_capital(window: Window, row: int) -> bool:
    return window.strings[window.words.first[row]].strip()[:1].isupper()


def same_token(window: Window, behind: int = 0) -> Keys:
    """The last earlier token that is the same, or else that of the token before, and so on."""
    query = next(iter(knows(KIND)(window)))
    for back in range(query):
        earlier = np.flatnonzero(window.tokens[: query - back] == window.tokens[query - back])
        if len(earlier):
            return {query: int(earlier[-1]) + behind}
    return {}


RETRIEVAL = Case(
    "retrieval",
    facts,
    {f"answer, noise {noise}": (knows(KIND), noise) for noise in NOISES}
    | {
        "nearest": candidate(KIND, -1),
        "nearest of the property": candidate(PROPERTY, -1),
        "the property": candidates(PROPERTY),
        "the person": of_the_person,
        "the person, and the answer's preposition": like_the_answer(word_before),
        "the person, and the answer's capital": like_the_answer(has_capital),
        "whatever could be the answer": candidates(KIND),
        "same token": same_token,
        "after the same token": lambda window: same_token(window, 1),
    },
    {f"answer, noise {noise}": {"value"} for noise in NOISES},
)

# concept induction: by words, not by tokens ---------------------------------------------------


def long_words() -> list[Window]:
    return built_windows_of(WORDS, max_length=256, documents=16)


def behind_the_copy(keys: Callable[[Window, int, int], int | list[int]]) -> Look:
    """A function of the window, the query and the row of the word that followed it before."""

    def look(window: Window) -> Keys:
        half = len(window.words) // 2
        return {
            query: keys(window, query, row + 1)
            for row, query in enumerate(window.words.last[half:].tolist())
        }

    return look


def word_ends(before: int, behind: int) -> Look:
    """The ends of words around the right one, that one among them."""

    def keys(window: Window, query: int, row: int) -> list[int]:
        last = window.words.last[max(0, row - before) : row + behind + 1]
        return last[last < query].tolist()

    return behind_the_copy(keys)


token_induction = behind_the_copy(lambda window, query, row: query - window.copy_length + 1)


BY_WORDS = Case(
    "concept-induction",
    long_words,
    {f"next word's end, noise {noise}": (word_ends(0, 0), noise) for noise in NOISES}
    | {
        "the earlier copy and the end of the next word": word_ends(1, 0),
        "the ends of the next two words": word_ends(0, 1),
        "word ends near the earlier copy": word_ends(2, 2),
        "token induction": token_induction,
        "any word end": word_ends(99, 99),
    },
    {f"next word's end, noise {noise}": {"next-word"} for noise in NOISES},
)

# meaning: related words, not the nearest of the class -----------------------------------------


def content_words(window: Window) -> Iterator[list[int]]:
    """Rows of the words of each sentence that holds a pair: three, and the query."""
    words = window.words
    for sentence in np.unique(words.sentence):
        rows = np.flatnonzero((words.sentence == sentence) & (words.upos != "X"))
        if len(rows) == 4:
            yield rows.tolist()


def related_word(window: Window) -> Keys:
    found, words = {}, window.words
    for *earlier, query in content_words(window):
        near = shipped_pairs().any_relation(str(words.lemma[query]))
        found[int(words.last[query])] = [
            int(words.last[row]) for row in earlier if words.lemma[row] in near
        ]
    return found


def nearest_content_word(window: Window) -> Keys:
    last = window.words.last
    return {int(last[rows[3]]): int(last[rows[2]]) for rows in content_words(window)}


MEANING = Case(
    "semantic",
    lambda: built_windows_of(PAIRS),
    {"related word": related_word, "nearest content word": nearest_content_word},
    {"related word": {*PAIR_RELATIONS}},
)

# coreference: by the entity, not by a baseline of words ------------------------------------------


def before(m: MentionTable) -> np.ndarray:
    """True for mentions wholly before a mention: mention × earlier mention."""
    return m.last[None, :] < m.first[:, None]


def mentions(allowed: Callable[[MentionTable], np.ndarray], kept: slice = slice(None)) -> Look:
    """Mentions that a rule allows, or some of them in the order of the text."""

    def look(window: Window) -> Keys:
        m = window.mentions
        rows = [m.last[np.flatnonzero(keys)][kept].tolist() for keys in allowed(m)]
        return {int(query): keys for query, keys in zip(m.last, rows, strict=True) if keys}

    return look


def nearest(allowed: Callable[[MentionTable], np.ndarray]) -> Look:
    """The nearest of the earlier mentions that a rule allows."""
    return mentions(allowed, slice(-1, None))


def orelse(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.where(first.any(1)[:, None], first, second)


def lemma(m: MentionTable) -> np.ndarray:
    return m.lemma[:, None] == m.lemma[None]


def entity(m: MentionTable) -> np.ndarray:
    return m.entity[:, None] == m.entity[None]


CHAIN = Case(
    "coreference",
    annotated_prose,
    {
        "the entity": nearest(lambda m: before(m) & entity(m)),
        "nearest that agrees": nearest(lambda m: before(m) & m.agrees),
        "same word or agrees": nearest(
            lambda m: orelse(before(m) & lemma(m), before(m) & m.agrees)
        ),
        "a word in common or agrees": nearest(
            lambda m: orelse(before(m) & m.shared, before(m) & m.agrees)
        ),
    },
    {"the entity": {"chain"}},
    ("chain",),
)

# encoders: keys on both sides -----------------------------------------------------------------


def both_sides() -> tuple[Window, ...]:
    return annotated_prose("bidirectional", 9_000)


def apart(m: MentionTable) -> np.ndarray:
    """True for pairs of mentions without a common token: mention × mention."""
    return before(m) | before(m).T


def nearest_mention(window: Window) -> Keys:
    m = window.mentions
    far = np.where(apart(m), np.abs(m.last[:, None] - m.last[None, :]), len(window))
    near = far.argmin(1) if len(m) else []
    return {int(m.last[q]): int(m.last[k]) for q, k in enumerate(near) if far[q, k] < len(window)}


def next_word(upos: str) -> Look:
    def look(window: Window) -> Keys:
        first, last = window.words.first, window.words.last
        there = np.flatnonzero(window.words.upos == upos)
        return {
            int(last[i]): list(range(first[k], last[k] + 1))
            for i in range(len(last))
            for k in there[there > i][:1]
            if first[k] > last[i]
        }

    return look


LEXICAL = Case(
    "lexical",
    both_sides,
    {
        "next verb": next_word("VERB"),
        "next noun": next_word("NOUN"),
        "two ahead": lambda window: {q: q + 2 for q in range(1, window.stop - 2)},
    },
    {"next verb": {"next-VERB"}, "next noun": {"next-NOUN"}},
)
REFERENCE = Case(
    "coreference",
    both_sides,
    {
        "later": mentions(lambda m: before(m).T & entity(m), slice(1)),
        "any": mentions(lambda m: entity(m) & apart(m)),
        "nearest on either side": nearest_mention,
    },
    {"later": {"chain"}, "any": {"chain", "pronoun"}},
    ("chain", "pronoun"),
)

# code: by Python's grammar --------------------------------------------------------------------

LIBRARY = Path(os.__file__).parent
FILES = """
argparse ast bisect calendar cmd configparser copy csv fnmatch gettext heapq queue shlex string
textwrap uuid zipapp
asyncio/base_events asyncio/windows_events ctypes/wintypes difflib doctest glob email/contentmanager
json/encoder re/_compiler shutil smtpd test/test_decorators test/test_scope tokenize unittest/loader
unittest/mock urllib/request xml/etree/ElementPath
"""
"""The latter call their own functions and nest functions; some Pythons lack a few."""


class ByWord(TextTokenizer):
    """A token for each word, so that whole functions stand in a window."""

    bos, bos_string = 1, "<bos>"
    frame, template = NO_FRAME, None

    def encode(self, document: Document) -> TokenizedDocument:
        forms = [word.form for word in document.words]
        ids = np.array([zlib.crc32(form.encode()) % 30_000 for form in forms], np.int64)
        offsets = np.array([(word.start, word.end) for word in document.words], np.int64)
        return TokenizedDocument(document, ids, forms, offsets)


def code() -> tuple[Window, ...]:
    """Windows that a run of 12,000 tokens reads from these files."""
    files = [path for name in FILES.split() if (path := LIBRARY / f"{name}.py").is_file()]
    text = TextWindows(files, ByWord(), max_tokens=12_000, max_length=300, seed=0)
    return tuple(text)


GRAMMAR = Case(
    "code",
    code,
    {
        **{kind: knows(kind) for kind in KINDS},
        **{f"nearest {kind}": candidate(kind, -1) for kind in KINDS},
        **{f"farthest {kind}": candidate(kind, 0) for kind in KINDS},
        **{f"last but one {kind}": candidate(kind, -2) for kind in KINDS},
        "same word": same_word(-1),
        "where the word first stands": same_word(0),
        "where the word stands second": same_word(1),
        "where the word stood before last": same_word(-2),
        "two back": words_back(2),
        "one back": words_back(1),
    },
    {kind: {kind} for kind in KINDS},
)

# alignment: by what words mean, not by their order ------------------------------------------------


@cache
def translated() -> list[Window]:
    """Windows of English sentences and their translations into another word order."""
    with TemporaryDirectory() as folder:
        treebanks = save_treebanks(Path(folder), ("en", "ja"), documents=120, sentences=4)
        config = StimulusConfig(
            mini_tokenizer(), 4096, 128, seed=3, documents=64, corpora=sorted(treebanks.iterdir())
        )
        return TRANSLATIONS.windows(config)


def source_word(choose: Callable[[WordTable, int, int], Sequence[int] | int]) -> Look:
    """Source words that a function of the words, the number of them in the source and the row of a
    word of the translation chooses, at words of the translation that are linked."""

    def look(window: Window) -> Keys:
        words, linked = window.words, knows(TRANSLATION)(window)
        equals = [string.strip() for string in window.strings].index("=")
        middle = int(np.searchsorted(words.first, equals))
        rows = np.searchsorted(words.last, [*linked])
        return {
            query: words.last[choose(words, middle, row)]
            for query, row in zip(linked, rows.tolist(), strict=True)
        }

    return look


def of_its_class(words: WordTable, middle: int, row: int) -> np.ndarray:
    return np.flatnonzero(words.upos[:middle] == words.upos[row])


ALIGNMENT = Case(
    "alignment",
    translated,
    {f"source, noise {noise}": (knows(TRANSLATION), noise) for noise in NOISES}
    | {
        "same place": source_word(
            lambda words, middle, row: (row - middle) * middle // (len(words) - middle)
        ),
        "as many words in": source_word(lambda words, middle, row: min(row - middle, middle - 1)),
        "in order among words of the class": knows(IN_ORDER),
        "nearest of the class": source_word(lambda *place: of_its_class(*place)[-1]),
        "first of the class": source_word(lambda *place: of_its_class(*place)[0]),
        "words of the class": source_word(of_its_class),
        "the right word and others of the class": candidates(TRANSLATION),
        "all source words": source_word(lambda words, middle, row: range(middle)),
        "same word": same_word(-1),
    },
    {f"source, noise {noise}": {"translation"} for noise in NOISES},
)

# topic: the word of the document, not a frequent or near one --------------------------------------


@cache
def on_a_topic() -> list[Window]:
    config = StimulusConfig(mini_tokenizer(), 4096, 256, seed=3, corpora=shipped_corpora())
    return TOPICS.windows(config)


def nouns(choose: Callable[[list[int], WordTable], Sequence[int]]) -> Look:
    """Nouns that a function of the rows of all earlier nouns chooses, at content words."""

    def look(window: Window) -> Keys:
        words, found = window.words, {}
        is_noun = np.isin(words.upos, [*NOUNS])
        for row in np.flatnonzero(np.isin(words.upos, [*CONTENT])):
            rows = [*map(int, choose(np.flatnonzero(is_noun[:row]).tolist(), words))]
            if rows and (keys := words.last[rows])[-1] < words.first[row]:
                found[int(words.last[row])] = keys.tolist()
        return found

    return look


def repeated(rows: list[int], words: WordTable) -> list[int]:
    lemmas = words.lemma[rows].tolist()
    return [row for row, lemma in zip(rows, lemmas, strict=True) if lemmas.count(lemma) > 1]


ABOUT = Case(
    "topic",
    on_a_topic,
    {f"topic, noise {noise}": (knows(TOPIC), noise) for noise in NOISES}
    | {
        "most frequent noun so far": candidate(FREQUENT, -1),
        "nearest noun": nouns(lambda rows, words: rows[-1:]),
        "first noun": nouns(lambda rows, words: rows[:1]),
        "all nouns": nouns(lambda rows, words: rows),
        "nearest noun that is repeated": nouns(lambda rows, words: repeated(rows, words)[-1:]),
        "nouns that are repeated": nouns(repeated),
        "nearest name": nouns(
            lambda rows, words: [r for r in rows if words.upos[r] == "PROPN"][-1:]
        ),
        "same word": same_word(-1),
    },
    {f"topic, noise {noise}": {"topic-word"} for noise in NOISES},
)

# far offsets: one distance, not a region ----------------------------------------------------------


def tokens_back(*offsets: int) -> Look:
    return lambda window: {
        query: [query - offset for offset in offsets if query > offset]
        for query in range(offsets[0] + 1, len(window))
    }


def last_token(*strings: str) -> Look:
    """The nearest earlier token of a few."""

    def look(window: Window) -> Keys:
        places = [p for p, string in enumerate(window.strings) if string.strip(" ") in strings]
        earlier = np.searchsorted(places, np.arange(len(window)))
        return {query: places[n - 1] for query, n in enumerate(earlier.tolist()) if n}

    return look


def first_of_the_sentence(window: Window) -> Keys:
    first = np.searchsorted(window.sentence_of_token, window.sentence_of_token).tolist()
    return {query: key for query, key in enumerate(first) if 0 < key < query}


FAR_TAGS = {f"{n} back, noise {noise}": {f"offset-{n}"} for n in (9, 20, 32) for noise in NOISES}
FAR = Case(
    "far",
    annotated_prose,
    {f"{n} back, noise {noise}": (tokens_back(n), noise) for n in (9, 20, 32) for noise in NOISES}
    | {
        "evenly over 40 tokens": tokens_back(*range(1, 41)),
        "evenly over 6 tokens": tokens_back(*range(12, 18)),
        "the token before": tokens_back(1),
        "the last end of a sentence": last_token(".", "?", "!"),
        "the last comma": last_token(","),
        "the first token of the sentence": first_of_the_sentence,
        "ten words back": words_back(10),
    },
    FAR_TAGS,
)

# discourse: the clause that a connective links to, not the clause before ------------------------


def all_gum() -> tuple[Window, ...]:
    """Windows of GUM, a token for each word."""
    text = TextWindows(shipped_corpora(), ByWord(), max_tokens=40_000, max_length=256, seed=0)
    return tuple(text)


def nearest_of(rows: Callable[[Window], np.ndarray]) -> Look:
    """The nearest of some earlier words, at each word."""

    def look(window: Window) -> Keys:
        last, chosen = window.words.last, window.words.last[rows(window)]
        before = np.searchsorted(chosen, last) - 1
        return {int(query): int(chosen[b]) for query, b in zip(last, before, strict=True) if b >= 0}

    return look


def unit_heads(window: Window) -> np.ndarray:
    units = window.arrows.take(window.arrows.kind == UNIT)
    return np.flatnonzero(np.isin(window.words.last, [*units.query, *units.last]))


def root_of_the_sentence_before(window: Window) -> Keys:
    words = window.words
    is_root = words.deprel == "root"
    roots = dict(zip(words.sentence[is_root].tolist(), words.last[is_root].tolist(), strict=True))
    places = zip(words.last.tolist(), words.sentence.tolist(), strict=True)
    return {query: roots[of - 1] for query, of in places if of - 1 in roots}


DISCOURSE = Case(
    "discourse",
    all_gum,
    {f"{kind}, noise {noise}": (knows(kind), noise) for kind in (CAUSAL, OTHER) for noise in NOISES}
    | {
        "head of the unit before": nearest_of(unit_heads),
        "nearest verb": nearest_of(lambda window: np.flatnonzero(window.words.upos == "VERB")),
        "nearest root": nearest_of(lambda window: np.flatnonzero(window.words.deprel == "root")),
        "root of the sentence before": root_of_the_sentence_before,
    },
    {
        f"{kind}, noise {noise}": {kind.removeprefix("discourse-")}
        for kind in (CAUSAL, OTHER)
        for noise in NOISES
    },
)

CASES = {
    **{file.CASE.type: file.CASE for file in type_files() if hasattr(file, "CASE")},
    "discourse": DISCOURSE,
    "topic": ABOUT,
    "far": FAR,
    "alignment": ALIGNMENT,
    "retrieval": RETRIEVAL,
    "concept-induction": BY_WORDS,
    "semantic": MEANING,
    "chain": CHAIN,
    "lexical on both sides": LEXICAL,
    "reference on both sides": REFERENCE,
    "code": GRAMMAR,
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_heads_that_know_are_tagged_and_lazy_heads_are_not(case):
    evidence = judged(case.heads, case.windows(), case.type)
    if case.relations:
        evidence = evidence[evidence["relation"].isin(case.relations)]
    tags = {name: set(rows["relation"][rows["tagged"]]) for name, rows in evidence.groupby("name")}
    assert {name: relations for name, relations in tags.items() if relations} == case.tags
    lazy = evidence[~evidence["name"].isin(case.tags)]
    assert set(lazy["name"]) == {*case.heads} - {*case.tags}
    assert lazy["refused_alone"].all()


@pytest.mark.parametrize(("share", "verdict"), [(0.7, "tagged"), (0.5, "no")])
def test_a_head_must_go_by_words_more_than_by_tokens(share, verdict):
    """Real heads do both: what counts is that the end has more than the rest of the word."""

    def patterns(window: Window) -> np.ndarray:
        by_word, by_token = pattern(window, word_ends(0, 0)), pattern(window, token_induction)
        return (share * by_word + (1 - share) * by_token)[None, None]

    run = hs.score_patterns(patterns, long_words(), types=["concept-induction"])
    assert run.evidence["verdict"].tolist() == [verdict]
