"""Controlled English: sentences whose trees and references are known because they are built.

    python data/corpora/make.py > data/corpora/controlled.conllu

Every construction leaves a simple habit at a loss: between a verb and its subject stand nouns of
the other number, between a noun and its determiner adjectives, and before a pronoun two people of
whom it can mean only one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from headscope.stimuli.word_lists import (
    FEMALE,
    MALE,
    MEN,
    NEAR,
    ON_PEOPLE,
    ON_THINGS,
    PEOPLE,
    PLACES,
    THINGS,
    WOMEN,
    pick,
)

DOCUMENTS, PER_DOCUMENT = 210, 8
SEED = 11


def _words(text: str) -> list[str]:
    return text.split()


MATERIALS = _words("stone wood glass iron silver copper leather paper brass clay")
ADJECTIVES = _words(
    "old young small large heavy light broken clean dirty dark bright quiet new strange green red "
    "white blue round long short thin warm cold pretty plain cheap famous tired lonely cheerful "
    "honest brave proud gentle clever"
)
OF_THINGS = frozenset(
    _words(
        "small large heavy light broken clean dirty dark bright new strange green red white blue "
        "round long short thin warm cold plain cheap old"
    )
)
OF_PEOPLE = frozenset(
    _words(
        "old young small quiet strange famous tired lonely cheerful honest brave proud gentle "
        "clever pretty short"
    )
)
GIVING = _words(
    "give/gives/gave/given show/shows/showed/shown send/sends/sent/sent lend/lends/lent/lent "
    "offer/offers/offered/offered"
)
PLANNING = _words(
    "try/tries/tried/tried promise/promises/promised/promised hope/hopes/hoped/hoped "
    "refuse/refuses/refused/refused decide/decides/decided/decided"
)
SAYING = _words(
    "say/says/said/said think/thinks/thought/thought believe/believes/believed/believed "
    "know/knows/knew/known"
)
HOW_OFTEN = _words("often always never soon still rarely")
MANNERS = _words("quickly quietly carefully gladly slowly")
TIMES = _words("yesterday today later once afterwards sometimes")
NUMBERS = _words("two three four five six seven ten twelve")
MODALS = _words("will can must should may could would might")

WORDS = frozenset(
    part
    for deck in (
        WOMEN, MEN, FEMALE, MALE, PEOPLE, THINGS, PLACES, MATERIALS, ADJECTIVES, ON_THINGS,
        ON_PEOPLE, GIVING, PLANNING, SAYING, HOW_OFTEN, MANNERS, TIMES, NEAR, NUMBERS, MODALS,
    )
    for entry in deck
    for part in entry.split("/")
)  # fmt: skip
"""Every content word in every form."""

SHE = {"nominative": "she", "accusative": "her", "possessive": "her"}
HE = {"nominative": "he", "accusative": "him", "possessive": "his"}
IT = {"nominative": "it", "accusative": "it", "possessive": "its"}
THEY = {"nominative": "they", "accusative": "them", "possessive": "their"}
PRONOUNS = {"fs": SHE, "ms": HE, "ns": IT, "p": THEY}


@dataclass(eq=False)
class Node:
    """A word with its dependents: `before` and `after` it, each with its UD relation.

    `outside` holds what stands before the word's mention and is no part of it: a preposition, a
    conjunction, a comma.
    """

    form: str
    lemma: str
    upos: str
    feats: str = "_"
    before: list[tuple[str, Node]] = field(default_factory=list)
    after: list[tuple[str, Node]] = field(default_factory=list)
    outside: list[tuple[str, Node]] = field(default_factory=list)
    entity: str | None = None
    """Id, type and agreement of the entity that the word with all its dependents refers to."""

    def add(self, deprel: str, *nodes: Node) -> Node:
        """Put dependents after the word; the word itself, for chaining."""
        self.after.extend((deprel, node) for node in nodes)
        return self

    def put(self, deprel: str, *nodes: Node) -> Node:
        """Put dependents before the word, the last one next to it."""
        self.before.extend((deprel, node) for node in nodes)
        return self

    def led_by(self, deprel: str, node: Node) -> Node:
        """Put a word before the mention: a preposition, a conjunction or a comma."""
        self.outside.append((deprel, node))
        return self


def write_sentence(root: Node, name: str, *, paragraph: bool) -> str:
    """One sentence as CoNLL-U lines, its first letter in upper case, with a full stop."""
    root.add("punct", Node(".", ".", "PUNCT"))
    words: list[Node] = []
    links: dict[Node, tuple[str, Node | None]] = {root: ("root", None)}
    opens: dict[Node, list[str]] = {}
    closes: dict[Node, list[str]] = {}

    def walk(node: Node) -> None:
        for deprel, child in node.outside:
            links[child] = (deprel, node)
            walk(child)
        first = len(words)
        for deprel, child in node.before:
            links[child] = (deprel, node)
            walk(child)
        words.append(node)
        for deprel, child in node.after:
            links[child] = (deprel, node)
            walk(child)
        if node.entity:
            opens.setdefault(words[first], []).insert(0, node.entity)
            closes.setdefault(words[-1], []).append(node.entity)

    walk(root)
    spaces = [not _joins(right) for right in words[1:]] + [True]
    forms = [w.form[0].upper() + w.form[1:] if i == 0 else w.form for i, w in enumerate(words)]
    number = {node: i for i, node in enumerate(words, 1)}
    text = "".join(form + " " * space for form, space in zip(forms, spaces, strict=True)).rstrip()
    lines = ["# newpar"] if paragraph else []
    lines += [f"# sent_id = {name}", f"# text = {text}"]
    for node, form, space in zip(words, forms, spaces, strict=True):
        deprel, head = links[node]
        misc = []
        if marks := _brackets(opens.get(node, []), closes.get(node, [])):
            misc.append(f"Entity={marks}")
        if not space:
            misc.append("SpaceAfter=No")
        columns = [
            str(number[node]),
            form,
            node.lemma,
            node.upos,
            "_",
            node.feats,
            str(number[head]) if head else "0",
            deprel,
            "_",
            "|".join(misc) or "_",
        ]
        lines.append("\t".join(columns))
    return "\n".join(lines) + "\n"


def _joins(word: Node) -> bool:
    """True if no space comes before the word: punctuation and the possessive."""
    return word.upos == "PUNCT" or (word.upos == "PART" and word.form != "to")


def _brackets(opened: list[str], closed: list[str]) -> str:
    both = [entity for entity in opened if entity in closed]
    longer = "".join(f"({entity}" for entity in opened if entity not in both)
    ended = [entity.split("-")[0] + ")" for entity in closed if entity not in both]
    return longer + "".join(f"({entity})" for entity in both) + "".join(ended)


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
            cards = self.decks[deck] = list(self.rng.permutation(globals()[deck]))
        return str(cards.pop())

    def pick(self, words: Sequence[str]) -> str:
        """Any of the words."""
        return pick(self.rng, words)

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
        number = speaker.pick(NUMBERS)
        inner.append(("nummod", Node(number, number, "NUM", "NumType=Card")))
    fitting = OF_PEOPLE if kind == "person" else OF_THINGS
    picked_adjectives: list[str] = []
    while speaker.chance(adjectives) and len(picked_adjectives) < 2:
        word = speaker.pick([a for a in ADJECTIVES if a in fitting and a not in picked_adjectives])
        picked_adjectives.append(word)
        inner.append(("amod", Node(word, word, "ADJ", "Degree=Pos")))
    if kind != "person" and speaker.chance(adjectives / 2):
        material = speaker.pick(MATERIALS)
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
    form = preposition or speaker.pick(NEAR)
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
        modal = speaker.pick(MODALS)
        node.put("aux", Node(modal, modal, "AUX", "VerbForm=Fin"))
    for adverbs in (HOW_OFTEN, MANNERS):
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
    form = PRONOUNS[agree][case]
    lemma = PRONOUNS[agree]["nominative"]
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


def attractors(speaker: Speaker) -> Node:
    """The guards near the old cabinet behind the door often open these boxes."""
    subject = placed(speaker, person(speaker), attractors=0.75)
    return _acts(speaker, subject, _object_noun(speaker), tense="present")


def states(speaker: Speaker) -> Node:
    """The letters under the old lamp are still dirty."""
    subject = placed(speaker, noun(speaker, "THINGS"), attractors=0.8)
    word = speaker.pick([a for a in ADJECTIVES if a in OF_THINGS])
    node = Node(word, word, "ADJ", "Degree=Pos")
    many = subject.feats == "Number=Plur"
    past = speaker.chance(0.4)
    form = ("were" if many else "was") if past else ("are" if many else "is")
    node.put("nsubj", subject).put("cop", Node(form, "be", "AUX", "VerbForm=Fin"))
    if speaker.chance(0.4):
        node.put("advmod", adverb(speaker, HOW_OFTEN))
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
    modal = speaker.pick(MODALS)
    node.put("aux", Node(modal, modal, "AUX", "VerbForm=Fin"))
    if speaker.chance(0.5):
        node.put("advmod", adverb(speaker, HOW_OFTEN))
    node.put("aux:pass", Node("be", "be", "AUX", "VerbForm=Inf"))
    if speaker.chance(0.4):
        node.put("advmod", adverb(speaker, MANNERS))
    return node.add("obl", prepositional(speaker, person(speaker), "by"))


def giving(speaker: Speaker) -> Node:
    """Yesterday the nurse gave the tired soldier a warm blanket."""
    subject = placed(speaker, person(speaker), attractors=0.4, at_most=1)
    node = predicate(speaker, "GIVING", subject, "past")
    node.before.insert(0, ("nsubj", subject))
    if speaker.chance(0.5):
        time = speaker.pick(TIMES)
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
