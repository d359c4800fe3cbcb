"""A stretch of a document as a model reads it: tokens, and where its words and mentions lie.

All positions are token positions in the window; position 0 is the beginning-of-text token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.corpus.document import Turn, own_label
from headscope.corpus.gold_links import NO_ARROWS, ArrowTable, moved_rows
from headscope.errors import ModelError


@dataclass(frozen=True, eq=False)
class Question:
    """Question at one token of a window: which tokens fit next, and which do not."""

    kind: str
    """Kind of question, e.g. `successor`."""
    query: int
    """The token's position."""
    right: Int[ndarray, " right"]
    """Tokens that fit next, as the model numbers them."""
    wrong: Int[ndarray, " wrong"]
    """Tokens that would fit but for what the question is about."""
    other: Int[ndarray, " other"] = field(default_factory=lambda: np.empty(0, np.int64))
    """Further ones, which are wrong for another reason; none if one kind is enough."""


T = TypeVar("T")
PADDING = -1
"""Behind the end of a window whose padding must be hidden; no token has this number."""

_Positions = Int[ndarray, " item"]


@dataclass(frozen=True, eq=False)
class WordTable:
    """The words of a window, column by column, in order.

    `first` and `last` are the positions of a word's first and last sub-token. `head` is the
    row of the governing word, or -1 when that word is the root, lies in another window, or
    is not annotated.
    """

    first: _Positions
    last: _Positions
    sentence: _Positions
    head: _Positions
    deprel: ndarray
    upos: ndarray
    lemma: ndarray
    """Lemma in lower case; the form if the annotation gives no lemma."""
    tense: ndarray
    """Tense and form of a verb, such as `Past Fin`; empty without a tense."""

    def __len__(self) -> int:
        return len(self.first)

    def between(self, start: int, stop: int, begins: int = 1) -> WordTable:
        """The words that lie wholly in `[start, stop)`, position `start` now being `begins`."""
        is_inside = (self.first >= start) & (self.last < stop)
        inside = np.flatnonzero(is_inside)
        columns = moved_rows(self, inside, begins - start, ("first", "last"))
        # the new row of each word; −1 for those outside, and for no word
        row = np.full(len(self) + 1, -1)
        row[inside] = np.arange(len(inside))
        columns["head"] = row[columns["head"]]
        return WordTable(**columns)

    def row_at(self, positions: Int[ndarray, " token"]) -> Int[ndarray, " token"]:
        """The row of the word that each token belongs to or follows; −1 before the first word."""
        return np.searchsorted(self.first, positions, side="right") - 1

    @cached_property
    def dependents(self) -> dict[str, _Positions]:
        """For each dependency relation, the rows of the words that have it."""
        labels, label = np.unique(self.deprel, return_inverse=True)
        own_labels = np.array([own_label(name) for name in labels.tolist()], "U")
        rows = np.flatnonzero(self.head >= 0)
        if not len(rows):
            return {}
        label_of_row = own_labels[label[rows]]
        dependents: dict[str, _Positions] = {}
        for name in np.unique(label_of_row):
            dependents[str(name)] = rows[label_of_row == name]
        return dependents


@dataclass(frozen=True, eq=False)
class MentionTable:
    """The mentions of a window in the order of their head words, each by that word's tokens.

    A name counts whole: the head word with its `flat` parts ("Anna" + "Bell").
    """

    first: _Positions
    last: _Positions
    entity: ndarray
    surface: ndarray
    """The whole mention in lower case."""
    lemma: ndarray
    """The head word's lemma in lower case."""
    shared: Bool[ndarray, "item item"]
    """Mentions that have a word of content in common, wherever it stands in them."""
    agrees: Bool[ndarray, "item item"]
    """Mentions that do not contradict each other in number, gender and person."""
    pronoun: Bool[ndarray, " item"]
    personal: Bool[ndarray, " item"]
    """Personal, possessive or reflexive pronouns; no demonstratives or relatives."""

    def between(self, start: int, stop: int, begins: int = 1) -> MentionTable:
        """The mentions that lie wholly in `[start, stop)`, position `start` now being `begins`."""
        inside = (self.first >= start) & (self.last < stop)
        columns = moved_rows(self, inside, begins - start, ("first", "last"))
        for name in ("shared", "agrees"):
            columns[name] = columns[name][:, inside]
        return MentionTable(**columns)

    def __len__(self) -> int:
        return len(self.first)


def no_words() -> WordTable:
    """A table without words, for text that was never written by anyone.

    >>> len(no_words()), no_words().dependents
    (0, {})
    """
    empty = np.empty(0, np.int64)
    text = np.empty(0, "U1")
    return WordTable(empty, empty, empty, empty, text, text, text, text)


