"""Small treebanks made by hand in the manner of Parallel UD: the same documents in each language.

Every sentence has a subject, an object and up to two other noun phrases. Word orders differ, and no
language tells by place alone which noun is the object: Japanese marks it by a particle before a
verb at the end, Arabic's verb stands first, Chinese and Japanese write no spaces, French and Arabic
join words into tokens that do not spell them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

NOUNS = {
    "ar": "ولد رجل معلم كلب باب بيت كتاب قمر شارع مكتب",
    "en": "boy man teacher dog door house book moon street desk",
    "fr": "garçon monsieur professeur chien portail village livre jardin chemin bureau",
    "ja": "学生 先生 医者 犬 門 家 本 月 道 机",
    "zh": "学生 老师 医生 狗 门 房子 书 月亮 街道 桌子",
}
VERBS = {
    "ar": "رأى وجد حمل رسم ترك",
    "en": "sees finds carries draws leaves",
    "fr": "voit trouve porte dessine laisse",
    "ja": "見る 探す 運ぶ 描く 残す",
    "zh": "看见 找到 搬走 画好 留下",
}
LANGUAGES = tuple(NOUNS)


class Word(NamedTuple):
    """A word; `head` is its governor's place in the sentence, −1 of the root."""

    form: str
    upos: str
    head: int
    deprel: str
    joined: str = ""
    """The token that it begins together with the next word; they do not spell it."""
    glued: bool = False
    """True if no space comes after it."""


class Said(NamedTuple):
    """Content of a sentence: numbers of nouns and of a verb, and an order drawn for it."""

    subject: int
    object: int
    others: tuple[int, ...]
    verb: int
    order: tuple[float, float, float, float]


Speak = Callable[[Said], list[Word]]


def _phrases(said: Said, marks: dict[str, str]) -> list[tuple[str, int, str]]:
    """Role, noun and mark of each phrase, in the order drawn."""
    roles = [("nsubj", said.subject), ("obj", said.object)]
    roles += [("obl", each) for each in said.others]
    found = [(role, noun, marks.get(role, "")) for role, noun in roles]
    order = sorted(range(len(found)), key=lambda place: said.order[place])
    return [found[place] for place in order]


def japanese(said: Said) -> list[Word]:
    """Phrases in any order, each noun with its particle, then the verb; no spaces."""
    nouns, verbs = NOUNS["ja"].split(), VERBS["ja"].split()
    phrases = _phrases(said, {"nsubj": "が", "obj": "を", "obl": "で"})
    verb, words = 2 * len(phrases), []
    for role, noun, mark in phrases:
        words.append(Word(nouns[noun], "NOUN", verb, role, glued=True))
        words.append(Word(mark, "ADP", len(words) - 1, "case", glued=True))
    return [
        *words,
        Word(verbs[said.verb], "VERB", -1, "root", glued=True),
        Word("。", "PUNCT", verb, "punct", glued=True),
    ]


def chinese(said: Said) -> list[Word]:
    """Places before or after the subject, the verb, the object; no spaces."""
    nouns, verbs = NOUNS["zh"].split(), VERBS["zh"].split()
    phrases = [each for each in _phrases(said, {}) if each[0] != "obj"]
    verb = sum(3 if role == "obl" else 1 for role, _, _ in phrases)
    words: list[Word] = []
    for role, noun, _ in phrases:
        if role == "obl":
            words.append(Word("在", "ADP", len(words) + 1, "case", glued=True))
        words.append(Word(nouns[noun], "NOUN", verb, role, glued=True))
        if role == "obl":
            words.append(Word("里", "ADP", len(words) - 1, "case", glued=True))
    words.append(Word(verbs[said.verb], "VERB", -1, "root", glued=True))
    words.append(Word(nouns[said.object], "NOUN", verb, "obj", glued=True))
    return [*words, Word("。", "PUNCT", verb, "punct", glued=True)]


def english(said: Said) -> list[Word]:
    """A place, the subject, a place of its own, the verb, the object; either place may lack."""
    return _with_article(said, "en", "the", ("near", "of"), joined={})


def french(said: Said) -> list[Word]:
    """English order, with "du" for "de le"."""
    return _with_article(said, "fr", "le", ("devant", "de"), joined={"de": "du"})


