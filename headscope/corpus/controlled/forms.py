"""Words with the words that are related to them, for what heads' weights make of a word.

Each word comes with its rivals too: other forms of it, which a head raises that raises whatever
belongs to the word. The lists were written here, but for antonyms and kinds (`word_pairs.csv`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.lists import ADJECTIVES, COUNTRIES, CYCLIC, IN_ORDER, VERBS
from headscope.corpus.word_pairs import shipped_pairs


class FormQuestion(NamedTuple):
    """A word, the words that stand in the relation to it, and rivals, one of each kind."""

    word: str
    right: tuple[str, ...]
    rivals: tuple[str, ...] = ()


class WordRelation(NamedTuple):
    """A relation between words: what it is called and which words it holds of."""

    meaning: str
    words: tuple[FormQuestion, ...]
    rivals: tuple[str, ...] = ()
    """Meaning of each rival of a word."""


_GENDERS = (
    "man/woman boy/girl king/queen uncle/aunt father/mother brother/sister son/daughter "
    "husband/wife prince/princess grandfather/grandmother nephew/niece waiter/waitress "
    "actor/actress he/she him/her himself/herself men/women boys/girls brothers/sisters "
    "sons/daughters male/female gentleman/lady fathers/mothers kings/queens dad/mom guy/girl"
)
_PLURALS = (
    *lexicon.PEOPLE,
    *lexicon.THINGS,
    *lexicon.PLACES,
    *lexicon.FEMALE,
    *lexicon.MALE,
)


@cache
def word_relations() -> dict[str, WordRelation]:
    """Each relation by its name.

    >>> [word.right for word in word_relations()["capital"].words if word.word == "Peru"]
    [('Lima',)]
    """
    genders = (entry.split("/") for entry in _GENDERS.split())
    plurals = dict(entry.split("/")[:2] for entry in _PLURALS)
    return {
        "antonym": WordRelation("a word's opposite", _antonyms()),
        "capital": _form("a country's capital", COUNTRIES, 1, 2, "its people"),
        "comparative": _form("an adjective's comparative", ADJECTIVES, 1, 2, "its superlative"),
        "gender": WordRelation("the female form", tuple(FormQuestion(a, (b,)) for a, b in genders)),
        "kind": WordRelation("the kind of a thing", _kinds()),
        "past": _form("a verb's past tense", VERBS, 1, 2, "its -ing form"),
        "people": _form("a country's people or language", COUNTRIES, 2, 1, "its capital"),
        "plural": WordRelation(
            "the plural", tuple(FormQuestion(a, (b,)) for a, b in plurals.items())
        ),
        "successor": WordRelation(
            "what comes next in a list", _successors(), ("what comes before",)
        ),
        "superlative": _form("an adjective's superlative", ADJECTIVES, 2, 1, "its comparative"),
    }


def _form(
    meaning: str, rows: Sequence[Sequence[str]], right: int, rival: int, name: str
) -> WordRelation:
    words = tuple(FormQuestion(row[0], (row[right],), (row[rival],)) for row in rows)
    return WordRelation(meaning, words, (name,))


def _antonyms() -> tuple[FormQuestion, ...]:
    """Each word in one pair only, so that pairs say something each; all its opposites are right."""
    lexicon_pairs, seen = shipped_pairs(), set[str]()
    opposites = lexicon_pairs.related["antonym"]
    questions = []
    for pair in lexicon_pairs.pairs:
        if pair.relation == "antonym" and not {pair.first, pair.second} & seen:
            seen |= {pair.first, pair.second}
            questions.append(FormQuestion(pair.first, tuple(sorted(opposites[pair.first.lower()]))))
    return tuple(questions)


def _kinds() -> tuple[FormQuestion, ...]:
    kinds: dict[str, list[str]] = {}
    for pair in shipped_pairs().pairs:
        if pair.relation == "hypernym" and pair.upos == "NOUN":
            kinds.setdefault(pair.first, []).append(pair.second)
    return tuple(FormQuestion(word, tuple(right)) for word, right in kinds.items())


def _successors() -> tuple[FormQuestion, ...]:
    questions = []
    for name, members in IN_ORDER.items():
        around = (members[-1], *members, members[0]) if name in CYCLIC else members
        before = {b: a for a, b in pairwise(around)}
        after = dict(pairwise(around))
        inner = [word for word in members if word in before and word in after]
        questions += [FormQuestion(word, (after[word],), (before[word],)) for word in inner]
    return tuple(questions)
