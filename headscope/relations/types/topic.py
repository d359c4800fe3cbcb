"""Topic heads attend from content words to the most characteristic word of the document, by tf–idf.

tf is the number of times that a lemma stands in the document, and idf the logarithm of the number
of documents over that of documents that have it (Spärck Jones 1972, Journal of Documentation
28(1)). The stimulus is annotated documents, each with its most characteristic word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import log

from headscope.corpus.document import Document
from headscope.corpus.gold_links import Arrow, arrow
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import corpus_place, uncompressed
from headscope.corpus.window import Window
from headscope.relations.annotated_links import linked_relation
from headscope.relations.head_type import HeadType
from headscope.stimuli.stimulus import Stimulus, StimulusConfig, cut_document

TOPIC, FREQUENT = "topic", "most-frequent"
"""Kinds of arrows from a content word: to the topic word, and to the noun that the text before has
most often."""
CONTENT, NOUNS = frozenset({"NOUN", "PROPN", "VERB", "ADJ"}), frozenset({"NOUN", "PROPN"})
FEWEST_TIMES, FEWEST_DOCUMENTS = 3, 8
"""Fewest times that a topic word stands in its document, and fewest documents of a corpus."""
CANDIDATES = 4
"""Other nouns of a document that are most similar to the topic word in frequency."""


def topic_words(documents: Sequence[Document]) -> list[str]:
    """The topic word of each document, a noun or a name; empty without one.

    >>> from headscope.corpus.document import Word
    >>> cat = Word("cats", 0, 4, 0, lemma="cat", upos="NOUN")
    >>> topic_words([Document("d", "cats", (cat, cat, cat)), Document("e", "", ())])
    ['cat', '']
    """
    # a lemma that stands in every document has a logarithm of 0, and characterises none
    counts = [_noun_counts(document) for document in documents]
    having = Counter(lemma for count in counts for lemma in count)
    words = []
    for count in counts:
        scores = {
            lemma: times * log(len(documents) / having[lemma])
            for lemma, times in sorted(count.items())
            if times >= FEWEST_TIMES
        }
        words.append(max(scores, key=lambda lemma: scores[lemma], default=""))
    return words


def _noun_counts(document: Document) -> Counter[str]:
    return Counter(word.lemma for word in document.words if word.upos in NOUNS and word.lemma)


def with_arrows(document: Document, topic: str) -> Document:
    """The document as a text of this stimulus, with arrows from content words but the topic's own.

    The right keys are all earlier places of the topic word. The candidates are the earlier places
    of the nouns that are most similar to it in frequency.
    """
    counts = _noun_counts(document)
    # nouns as frequent as the topic, so that frequency alone does not give it away
    others = sorted(
        counts.keys() - {topic}, key=lambda lemma: (abs(log(counts[lemma] / counts[topic])), lemma)
    )
    similar = {*others[:CANDIDATES]}
    # read from the left: each content word may look at what came before it
    arrows: list[Arrow | None] = []
    right, candidates, so_far = list[int](), list[int](), Counter[str]()
    last: dict[str, int] = {}
    for word in document.words:
        is_topic = word.upos in NOUNS and word.lemma == topic
        if right and word.upos in CONTENT and word.lemma != topic:
            arrows.append(arrow(TOPIC, word.start, right, candidates))
            frequent = last[so_far.most_common(1)[0][0]]
            arrows.append(arrow(FREQUENT, word.start, [frequent], ()))
        if is_topic:
            right.append(word.start)
        if word.upos in NOUNS:
            so_far[word.lemma] += 1
            last[word.lemma] = word.start
            if word.lemma in similar:
                candidates.append(word.start)
    return document.with_arrows(arrows, stimulus=TOPICS.name)


def _build(config: StimulusConfig) -> Iterator[Window]:
    files = corpus_files([corpus_place(corpus) for corpus in config.corpora])
    # other files have no word classes; code among them may be no Python, and text may be long
    treebanks = [file for file in files if uncompressed(file).suffix.lower() == ".conllu"]
    documents = list(read_documents(treebanks))
    if len(documents) < FEWEST_DOCUMENTS:
        return
    pairs = [pair for pair in zip(documents, topic_words(documents), strict=True) if pair[1]]
    count = min(config.documents, len(pairs))
    for number in range(count):
        # spread over the corpora, whose genres may stand in order
        text = with_arrows(*pairs[number * len(pairs) // count])
        windows = cut_document(
            text, config.tokenizer, TOPICS.name, config.max_length, number=number
        )
        yield from islice(windows, 1)


TOPICS = Stimulus(
    name="topics",
    title="documents with a topic word",
    build=_build,
    before_text=13,
    needs="topic needs a --corpus of at least 8 documents with lemmas and word classes, in CoNLL-U",
)


TYPE = HeadType(
    name="topic",
    letter="T",
    order=150,
    colour="#117733",
    relations=(
        linked_relation(
            "topic",
            "topic-word",
            kind=TOPIC,
            baseline_kind=FREQUENT,
            stimulus=TOPICS.name,
            meaning="the most characteristic word of the document",
        ),
    ),
    stimuli=(TOPICS,),
    looks_at="the noun or name that is most characteristic of the document (tf–idf)",
    control_keys="nouns of similar frequency in the document, nearer and farther; the noun that is "
    "most frequent so far",
    on_request=True,
    behaviour=TOPICS.name,
)