def no_mentions() -> MentionTable:
    """A table without mentions."""
    positions = np.empty(0, np.int64)
    text = np.empty(0, "U1")
    flag = np.empty(0, bool)
    table = np.empty((0, 0), bool)
    return MentionTable(
        first=positions,
        last=positions,
        entity=text,
        surface=text,
        lemma=text,
        shared=table,
        agrees=table,
        pronoun=flag,
        personal=flag,
    )


@dataclass(frozen=True)
class Frame:
    """The tokens of a model's windows beside a beginning-of-text token."""

    end: int | None = None
    """The token that closes a window, such as `[SEP]`."""
    end_string: str = ""
    attention_kind: AttentionKind = CAUSAL

    @property
    def closing_tokens(self) -> int:
        """Tokens that it takes of each window."""
        return int(self.end is not None)

    def close(self, window: Window) -> Window:
        """The window of a model with this frame."""
        if self.attention_kind != window.attention_kind:
            window = replace(window, attention_kind=self.attention_kind)
        if self.end is None:
            return window
        return replace(
            window,
            tokens=np.append(window.tokens, self.end),
            strings=(*window.strings, self.end_string),
            ends=1,
        )


NO_FRAME = Frame()
"""A causal model's: nothing."""


class TemplateText(NamedTuple):
    """Text of a chat template before, between or after messages, and its tokens."""

    text: str
    tokens: tuple[int, ...]
    strings: tuple[str, ...]
    """The text of each token."""


@dataclass(frozen=True)
class ChatTemplate:
    """Tokens that a chat template puts around messages, behind the first token."""

    before: TemplateText
    """Before a user's message that begins a conversation; a default system prompt is in it."""
    after: TemplateText
    """After a user's message that ends a conversation."""
    answer: TemplateText
    """Between a user's message and the answer of the assistant."""
    lead: str
    """Spaces that begin an answer; in most templates none."""
    special: frozenset[int]
    """Special tokens, which mark the turns, as line breaks of the template do."""
    text: tuple[str, str]
    """The template before and after the message, its first token included."""
    again: str | None
    """Text between an answer and the user's next message; None if the template takes none."""
    end: str
    """Text after an answer that ends a conversation."""
    system: tuple[str, str] | None
    """Text before a system prompt, and between it and the user's message; None if it takes none."""
    default: Turn | None
    """Tokens of the default system prompt, counted from the first token; None if it has none."""

    def put_around(self, window: Window, *, asks: bool = False) -> Window:
        """The window of a text as a user's message; its words and mentions move along.

        Args:
            window: the text's.
            asks: the assistant's turn begins after the message.
        """
        # tokens of the template that end a line or turn draw attention as marks do
        before, after = self.before, self.answer if asks else self.after
        count, end = len(before.tokens), len(window)
        marks = [
            i
            for i, (token, string) in enumerate(zip(before.tokens, before.strings, strict=True), 1)
            if token in self.special or ("\n" in string and not string.strip())
        ]
        # turns are by positions in the new window, in which the default system prompt comes first
        turns = [Turn("user", 1 + count, end + count)]
        if self.default is not None:
            turns.insert(0, self.default)
        if asks:
            total = end + count + len(after.tokens)
            turns.append(Turn("assistant", total, total))
        return replace(
            window,
            tokens=np.concatenate(
                [window.tokens[:1], before.tokens, window.tokens[1:], after.tokens]
            ).astype(np.int64),
            strings=(
                window.strings[0],
                *before.strings,
                *window.strings[1:],
                *after.strings,
            ),
            words=window.words.between(1, end, 1 + count),
            mentions=window.mentions.between(1, end, 1 + count),
            inner=window.inner + count,
            arrows=window.arrows.between(1, end, 1 + count),
            begins=1 + count,
            turn_marks=np.array(marks, np.int64),
            turns=tuple(turns),
            ends=len(after.tokens),
        )

    def conversation(
        self, messages: Sequence[tuple[str, str]], start: int = 0
    ) -> tuple[str, tuple[Turn, ...]]:
        """The text of a conversation up to the end of its last message, and its turns.

        Args:
            messages: role and content of each: a system prompt if any, then a user's message, an
                answer, and so on.
            start: characters of a text before it, which its turns are counted from.

        Raises:
            ModelError: the template takes no system prompt, or no second message of the user.
        """
        text = ""
        turns: list[Turn] = []
        for role, content in messages:
            # what stands before a message depends on the one before it, if there is one
            last = turns[-1].role if turns else ""
            between: str | None
            if role == "assistant":
                between = self.answer.text + self.lead
            elif "system" in (role, last):
                between = None if self.system is None else self.system[role != "system"]
            else:
                between = self.again if last else self.before.text
            if between is None:
                raise ModelError(
                    "the model's chat template does not take these messages: "
                    f"{', '.join(role for role, _ in messages)}; leave --chat out"
                )
            text += between
            turns.append(Turn(role, start + len(text), start + len(text) + len(content)))
            text += content
        return text, tuple(turns)


