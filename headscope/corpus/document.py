"""Annotated text as headscope reads it: words with syntax, mentions with entities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headscope.corpus.gold_links import Arrow


@dataclass(frozen=True, slots=True)
class Word:
    """One syntactic word, at `text[start:end]` of its document.

    The parts of a multi-word token ("don't" = "do" + "n't") have their own characters when
    they spell the token, and all of its characters when they do not ("du" = "de" + "le").
    """

    form: str
    start: int
    end: int
    sentence: int
    lemma: str = ""
    upos: str = ""
    feats: str = ""
    head: int = -1
    """Index of the governing word in the document; -1 for a root or without annotation."""
    deprel: str = ""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words `first` to `last` (both included) that refer to `entity`; `head` governs them."""

    entity: str
    first: int
    last: int
    head: int


class Turn(NamedTuple):
    """The content of one message of a conversation, without the template around it."""

    role: str
    """`system`, `user` or `assistant`."""
    start: int
    stop: int
    """First place, and the one after the last: characters of a document, tokens of a window."""


@dataclass(frozen=True)
class Document:
    """A text with its words in order, and its mentions in the order of their first words.

    >>> words = (Word("Go", 0, 2, sentence=0), Word(".", 2, 3, sentence=0))
    >>> Document("d", "Go.", words).sentences
    1
    """

    name: str
    text: str
    words: tuple[Word, ...]
    mentions: tuple[Mention, ...] = ()
    skipped_mentions: int = 0
    """Discontinuous mentions, which headscope leaves out."""
    source: str = field(default="", compare=False)
    """The file that it was read from."""
    arrows: tuple[Arrow, ...] = field(default=(), repr=False)
    """Gold links: the words that its words point back to, in code and in questions."""
    stimulus: str = field(default="text", compare=False)
    """`text`, or what it was made for; see `headscope.corpus.window.Window.stimulus`."""
    original: str = field(default="", compare=False)
    """The long text that it is a piece of; empty for what is a separate text."""
    skipped_comments: str = field(default="", compare=False)
    """File and line of comments at the end of a file without a sentence below; empty if none."""
    turns: tuple[Turn, ...] = ()
    """Messages, if the text is a conversation; the rest of it is the text of a chat template."""
    zero_mentions: int = field(default=0, compare=False)
    """Mentions of empty nodes alone, which have no word in the text."""

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return self.words[-1].sentence + 1 if self.words else 0

    def with_arrows(self, arrows: Iterable[Arrow | None], *, stimulus: str = "text") -> Document:
        """The document with gold links, as one of a stimulus; None, a link to nothing, is left out.

        >>> Document("d", "", ()).with_arrows([None], stimulus="boxes").arrows
        ()
        """
        links = tuple(link for link in arrows if link is not None)
        return replace(self, arrows=links, stimulus=stimulus)


# https://universaldependencies.org/u/dep/ without root, punct, dep, goeswith and reparandum,
# which name no syntactic link, and with the English subtypes that differ most from their parent
DEPRELS = (
    "acl", "acl:relcl", "advcl", "advmod", "amod", "appos", "aux", "aux:pass", "case", "cc",
    "ccomp", "compound", "compound:prt", "conj", "cop", "csubj", "det", "discourse", "dislocated",
    "expl", "fixed", "flat", "iobj", "list", "mark", "nmod", "nmod:poss", "nsubj", "nsubj:pass",
    "nummod", "obj", "obl", "orphan", "parataxis", "vocative", "xcomp",
)  # fmt: skip


def own_label(label: str) -> str:
    """The label under which a dependency counts: itself, or its parent when it has no row.

    `nmod:poss` counts as itself, `nmod:desc` as `nmod`.

    >>> own_label("nmod:poss"), own_label("nmod:desc")
    ('nmod:poss', 'nmod')
    """
    return label if label in DEPRELS else label.split(":")[0]
