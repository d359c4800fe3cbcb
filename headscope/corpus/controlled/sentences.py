"""The sentences of controlled English, and the corpus made of them.

    python -m headscope.corpus.controlled.sentences > data/corpora/controlled.conllu

Every construction leaves a simple habit at a loss: between a verb and its subject stand nouns of
the other number, between a noun and its determiner adjectives, and before a pronoun two people of
whom it can mean only one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.grammar import (
    Speaker,
    adverb,
    name,
    noun,
    owned,
    person,
    placed,
    predicate,
    prepositional,
    pronoun_for,
    verb,
)
from headscope.corpus.controlled.tree import Node, write_sentence

DOCUMENTS, PER_DOCUMENT = 210, 8
SEED = 11


def attractors(speaker: Speaker) -> Node:
    """The guards near the old cabinet behind the door often open these boxes."""
    subject = placed(speaker, person(speaker), attractors=0.75)
    return _acts(speaker, subject, _object_noun(speaker), tense="present")


def states(speaker: Speaker) -> Node:
    """The letters under the old lamp are still dirty."""
    subject = placed(speaker, noun(speaker, "THINGS"), attractors=0.8)
    word = speaker.pick([a for a in lexicon.ADJECTIVES if a in lexicon.OF_THINGS])
    node = Node(word, word, "ADJ", "Degree=Pos")
    many = subject.feats == "Number=Plur"
    past = speaker.chance(0.4)
    form = ("were" if many else "was") if past else ("are" if many else "is")
    node.put("nsubj", subject).put("cop", Node(form, "be", "AUX", "VerbForm=Fin"))
    if speaker.chance(0.4):
        node.put("advmod", adverb(speaker, lexicon.HOW_OFTEN))
    return node


def object_relative(speaker: Speaker) -> Node:
    """The doctor that the farmers admired quickly left the village."""
    subject = placed(speaker, person(speaker), attractors=0.25, at_most=1)
    inner_subject = placed(speaker, person(speaker), attractors=0.25, at_most=1)
    inner = predicate(speaker, "ON_PEOPLE", inner_subject)
    inner.before.insert(0, ("nsubj", inner_subject))
    inner.before.insert(0, ("obj", Node("that", "that", "PRON", "PronType=Rel")))
    return _acts(speaker, subject.add("acl:relcl", inner), _object_noun(speaker))


def subject_relative(speaker: Speaker) -> Node:
    """The aunt who often helps the young sailors paints a boat."""
    subject = placed(speaker, person(speaker), attractors=0.25, at_most=1)
    inner = predicate(speaker, "ON_PEOPLE", subject)
    inner.before.insert(0, ("nsubj", Node("who", "who", "PRON", "PronType=Rel")))
    inner.add("obj", person(speaker, adjectives=0.5))
    return _acts(speaker, subject.add("acl:relcl", inner), _object_noun(speaker))


def possessed(speaker: Speaker) -> Node:
    """Anna's young brothers behind the wall carefully repaired the mill's broken wheel."""
    owner = name(speaker, speaker.pick(["fs", "ms"])) if speaker.chance(0.5) else person(speaker)
    subject = placed(speaker, owned(speaker, owner, speaker.pick(["MALE", "FEMALE", "PEOPLE"])))
    if speaker.chance(0.5):
        return _acts(speaker, subject, owned(speaker, noun(speaker, "PLACES", plural=False)))
    return _acts(speaker, subject, owned(speaker, pronoun_for(str(subject.entity), "possessive")))


def objects_joined(speaker: Speaker) -> Node:
    """The tailor bought a red blanket, the old clocks near the door and six shoes."""
    first = placed(speaker, _object_noun(speaker), attractors=0.3, at_most=1)
    if speaker.chance(0.5):
        first.add(
            "conj", _after_comma(placed(speaker, _object_noun(speaker), attractors=0.3, at_most=1))
        )
    last = _object_noun(speaker).led_by("cc", Node("and", "and", "CCONJ"))
    return _acts(speaker, person(speaker), first.add("conj", last))


def subjects_joined(speaker: Speaker) -> Node:
    """The old king and the clever nurses followed Paul."""
    second = person(speaker).led_by("cc", Node("and", "and", "CCONJ"))
    subject = placed(speaker, person(speaker), attractors=0.4, at_most=1)
    subject.add("conj", second)
    node = predicate(speaker, "ON_PEOPLE", second, speaker.pick(["past", "modal"]))
    node.before.insert(0, ("nsubj", subject))
    return node.add("obj", name(speaker, speaker.pick(["fs", "ms"])))


def verbs_joined(speaker: Speaker) -> Node:
    """A sailor cleaned the lamp and quietly hid two silver cups behind the door."""
    subject = placed(speaker, person(speaker), attractors=0.3, at_most=1)
    tense = speaker.pick(["present", "past"])
    second = predicate(speaker, "ON_THINGS", subject, tense).add("obj", _object_noun(speaker))
    second.led_by("cc", Node("and", "and", "CCONJ"))
    if speaker.chance(0.5):
        second.add("obl", prepositional(speaker, noun(speaker, "PLACES")))
    return _acts(speaker, subject, _object_noun(speaker), tense=tense).add("conj", second)


def two_candidates(speaker: Speaker) -> Node:
    """Anna met Paul near the bridge because she wanted his old map."""
    agrees = list(speaker.rng.permutation(["fs", "ms"]))
    subject, rival = (_he_or_she(speaker, str(agree)) for agree in agrees)
    main = predicate(speaker, "ON_PEOPLE", subject, "past")
    main.before.insert(0, ("nsubj", subject))
    main.add("obj", rival)
    if speaker.chance(0.4):
        location = noun(speaker, "PLACES", plural=speaker.chance(0.5))
        main.add("obl", prepositional(speaker, location))
    meant, other = (subject, rival) if speaker.chance(0.5) else (rival, subject)
    reason = predicate(speaker, "ON_THINGS", meant, speaker.pick(["past", "modal"]))
    reason.before.insert(0, ("nsubj", pronoun_for(str(meant.entity), "nominative")))
    reason.before.insert(0, ("mark", _because(speaker)))
    owner = meant if speaker.chance(0.5) else other
    return main.add(
        "advcl", reason.add("obj", owned(speaker, pronoun_for(str(owner.entity), "possessive")))
    )


def it_or_they(speaker: Speaker) -> Node:
    """The uncle moved the heavy chairs near the lamp, but he soon sold them."""
    subject = _he_or_she(speaker, speaker.pick(["fs", "ms"]))
    many = speaker.chance(0.5)
    first = noun(speaker, "THINGS", plural=many)
    second = noun(speaker, "THINGS", plural=not many)
    main = predicate(speaker, "ON_THINGS", subject, "past")
    main.before.insert(0, ("nsubj", subject))
    main.add("obj", first).add("obl", prepositional(speaker, second))
    meant = first if speaker.chance(0.5) else second
    then = predicate(speaker, "ON_THINGS", subject, "past")
    then.before.insert(0, ("nsubj", pronoun_for(str(subject.entity), "nominative")))
    then.led_by("punct", Node(",", ",", "PUNCT")).led_by("cc", Node("but", "but", "CCONJ"))
    return main.add("conj", then.add("obj", pronoun_for(str(meant.entity), "accusative")))


def passive(speaker: Speaker) -> Node:
    """The letters behind the mirror will soon be opened by the old judge."""
    subject = placed(speaker, noun(speaker, "THINGS"), attractors=0.6)
    node = verb(speaker, "ON_THINGS", subject, "participle")
    node.put("nsubj:pass", subject)
    modal = speaker.pick(lexicon.MODALS)
    node.put("aux", Node(modal, modal, "AUX", "VerbForm=Fin"))
    if speaker.chance(0.5):
        node.put("advmod", adverb(speaker, lexicon.HOW_OFTEN))
    node.put("aux:pass", Node("be", "be", "AUX", "VerbForm=Inf"))
    if speaker.chance(0.4):
        node.put("advmod", adverb(speaker, lexicon.MANNERS))
    return node.add("obl", prepositional(speaker, person(speaker), "by"))


def giving(speaker: Speaker) -> Node:
    """Yesterday the nurse gave the tired soldier a warm blanket."""
    subject = placed(speaker, person(speaker), attractors=0.4, at_most=1)
    node = predicate(speaker, "GIVING", subject, "past")
    node.before.insert(0, ("nsubj", subject))
    if speaker.chance(0.5):
        time = speaker.pick(lexicon.TIMES)
        node.before.insert(0, ("advmod", Node(time, time, "ADV")))
    receiver = person(speaker) if speaker.chance(0.6) else name(speaker, speaker.pick(["fs", "ms"]))
    return node.add("iobj", receiver).add("obj", _object_noun(speaker))


def placed_first(speaker: Speaker) -> Node:
    """Near the long bridge, the two proud soldiers hid a drum."""
    location = prepositional(speaker, placed(speaker, noun(speaker, "PLACES"), attractors=0.4))
    node = _acts(speaker, person(speaker), placed(speaker, _object_noun(speaker), attractors=0.4))
    node.before[:0] = [("obl", location), ("punct", Node(",", ",", "PUNCT"))]
    return node


def planning(speaker: Speaker) -> Node:
    """The sister near the monk promised to bring her old violin."""
    subject = placed(speaker, _he_or_she(speaker, speaker.pick(["fs", "ms"])), attractors=0.4)
    inner = verb(speaker, "ON_THINGS", None, "base").put("mark", Node("to", "to", "PART"))
    inner.add("obj", owned(speaker, pronoun_for(str(subject.entity), "possessive")))
    node = predicate(speaker, "PLANNING", subject, "past").add("xcomp", inner)
    node.before.insert(0, ("nsubj", subject))
    return node


def saying(speaker: Speaker) -> Node:
    """The king near Lucy thinks that she must often help him."""
    first, second = (str(agree) for agree in speaker.rng.permutation(["fs", "ms"]))
    topic, subject = _he_or_she(speaker, first), _he_or_she(speaker, second)
    subject.add("nmod", prepositional(speaker, topic))
    node = predicate(speaker, "SAYING", subject, speaker.pick(["present", "past"]))
    node.before.insert(0, ("nsubj", subject))
    meant, other = (topic, subject) if speaker.chance(0.5) else (subject, topic)
    inner = predicate(speaker, "ON_PEOPLE", meant)
    inner.before.insert(0, ("nsubj", pronoun_for(str(meant.entity), "nominative")))
    if speaker.chance(0.7):
        inner.before.insert(0, ("mark", Node("that", "that", "SCONJ")))
    return node.add("ccomp", inner.add("obj", pronoun_for(str(other.entity), "accusative")))


CONSTRUCTIONS: list[Callable[[Speaker], Node]] = [
    attractors,
    states,
    object_relative,
    subject_relative,
    possessed,
    objects_joined,
    subjects_joined,
    verbs_joined,
    two_candidates,
    two_candidates,
    it_or_they,
    passive,
    giving,
    placed_first,
    planning,
    saying,
]


def controlled_corpus(
    documents: int = DOCUMENTS, sentences: int = PER_DOCUMENT, *, seed: int = SEED
) -> str:
    """Documents of controlled English as CoNLL-U.

    Each sentence is about people and things of its own; a document repeats no name and hardly a
    noun, so that nothing but the tree and the pronoun tells where a word points.
    """
    lines = []
    for document in range(documents):
        speaker = Speaker(np.random.default_rng([seed, document]))
        title = f"controlled_{document:03d}"
        lines.append(f"# newdoc id = {title}\n# global.Entity = eid-etype-agree\n")
        for k in range(sentences):
            root = CONSTRUCTIONS[int(speaker.rng.integers(len(CONSTRUCTIONS)))](speaker)
            sentence = f"{title}-{k + 1}"
            lines.append(write_sentence(root, sentence, paragraph=k == 0) + "\n")
    return "".join(lines)


def _acts(speaker: Speaker, subject: Node, object_noun: Node, tense: str = "") -> Node:
    node = predicate(speaker, "ON_THINGS", subject, tense)
    node.before.insert(0, ("nsubj", subject))
    return node.add("obj", object_noun)


def _object_noun(speaker: Speaker) -> Node:
    return noun(speaker, "THINGS", adjectives=0.6)


def _he_or_she(speaker: Speaker, agree: str) -> Node:
    if speaker.chance(0.6):
        return name(speaker, agree)
    return noun(speaker, "FEMALE" if agree == "fs" else "MALE", plural=False)


def _because(speaker: Speaker) -> Node:
    form = speaker.pick(["because", "when", "after", "while"])
    return Node(form, form, "SCONJ")


def _after_comma(node: Node) -> Node:
    return node.led_by("punct", Node(",", ",", "PUNCT"))


if __name__ == "__main__":
    sys.stdout.write(controlled_corpus())
