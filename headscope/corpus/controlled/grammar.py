"""Phrases of controlled English: noun phrases, verbs that agree, pronouns that refer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.tree import Node


@dataclass
class Speaker:
    """Draws words for one document, so that no two of its entities share a name or a noun."""

    rng: np.random.Generator
    decks: dict[str, list[str]] = field(default_factory=dict)
    entities: int = 0

    def draw(self, deck: str) -> str:
        """A word of the lexicon that this document has not used yet, while there is one."""
        cards = self.decks.get(deck)
        if not cards:
            cards = self.decks[deck] = list(self.rng.permutation(getattr(lexicon, deck)))
        return str(cards.pop())

    def pick(self, words: Sequence[str]) -> str:
        """Any of the words."""
        return lexicon.pick(self.rng, words)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def entity(self, kind: str, agree: str) -> str:
        """A new entity's brackets: `e7-person-fs`."""
        self.entities += 1
        return f"e{self.entities}-{kind}-{agree}"


def pronoun_class(entity: str) -> str:
    """The pronoun class of an entity: `fs`, `ms`, `ns` or `p`."""
    return entity.split("-")[2]


def name(speaker: Speaker, agree: str) -> Node:
    """A person's name: `fs` a woman's, `ms` a man's."""
    form = speaker.draw("WOMEN" if agree == "fs" else "MEN")
    entity = speaker.entity("person", agree)
    return Node(form, form, "PROPN", "Number=Sing", entity=entity)


def noun(
    speaker: Speaker,
    deck: str,
    *,
    plural: bool | None = None,
    adjectives: float = 0.5,
    determiner: bool = True,
) -> Node:
    """A noun phrase: determiner, perhaps a number, adjectives and a material, and its noun."""
    many = speaker.chance(0.5) if plural is None else plural
    singular, form = speaker.draw(deck).split("/")
    kind = {"THINGS": "object", "PLACES": "place"}.get(deck, "person")
    agree = "p" if many else {"FEMALE": "fs", "MALE": "ms"}.get(deck, "ns")
    node = Node(
        form if many else singular,
        singular,
        "NOUN",
        "Number=Plur" if many else "Number=Sing",
        entity=speaker.entity(kind, agree),
    )
    inner: list[tuple[str, Node]] = []
    if many and speaker.chance(0.25):
        number = speaker.pick(lexicon.NUMBERS)
        inner.append(("nummod", Node(number, number, "NUM", "NumType=Card")))
    fitting = lexicon.OF_PEOPLE if kind == "person" else lexicon.OF_THINGS
    picked_adjectives: list[str] = []
    while speaker.chance(adjectives) and len(picked_adjectives) < 2:
        word = speaker.pick(
            [a for a in lexicon.ADJECTIVES if a in fitting and a not in picked_adjectives]
        )
        picked_adjectives.append(word)
        inner.append(("amod", Node(word, word, "ADJ", "Degree=Pos")))
    if kind != "person" and speaker.chance(adjectives / 2):
        material = speaker.pick(lexicon.MATERIALS)
        if material != singular:
            inner.append(("compound", Node(material, material, "NOUN", "Number=Sing")))
    if determiner:
        following = inner[0][1].form if inner else node.form
        inner.insert(0, ("det", _determiner(speaker, many, following)))
    node.before = inner
    return node


def person(speaker: Speaker, *, adjectives: float = 0.35) -> Node:
    """Any noun phrase for people."""
    return noun(speaker, speaker.pick(["PEOPLE", "FEMALE", "MALE"]), adjectives=adjectives)


def placed(speaker: Speaker, head: Node, *, attractors: float = 0.5, at_most: int = 2) -> Node:
    """The noun phrase with prepositional phrases on it, whose nouns attract the verb."""
    number = head.feats
    for _ in range(at_most):
        if not speaker.chance(attractors):
            break
        deck = speaker.pick(["THINGS", "PLACES"])
        attractor = noun(speaker, deck, plural=number == "Number=Sing")
        head.add("nmod", prepositional(speaker, attractor))
    return head


