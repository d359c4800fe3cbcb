"""Haystacks: facts with made-up names and values in long running text, and questions about them.

Each window has a needle at each of five depths, then a question that asks about nothing, then one
about each needle, with its answer. Needles of a window have one form and differ in name and value,
so that each is a distractor of the others. The question about nothing reads the same text.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import regex

from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import MAX_CANDIDATES, Arrow, arrow
from headscope.corpus.text import read_text
from headscope.corpus.window import ChatTemplate, Window
from headscope.errors import CorpusError, InvalidRow
from headscope.options import described
from headscope.paths import given_file
from headscope.stimuli.conversations import conversation_document, shipped_sentences
from headscope.stimuli.stimulus import Stimulus, StimulusConfig, TextTokenizer, cut_document
from headscope.user_tables import is_unicode, jsonl_table

NEEDLE, WORDS, NULL = "needle", "needle-word", "no-question"
"""Kinds of arrows: from a question to its answer among the other answers, and among the other words
of the needle; and from the question about nothing to all answers."""
DEPTHS = (5, 27, 50, 72, 95)
"""Percent of the running text before each needle."""
IN_LENGTH = 16
"""Windows of each length, of one question for each depth."""
SLACK = 8
"""Tokens that a window may be shorter than asked for, since sentences join otherwise than alone."""
COLUMNS = ("context", "question", "answer")
NO_QUESTION = "N/A"
FORMS = (
    ("The password of {} is {}.", "Which password does {} use?"),
    ("{} was born in the village of {}.", "Where did the life of {} begin?"),
    ("The boat of {} is called {}.", "What does {} sail in?"),
    ("{} works for a firm called {}.", "Who pays the wages of {}?"),
)
"""A needle, with a name and a value, and a question in other words."""
_ONSETS = [*"BDFGHJKLMNPRSTVWZCYQ"]
_MIDDLES = ["alm", "ark", "ell", "ent", "ibb", "ind", "orv", "ost", "ulk", "urn", "avv", "ess"]
_ENDS = ["a", "o", "ek", "ir", "un", "ash", "oth", "im"]


@dataclass(frozen=True)
class HaystackQuestion:
    """A question about a text, and where its answer stands there."""

    text: str
    answer: str
    answers: Sequence[int]
    """First characters of the words of the answer, at each place where it stands."""
    others: Sequence[int]
    """First characters of other words of the same form."""
    other_words: Sequence[int]
    """First characters of the other words of the needle."""


def question_document(
    name: str,
    context: str,
    questions: Sequence[HaystackQuestion],
    template: ChatTemplate | None = None,
) -> Document:
    r"""A text and questions about it, with an arrow from the place of each answer to where it is.

    In a chat template questions are messages of the user, the first of which begins with the text,
    and answers are those of the assistant.

    >>> asked = HaystackQuestion("Who?", "Ann", [0], [8], [4])
    >>> document = question_document("d", "Ann saw Bob.", [asked])
    >>> document.text[document.arrows[0].query :]
    ': Ann\n'
    """
    # a question without content shows where heads look whatever is asked
    exchanges = [(NO_QUESTION, NO_QUESTION)]
    exchanges += [(question.text, question.answer) for question in questions]
    queries: list[int] = []
    if template is None:
        text = f"{context}\n\n"
        for question_text, answer in exchanges:
            text += f"Question: {question_text}\nAnswer:"
            queries.append(len(text) - 1)
            text += f" {answer}\n"
        document = read_text(name, text)
    else:
        messages: list[tuple[str, str]] = []
        for question_text, answer in exchanges:
            before = "" if messages else f"{context}\n\n"
            messages += [("user", f"{before}Question: {question_text}"), ("assistant", answer)]
        document = conversation_document(name, [messages], template)
        # an answer is due at the last character of the template before it
        words = [*document.words]
        for turn in document.turns[1::2]:
            query = len(document.text[: turn.start].rstrip(" ")) - 1
            queries.append(query)
            before_query = bisect.bisect(words, query, key=lambda word: word.start)
            sentence = words[before_query - 1].sentence
            word = Word(document.text[query], query, query + 1, sentence)
            words.insert(before_query, word)
        document = replace(document, words=tuple(words))

    # in a chat template the text does not begin the document
    shift = document.turns[0].start if document.turns else 0
    arrows: list[Arrow | None] = []
    every: list[int] = []
    for question, query in zip(questions, queries[1:], strict=True):
        answers = [shift + start for start in question.answers]
        every += answers
        for kind, others in ((NEEDLE, question.others), (WORDS, question.other_words)):
            candidates = [*answers, *(shift + start for start in others)]
            arrows.append(arrow(kind, query, answers, candidates))
    # at the question about nothing all answers are candidates alike
    arrows.append(arrow(NULL, queries[0], every, every))
    return document.with_arrows(arrows, stimulus=HAYSTACK.name)


def haystack_documents(
    lengths: Sequence[int], tokenizer: TextTokenizer, *, seed: int
) -> Iterator[Document]:
    """Haystacks of at most so many tokens each; the lengths take turns."""
    for number in range(IN_LENGTH * len(lengths)):
        length = lengths[number % len(lengths)]
        yield _haystack(number, length, tokenizer, np.random.default_rng([seed, number]))


def _haystack(
    number: int, length: int, tokenizer: TextTokenizer, rng: np.random.Generator
) -> Document:
    def tokens(text: str) -> int:
        return len(tokenizer.encode(Document("part", text, ())).tokens)

    # names and values with other first letters, so that the first token of an answer tells it;
    # names of as many tokens, so that their length does not
    words = _made_up_words(rng, tokens)
    names, values = words[: len(DEPTHS)], words[len(DEPTHS) :]
    form, asks = FORMS[number // len(FORMS) % len(FORMS)]
    pairs = list(zip(names, values, strict=True))
    needles = [form.format(*pair) for pair in pairs]

    # sentences of shipped texts in their order, up to the room that needles and questions leave
    questions_alone = [
        HaystackQuestion(asks.format(name), value, (), (), ()) for name, value in pairs
    ]
    tail = question_document("", "", questions_alone, tokenizer.template)
    around = 1 + len(tokenizer.encode(tail).tokens)
    most_tokens = length - around - SLACK - sum(tokens(f" {needle}") for needle in needles)
    sentences: list[str] = []
    ends: list[int] = []
    texts = shipped_sentences()
    number_of_sentence = int(rng.integers(len(texts)))
    total = 0
    while True:
        sentence = texts[number_of_sentence % len(texts)]
        total += tokens(f" {sentence}")
        if total > most_tokens:
            break
        sentences.append(sentence)
        ends.append(total)
        number_of_sentence += 1

    # each needle comes before the sentence at its depth
    starts: dict[int, int] = {}
    other_words: dict[int, list[int]] = {}
    before = np.searchsorted(ends, np.array(DEPTHS) / 100 * max(ends, default=0))
    order = rng.permutation(len(DEPTHS))
    context = ""
    for at in range(len(sentences) + 1):
        for depth in np.flatnonzero(before == at).tolist():
            needle = int(order[depth])
            text = f" {needles[needle]}" if context else needles[needle]
            word_starts = [len(context) + word.start for word in read_text("needle", text).words]
            starts[needle] = len(context) + text.rindex(values[needle])
            other_words[needle] = [at for at in word_starts if at != starts[needle]]
            context += text
        if at < len(sentences):
            context += f" {sentences[at]}" if context else sentences[at]
    questions = []
    for needle in rng.permutation(len(DEPTHS)).tolist():
        others = [start for other, start in starts.items() if other != needle]
        text = asks.format(names[needle])
        answers = [starts[needle]]
        questions.append(
            HaystackQuestion(text, values[needle], answers, others, other_words[needle])
        )
    name = f"haystack-{length}-{number}"
    return question_document(name, context, questions, tokenizer.template)


def _made_up_words(rng: np.random.Generator, tokens: Any) -> list[str]:
    """Names, which have one number of tokens, and values; no two begin alike."""
    # each onset once, so that no two words begin alike
    by_size: dict[int, list[str]] = {}
    for onset in rng.permutation(_ONSETS).tolist():
        middle = rng.choice(_MIDDLES)
        end = rng.choice(_ENDS)
        word = f"{onset}{middle}{end}"
        of_size = by_size.setdefault(tokens(f" {word}"), [])
        of_size.append(word)
    # names are of the most frequent number of tokens
    by_count = sorted(by_size.values(), key=len, reverse=True)
    words = list(chain.from_iterable(by_count))
    count = len(DEPTHS)
    values = rng.permutation(words[count:])
    return [*words[:count], *values[:count].tolist()]


def read_haystacks(
    path: str | Path, *, seed: int = 0, template: ChatTemplate | None = None
) -> list[Document]:
    """The haystacks of a user's file: JSON lines with `context`, `question` and `answer`.

    Candidates beside the answer are words of the context in its form: numbers, words with a
    capital, or others.

    Raises:
        CorpusError: there are no rows, or invalid ones; the message lists them.
        HeadscopeError: there is no such file.
    """
    raw = given_file(path, "haystacks as .jsonl")
    table = jsonl_table(raw, str(path), CorpusError)
    documents: list[Document] = []
    faults: list[InvalidRow] = []
    for number, row in table.rows.items():
        fault = _fault(row)
        if fault:
            faults.append(InvalidRow(number, fault))
            continue
        rng = np.random.default_rng([seed, number])
        question = _user_question(row, rng)
        name = f"{Path(path).stem}-{number}"
        documents.append(question_document(name, row["context"], [question], template))
    table.check(CorpusError, faults)
    return documents


def _fault(row: Any) -> str:
    """Reason why a row is invalid; empty for a valid row."""
    if not isinstance(row, Mapping):
        return f"{described(row)} is not an object with {', '.join(COLUMNS)}"
    for name in COLUMNS:
        text = row.get(name)
        if not isinstance(text, str) or not text.strip() or not is_unicode(text):
            return f"{name} is {described(text)}; it should be text"
    if not list(_places(row["context"], row["answer"].strip())):
        return f"the answer {row['answer']!r:.60} does not stand in the context"
    return ""


def _places(context: str, answer: str) -> Iterator[tuple[int, int]]:
    """Start and end of each place in a context where the answer stands as whole words."""
    pattern = rf"(?<![\p{{L}}\p{{N}}_]){regex.escape(answer)}(?![\p{{L}}\p{{N}}_])"
    for match in regex.finditer(pattern, context):
        yield match.span()


def _user_question(row: Mapping[str, str], rng: np.random.Generator) -> HaystackQuestion:
    answer = row["answer"].strip()
    spans = list(_places(row["context"], answer))
    answers: list[int] = []
    others: list[int] = []
    words = read_text("context", row["context"]).words
    for word in words:
        if any(start <= word.start < end for start, end in spans):
            answers.append(word.start)
        elif _form(word.form) == _form(answer):
            others.append(word.start)
    candidates = rng.permutation(others)[: MAX_CANDIDATES - 1].tolist()
    # the sentences of the answer are what a needle is in a haystack of ours
    sentences = {word.sentence for word in words if word.start in answers}
    of_needle = [word.start for word in words if word.sentence in sentences]
    other_words = [start for start in of_needle if start not in answers]
    return HaystackQuestion(row["question"].strip(), answer, answers, candidates, other_words)


def _form(word: str) -> str:
    if word[:1].isdigit():
        return "number"
    if word[:1].isalpha():
        return "capital" if word[0].isupper() else "word"
    return "mark"


def haystack_windows(config: StimulusConfig) -> list[Window]:
    """A window for each haystack, as long as the model reads.

    Raises:
        CorpusError: a length is beyond the model's context, or all haystacks of a file are.
    """
    if not config.haystack:
        return []
    lengths = haystack_lengths(config.haystack)
    if lengths:
        if max(lengths) > config.context:
            raise CorpusError(
                f"haystack has {max(lengths):,}, and the model reads at most {config.context:,} "
                "tokens"
            )
        documents = haystack_documents(lengths, config.tokenizer, seed=config.seed)
    else:
        template = config.tokenizer.template
        documents = iter(read_haystacks(config.haystack[0], seed=config.seed, template=template))
    windows: list[Window] = []
    count = 0
    for number, document in enumerate(documents):
        count += 1
        cut = list(
            cut_document(document, config.tokenizer, HAYSTACK.name, config.context, number=number)
        )
        # what is longer than the context would be cut between a needle and its question
        if len(cut) == 1:
            windows += cut
    if not windows:
        raise CorpusError(
            f"{config.haystack[0]}: all {count:,} haystacks are longer than the "
            f"{config.context:,} tokens that the model reads"
        )
    return windows


def haystack_lengths(names: Sequence[str]) -> list[int]:
    """The lengths of haystacks in tokens; none if a file is named.

    >>> haystack_lengths(["2048", "8192"]), haystack_lengths(["mine.jsonl"])
    ([2048, 8192], [])
    """
    return [int(name) for name in names if name.isdigit()]


def length_of(window: Window, names: Sequence[str]) -> int:
    """The length that a haystack was asked for; of a file's the next power of two.

    >>> length_of(Window("w", np.arange(2040), ("a",) * 2040), ["mine.jsonl"])
    2048
    """
    lengths = haystack_lengths(names) or [2**power for power in range(4, 40)]
    return min(length for length in lengths if length >= len(window))


HAYSTACK = Stimulus(
    name="haystack",
    title="facts in long text",
    build=haystack_windows,
    example_windows=0,
)
