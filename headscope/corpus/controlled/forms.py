"""Words with the words that are related to them, for what heads' weights make of a word.

Each word comes with its rivals too: other forms of it, which a head raises that raises whatever
belongs to the word. The lists were written here, but for antonyms and kinds (`word_pairs.csv`).
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.lists import CYCLIC, IN_ORDER
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
    """What each rival of a word is."""


_ADJECTIVES = (
    "big/bigger/biggest small/smaller/smallest tall/taller/tallest short/shorter/shortest "
    "long/longer/longest fast/faster/fastest slow/slower/slowest old/older/oldest "
    "young/younger/youngest high/higher/highest low/lower/lowest strong/stronger/strongest "
    "weak/weaker/weakest warm/warmer/warmest cold/colder/coldest light/lighter/lightest "
    "dark/darker/darkest hard/harder/hardest soft/softer/softest deep/deeper/deepest "
    "wide/wider/widest rich/richer/richest poor/poorer/poorest cheap/cheaper/cheapest "
    "clean/cleaner/cleanest thick/thicker/thickest thin/thinner/thinnest close/closer/closest "
    "great/greater/greatest late/later/latest early/earlier/earliest easy/easier/easiest "
    "happy/happier/happiest heavy/heavier/heaviest large/larger/largest near/nearer/nearest "
    "new/newer/newest safe/safer/safest simple/simpler/simplest smart/smarter/smartest "
    "broad/broader/broadest tight/tighter/tightest bright/brighter/brightest "
    "few/fewer/fewest fine/finer/finest hot/hotter/hottest loud/louder/loudest "
    "nice/nicer/nicest quick/quicker/quickest steep/steeper/steepest tough/tougher/toughest "
    "good/better/best bad/worse/worst"
)
_VERBS = (
    "go/went/going take/took/taking see/saw/seeing give/gave/giving come/came/coming "
    "make/made/making find/found/finding think/thought/thinking know/knew/knowing "
    "say/said/saying tell/told/telling write/wrote/writing speak/spoke/speaking "
    "bring/brought/bringing buy/bought/buying fall/fell/falling feel/felt/feeling "
    "hold/held/holding keep/kept/keeping leave/left/leaving lose/lost/losing meet/met/meeting "
    "run/ran/running sell/sold/selling send/sent/sending sit/sat/sitting sleep/slept/sleeping "
    "stand/stood/standing teach/taught/teaching win/won/winning begin/began/beginning "
    "break/broke/breaking choose/chose/choosing draw/drew/drawing drive/drove/driving "
    "eat/ate/eating fly/flew/flying grow/grew/growing throw/threw/throwing wear/wore/wearing "
    "ask/asked/asking call/called/calling help/helped/helping look/looked/looking "
    "move/moved/moving open/opened/opening play/played/playing start/started/starting "
    "turn/turned/turning use/used/using walk/walked/walking want/wanted/wanting "
    "work/worked/working build/built/building pay/paid/paying lead/led/leading"
)
_COUNTRIES = (
    "France/Paris/French England/London/English Italy/Rome/Italian Germany/Berlin/German "
    "Spain/Madrid/Spanish Austria/Vienna/Austrian Russia/Moscow/Russian Japan/Tokyo/Japanese "
    "Ireland/Dublin/Irish Greece/Athens/Greek Egypt/Cairo/Egyptian China/Beijing/Chinese "
    "Poland/Warsaw/Polish Norway/Oslo/Norwegian Sweden/Stockholm/Swedish "
    "Portugal/Lisbon/Portuguese Cuba/Havana/Cuban Iran/Tehran/Iranian Iraq/Baghdad/Iraqi "
    "Kenya/Nairobi/Kenyan Peru/Lima/Peruvian Hungary/Budapest/Hungarian "
    "Finland/Helsinki/Finnish Turkey/Ankara/Turkish Syria/Damascus/Syrian "
    "Lebanon/Beirut/Lebanese Afghanistan/Kabul/Afghan Denmark/Copenhagen/Danish "
    "Belgium/Brussels/Belgian Canada/Ottawa/Canadian "
    "Australia/Canberra/Australian Vietnam/Hanoi/Vietnamese Thailand/Bangkok/Thai "
    " Jordan/Amman/Jordanian Romania/Bucharest/Romanian "
    "Serbia/Belgrade/Serbian Scotland/Edinburgh/Scottish Wales/Cardiff/Welsh"
)
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
    adjectives, verbs, countries, genders = (
        [entry.split("/") for entry in text.split()]
        for text in (_ADJECTIVES, _VERBS, _COUNTRIES, _GENDERS)
    )
    plurals = dict(entry.split("/")[:2] for entry in _PLURALS)
    return {
        "antonym": WordRelation("a word's opposite", _antonyms()),
        "capital": _form("a country's capital", countries, 1, 2, "its people"),
        "comparative": _form("an adjective's comparative", adjectives, 1, 2, "its superlative"),
        "gender": WordRelation("the female form", tuple(FormQuestion(a, (b,)) for a, b in genders)),
        "kind": WordRelation("the kind of a thing", _kinds()),
        "past": _form("a verb's past tense", verbs, 1, 2, "its -ing form"),
        "people": _form("a country's people or language", countries, 2, 1, "its capital"),
        "plural": WordRelation(
            "the plural", tuple(FormQuestion(a, (b,)) for a, b in plurals.items())
        ),
        "successor": WordRelation(
            "what comes next in a list", _successors(), ("what comes before",)
        ),
        "superlative": _form("an adjective's superlative", adjectives, 2, 1, "its comparative"),
    }


def _form(meaning: str, rows: list[list[str]], right: int, rival: int, name: str) -> WordRelation:
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
    """Nouns, each with all that the list says it is."""
    kinds: dict[str, list[str]] = {}
    for pair in shipped_pairs().pairs:
        if pair.relation == "hypernym" and pair.upos == "NOUN":
            kinds.setdefault(pair.first, []).append(pair.second)
    return tuple(FormQuestion(word, tuple(right)) for word, right in kinds.items())


def _successors() -> tuple[FormQuestion, ...]:
    """Members of lists that have one before and one behind them."""
    questions = []
    for name, members in IN_ORDER.items():
        around = (members[-1], *members, members[0]) if name in CYCLIC else members
        before = {b: a for a, b in pairwise(around)}
        after = dict(pairwise(around))
        inner = [word for word in members if word in before and word in after]
        questions += [FormQuestion(word, (after[word],), (before[word],)) for word in inner]
    return tuple(questions)
