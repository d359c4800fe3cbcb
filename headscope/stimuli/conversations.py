"""Conversations of unrelated sentences in a model's chat template.

Their messages are sentences of the shipped texts, drawn at random, so that their content does not
tell one message from another. Their lengths vary, so that neither does their distance. A system
prompt always begins a conversation: in every other document a conversation comes before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from headscope.corpus.document import Document, Turn, Word
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.text import read_text
from headscope.corpus.window import ChatTemplate
from headscope.stimuli.stimulus import Stimulus, StimulusConfig

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = (SYSTEM, USER, ASSISTANT, USER, ASSISTANT)
"""Messages of a conversation; one that comes before it has the first three."""
LENGTHS, ANSWER_LENGTHS = (1, 5), (4, 7)
"""Least and largest length of a message, and of the last answer, in units that fill the window at
most."""
LEAST_UNIT = 3
"""Tokens of the shortest unit."""
SENTENCES = 1_500
"""Sentences that messages are drawn from."""


def conversation_document(
    name: str, conversations: Sequence[Sequence[tuple[str, str]]], template: ChatTemplate
) -> Document:
    """Conversations one after the other, each of roles and contents; words are those of contents.

    The last one ends with its last message.
    """
    text = ""
    turns: list[Turn] = []
    for messages in conversations:
        text += template.end if text else ""
        added, own_turns = template.conversation(messages, len(text))
        text += added
        turns += own_turns
    words: list[Word] = []
    for turn in turns:
        sentence = words[-1].sentence + 1 if words else 0
        # words of the template would be targets of relations between words
        for word in read_text(name, text[turn.start : turn.stop]).words:
            start, end = turn.start + word.start, turn.start + word.end
            words.append(replace(word, start=start, end=end, sentence=sentence + word.sentence))
    return Document(name, text, tuple(words), turns=tuple(turns))


@cache
def shipped_sentences() -> tuple[str, ...]:
    """The sentences of the shipped texts, in their order."""
    sentences: list[str] = []
    for document in read_documents(corpus_files([*shipped_corpora()])):
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for word in document.words:
            first.setdefault(word.sentence, word.start)
            last[word.sentence] = word.end
        for number, start in first.items():
            sentences.append(" ".join(document.text[start : last[number]].split()))
    return tuple(sentences)


def _build(config: StimulusConfig) -> Iterator[Document]:
    tokenizer, template = config.tokenizer, config.tokenizer.template
    if template is None or template.again is None:
        return
    sentences = np.array([*dict.fromkeys(shipped_sentences())][:SENTENCES])
    counts = np.array([len(tokenizer.encode(Document("", text, ())).tokens) for text in sentences])
    for number in range(config.documents):
        rng = np.random.default_rng([config.seed, number])
        # messages of at most so many units, which fill the window together
        plan = [(role, *LENGTHS) for role in ROLES]
        plan[-1] = (ASSISTANT, *ANSWER_LENGTHS)
        before = [(role, *LENGTHS) for role in ROLES[:3]] if number % 2 else []
        if template.system is None:
            plan, before = plan[1:], before[1:]
        parts = [part for part in (before, plan) if part]
        shortest = [[(role, "x") for role, *_ in part] for part in parts]
        around = len(tokenizer.encode(conversation_document("", shortest, template)).tokens)
        units = sum(largest for part in parts for _, _, largest in part)
        largest_unit = (config.max_length - 1 - around) // units
        if largest_unit < LEAST_UNIT:
            return
        # units differ, so that a message has no place of its own in the window
        unit = int(rng.integers(LEAST_UNIT, largest_unit + 1))

        # whole sentences, each once, up to the length that is drawn for a message
        order = rng.permutation(len(sentences))
        conversations: list[list[tuple[str, str]]] = []
        for part in parts:
            conversations.append([])
            for role, least, largest in part:
                tokens_left = int(rng.integers(least * unit, largest * unit + 1))
                members: list[int] = []
                while True:
                    # at least a quarter of what is left, so that few sentences fill a message
                    fits = (counts[order] <= tokens_left) & (counts[order] > tokens_left // 4)
                    if members and not fits.any():
                        break
                    sentence = int(order[fits][0] if fits.any() else order[counts[order].argmin()])
                    order = order[order != sentence]
                    tokens_left -= int(counts[sentence])
                    members.append(sentence)
                conversations[-1].append((role, " ".join(sentences[members])))
        yield conversation_document(f"conversation-{number}", conversations, template)


CONVERSATIONS = Stimulus(
    name="conversations",
    title="conversations",
    build=_build,
    before_text=16,
    needs="the type chat needs a chat template that takes several messages, and windows that hold "
    "them, such as --max-length 512",
    study_documents=16,
    example_windows=8,
)