def _with_article(
    said: Said, language: str, article: str, marks: tuple[str, str], joined: dict[str, str]
) -> list[Word]:
    nouns, verbs = NOUNS[language].split(), VERBS[language].split()
    fronted = [each for each, place in zip(said.others, said.order, strict=False) if place < 0.5]
    own = [each for each in said.others if each not in fronted]
    verb, words = 2 + 3 * len(said.others), list[Word]()

    def phrase(noun: int, mark: str, head: int, deprel: str) -> None:
        place = len(words) + 2
        words.append(Word(mark, "ADP", place, "case", joined=joined.get(mark, "")))
        words.append(Word(article, "DET", place, "det"))
        words.append(Word(nouns[noun], "NOUN", head, deprel))

    for noun in fronted:
        phrase(noun, marks[0], verb, "obl")
    subject = len(words) + 1
    words.append(Word(article, "DET", subject, "det"))
    words.append(Word(nouns[said.subject], "NOUN", verb, "nsubj"))
    for noun in own:
        phrase(noun, marks[1], subject, "nmod")
    words.append(Word(verbs[said.verb], "VERB", -1, "root"))
    words.append(Word(article, "DET", verb + 2, "det"))
    words.append(Word(nouns[said.object], "NOUN", verb, "obj", glued=True))
    return [*words, Word(".", "PUNCT", verb, "punct")]


def arabic(said: Said) -> list[Word]:
    """The verb, then phrases in any order; "in the" is one token with its noun's article."""
    nouns, verbs = NOUNS["ar"].split(), VERBS["ar"].split()
    words = [Word(verbs[said.verb], "VERB", -1, "root")]
    for role, noun, mark in _phrases(said, {"obl": "ل"}):
        if mark:
            words.append(Word(mark, "ADP", len(words) + 1, "case", joined=f"لل{nouns[noun]}"))
        words.append(Word(f"ال{nouns[noun]}", "NOUN", 0, role))
    last = words.pop()
    return [*words, last._replace(glued=True), Word("۔", "PUNCT", 0, "punct")]


SPEAK: dict[str, Speak] = {
    "ar": arabic,
    "en": english,
    "fr": french,
    "ja": japanese,
    "zh": chinese,
}


def said(documents: int, sentences: int = 8, seed: int = 0) -> list[list[Said]]:
    """Content of documents, the same in every language."""
    rng = random.Random(seed)
    found = []
    for _ in range(documents):
        own = []
        for _ in range(sentences):
            nouns = rng.sample(range(10), 4)
            others = tuple(nouns[2 : 2 + rng.randint(0, 2)])
            order = (rng.random(), rng.random(), rng.random(), rng.random())
            own.append(Said(nouns[0], nouns[1], others, rng.randrange(5), order))
        found.append(own)
    return found


def rows(words: Sequence[Word]) -> list[str]:
    """The CoNLL-U rows of a sentence."""
    found = []
    for place, word in enumerate(words):
        if word.joined:
            found.append(f"{place + 1}-{place + 2}\t{word.joined}" + "\t_" * 8)
        head = 0 if word.head < 0 else word.head + 1
        misc = "SpaceAfter=No" if word.glued else "_"
        found.append(
            f"{place + 1}\t{word.form}\t{word.form}\t{word.upos}\t_\t_"
            f"\t{head}\t{word.deprel}\t_\t{misc}"
        )
    return found


def treebank(language: str, documents: int = 24, **how: int) -> str:
    """A language's treebank as CoNLL-U."""
    lines = []
    for number, document in enumerate(said(documents, **how)):
        lines.append(f"# newdoc id = n{number:05}")
        for place, each in enumerate(document):
            lines.append(f"# sent_id = n{number:05}{place:03}")
            lines += [*rows(SPEAK[language](each)), ""]
    return "\n".join(lines) + "\n"


def save_treebanks(folder: Path, languages: Sequence[str] = LANGUAGES, **how: int) -> Path:
    """A folder of treebanks with the names that Parallel UD gives them."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        path = folder / f"{language}_pud-ud-test.conllu"
        path.write_text(treebank(language, **how), encoding="utf-8")
    return folder