def prepositional(speaker: Speaker, inner: Node, preposition: str | None = None) -> Node:
    """The noun phrase under a preposition."""
    form = preposition or speaker.pick(lexicon.NEAR)
    return inner.led_by("case", Node(form, form, "ADP"))


def verb(speaker: Speaker, deck: str, subject: Node | None, tense: str) -> Node:
    """A verb of the deck: `present` agrees with its subject; or `past`, `participle`, `base`."""
    base, third, past, participle = speaker.draw(deck).split("/")
    single = subject is not None and subject.feats == "Number=Sing"
    form, feats = {
        "present": (
            third if single else base,
            f"Mood=Ind|Number={'Sing' if single else 'Plur'}|Person=3|Tense=Pres|VerbForm=Fin",
        ),
        "past": (past, "Mood=Ind|Tense=Past|VerbForm=Fin"),
        "participle": (participle, "Tense=Past|VerbForm=Part"),
        "base": (base, "VerbForm=Inf"),
    }[tense]
    return Node(form, base, "VERB", feats)


def predicate(speaker: Speaker, deck: str, subject: Node, tense: str = "") -> Node:
    """A verb with its auxiliary or adverbs before it; the subject is not attached yet."""
    tense = tense or speaker.pick(["present", "past", "modal"])
    node = verb(speaker, deck, subject, "base" if tense == "modal" else tense)
    if tense == "modal":
        modal = speaker.pick(lexicon.MODALS)
        node.put("aux", Node(modal, modal, "AUX", "VerbForm=Fin"))
    for adverbs in (lexicon.HOW_OFTEN, lexicon.MANNERS):
        if speaker.chance(0.4):
            node.put("advmod", adverb(speaker, adverbs))
    return node


def adverb(speaker: Speaker, adverbs: list[str]) -> Node:
    """Any of the adverbs."""
    form = speaker.pick(adverbs)
    return Node(form, form, "ADV")


def pronoun_for(entity: str, case: str) -> Node:
    """The pronoun that refers to an entity: `nominative`, `accusative`, `possessive`."""
    agree = pronoun_class(entity)
    form = lexicon.PRONOUNS[agree][case]
    lemma = lexicon.PRONOUNS[agree]["nominative"]
    gender = {"fs": "Gender=Fem|", "ms": "Gender=Masc|", "ns": "Gender=Neut|", "p": ""}[agree]
    number = "Plur" if agree == "p" else "Sing"
    owner = "|Poss=Yes" if case == "possessive" else ""
    feats = f"{gender}Number={number}|Person=3{owner}|PronType=Prs"
    return Node(form, lemma, "PRON", feats, entity=entity)


def owned(speaker: Speaker, owner: Node, deck: str = "THINGS") -> Node:
    """A noun phrase with a possessor: a name with 's, or a possessive pronoun."""
    node = noun(speaker, deck, determiner=False, adjectives=0.5)
    if owner.upos != "PRON":
        plural = owner.form.endswith("s") and owner.feats == "Number=Plur"
        owner.add("case", Node("'" if plural else "'s", "'s", "PART"))
    node.before.insert(0, ("nmod:poss", owner))
    return node


def _determiner(speaker: Speaker, many: bool, following: str) -> Node:
    choices = ["the", "the", "these", "those"] if many else ["the", "the", "a", "this", "that"]
    form = speaker.pick(choices)
    lemma = {"these": "this", "those": "that"}.get(form, form)
    if form == "a" and following[0] in "aeiou":
        form = "an"
    kind = "Dem" if lemma in ("this", "that") else "Art"
    definite = "" if kind == "Dem" else f"Definite={'Ind' if lemma == 'a' else 'Def'}|"
    return Node(form, lemma, "DET", f"{definite}PronType={kind}")