@dataclass(frozen=True, eq=False)
class Window:
    """Tokens that one forward pass reads, with what is known about them."""

    name: str
    """Document and window number, e.g. `GUM_bio_byron#2`."""
    tokens: Int[ndarray, " token"]
    strings: tuple[str, ...]
    """Each token as text; the fragments of one character show as replacement characters."""
    words: WordTable = field(default_factory=no_words)
    mentions: MentionTable = field(default_factory=no_mentions)
    inner: Int[ndarray, " item"] = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions of tokens within a word, a number or a symbol: their marks divide nothing."""
    copy_length: int = 0
    """n of the synthetic stimulus `[bos, r, r]` with r of n random tokens; 0 for text."""
    stimulus: str = "text"
    """Name of its kind of windows: `text` for natural text, else that of another `Stimulus`."""
    document: int = -1
    """Number of its document among those of its stimulus; a long text in pieces is one document.
    A window with -1 is a separate document."""
    attention_kind: AttentionKind = CAUSAL
    """Kind of attention: which of its tokens each of them may see."""
    ends: int = 0
    """Tokens behind its text: 1 if one closes it, such as `[SEP]`; those that end a template."""
    outside: Int[ndarray, " outside"] = field(default_factory=lambda: np.empty(0, np.int64))
    """Tokens of the vocabulary that stand nowhere in it, to compare with; none in text."""
    begins: int = 1
    """Start of its text, behind the first token and what a chat template puts before it."""
    turn_marks: Int[ndarray, " mark"] = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions of the special tokens and line breaks of a chat template before the text."""
    turns: tuple[Turn, ...] = ()
    """Messages of a conversation by the positions of their tokens; none of other text."""
    questions: tuple[Question, ...] = ()
    """Questions about the next token, if it was made for that."""
    arrows: ArrowTable = NO_ARROWS
    """Gold links: the words that its words point back to, in code and in questions."""
    _derived: dict[Callable[[Window], Any], Any] = field(
        default_factory=dict, init=False, repr=False
    )
    """What `once` has made; a copy of the window begins without it."""

    def once(self, make: Callable[[Window], T]) -> T:
        """The result of a function of the window: made once, and kept as long as this object.

        >>> window = Window("w", np.arange(3), ("a", "b", "c"))
        >>> window.once(len), window.once(len)
        (3, 3)
        """
        if make not in self._derived:
            self._derived[make] = make(self)
        value: T = self._derived[make]
        return value

    @property
    def stop(self) -> int:
        """The position after its last token of text."""
        return len(self) - self.ends

    @property
    def closing(self) -> int:
        """Position of the token that closes it; −1 for none."""
        return len(self) - 1 if self.ends else -1

    def __len__(self) -> int:
        return len(self.tokens)

    def keys_seen(self, query: _Positions) -> _Positions:
        """Number of tokens that each query may attend to."""
        return self.attention_kind.row_end(query, len(self))

    def cut(self, length: int) -> Window:
        """The window's first tokens, with the words and mentions that lie among them whole."""
        if length >= len(self):
            return self
        # positions stay, and only what lies in these tokens whole is kept
        return replace(
            self,
            tokens=self.tokens[:length],
            strings=self.strings[:length],
            words=self.words.between(0, length, 0),
            mentions=self.mentions.between(0, length, 0),
            inner=self.inner[self.inner < length],
            arrows=self.arrows.between(0, length, 0),
            copy_length=self.copy_length if length > 2 * self.copy_length else 0,
            questions=tuple(question for question in self.questions if question.query < length),
            begins=min(self.begins, length),
            turn_marks=self.turn_marks[self.turn_marks < length],
            turns=tuple(turn for turn in self.turns if turn.stop <= length),
            ends=0,
        )

    @cached_property
    def sentence_of_token(self) -> Int[ndarray, " token"]:
        """The sentence that each token belongs to; tokens between two words go with the first."""
        if not len(self.words):
            return np.zeros(len(self), np.int64)
        positions = np.arange(len(self))
        word = self.words.row_at(positions)
        return np.asarray(self.words.sentence[np.maximum(word, 0)])
