"""Text that is known to be English, whatever its file is called."""

from __future__ import annotations

import random

import pytest

import headscope as hs
from headscope.corpus.language import STRETCH, Language
from headscope.corpus.python_files import read_python
from headscope.corpus.read import read_corpus
from headscope.corpus.shipped import named_corpora
from headscope.corpus.text import read_text
from headscope.errors import ArgumentError
from tests.helpers.prose import mini_tokenizer
from tests.helpers.shared import pud, shared_data

ENGLISH = """
The keeper of the lighthouse had been alone on the island for most of the winter, and when the
first boat came in March he could not find the words that he had saved for it. The men who rowed
it laughed and gave him bread, a newspaper and three letters from his sister. She wrote that the
harbour would be closed because of the war, that their mother was well, and that he should come
home with the boat if there was someone who would look after the lamp. He read this twice. Then he
asked them what was said in the town about the lamp, and the oldest of the men answered that
nobody had spoken of it.
"""
GERMAN = """
Der Wärter des Leuchtturms war den größten Teil des Winters allein auf der Insel gewesen, und als
im März das erste Boot kam, fand er die Worte nicht, die er dafür aufgehoben hatte. Die Männer,
die es ruderten, lachten und gaben ihm Brot, eine Zeitung und drei Briefe von seiner Schwester.
Sie schrieb, dass der Hafen wegen des Krieges geschlossen werde, dass es der Mutter gut gehe und
dass er mit dem Boot nach Hause kommen solle, wenn jemand da sei, der nach der Lampe sehe. Er las
es zweimal. Dann fragte er sie, was man in der Stadt über die Lampe sage, und der älteste der
Männer antwortete, dass niemand davon gesprochen habe.
"""
DUTCH = """
De wachter van de vuurtoren was het grootste deel van de winter alleen op het eiland geweest, en
toen in maart de eerste boot kwam, kon hij de woorden niet vinden die hij daarvoor had bewaard. Of
het aan de kou lag of aan de stilte, dat is niet bekend. Het is een verhaal dat in de stad nog
wordt verteld, en wie het hoort, is verbaasd: de man was beleefd, hij gaf de mannen brood en vroeg
of er brieven waren, maar over de lamp heeft hij geen woord gezegd.
"""
EARLY_MODERN = """
In the beginning God created the heaven and the earth. And the earth was without form, and void;
and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the
waters. And God said, Let there be light: and there was light. And God saw the light, that it was
good: and God divided the light from the darkness. Shall I compare thee to a summer's day? Thou
art more lovely and more temperate: rough winds do shake the darling buds of May, and summer's
lease hath all too short a date.
"""
SCOTS = """
Wee, sleekit, cowrin, tim'rous beastie, O, what a panic's in thy breastie! Thou need na start awa
sae hasty, wi' bickering brattle! I wad be laith to rin an' chase thee, wi' murd'ring pattle! I'm
truly sorry man's dominion has broken Nature's social union, an' justifies that ill opinion which
makes thee startle at me, thy poor, earth-born companion, an' fellow-mortal!
"""
CODE = '''
def mean_of_the_values(values, weights=None):
    """The mean of the values, which is not defined for an empty list of them."""
    if weights is None and values:  # all of the values have the same weight
        return sum(value for value in values) / len(values)
    return sum(value * weight for value, weight in zip(values, weights)) / sum(weights)
'''


def with_typos(text: str) -> str:
    """A text in which one word in four has two letters swapped."""
    rng, words = random.Random(0), text.split()
    for number in rng.sample(range(len(words)), len(words) // 4):
        word = words[number]
        at = rng.randrange(max(1, len(word) - 1))
        words[number] = word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
    return " ".join(words)


def language_of(*texts: str) -> Language:
    language = Language()
    for text in texts:
        language.add(read_text("text", text))
    return language


@pytest.mark.parametrize(
    ("text", "is_english"),
    [
        (ENGLISH, True),
        (ENGLISH.upper(), True),
        (with_typos(ENGLISH), True),
        (EARLY_MODERN, True),
        (SCOTS, True),
        (GERMAN, False),
        (GERMAN.upper(), False),
        (DUTCH, False),
        (" ".join(ENGLISH.split()[: STRETCH - 3]), False),
        ("1984 + 17 = 2001; " * 100, False),
    ],
)
def test_the_words_of_a_text_show_whether_it_is_english(text, is_english):
    language = language_of(text)
    assert language.is_english is is_english
    assert bool(language.notes) is not is_english


@pytest.mark.parametrize(
    "texts",
    [
        (ENGLISH, GERMAN),
        (GERMAN, ENGLISH),
        (ENGLISH + GERMAN,),
        [
            half
            for pair in zip(*(t.split(".") for t in (ENGLISH, GERMAN)), strict=False)
            for half in pair
        ],
        (ENGLISH, ENGLISH, ENGLISH, DUTCH),
    ],
    ids=["two documents", "German first", "one document", "by sentence", "one of four"],
)
def test_text_that_is_english_in_part_is_not_known_to_be_english(texts):
    assert not language_of(*[text for text in texts if text.strip()]).is_english


def test_a_few_words_of_another_language_do_not_count():
    assert language_of(*[ENGLISH] * 10, GERMAN).is_english


def test_code_is_in_no_language_though_its_comments_are_english(tmp_path):
    language = Language()
    for number in range(8):
        language.add(read_python(tmp_path / f"mean{number}.py", CODE))
    assert language_of(*[CODE.partition('"""')[2]] * 8).english
    assert (language.english, language.is_english) == (0, False)
    # windows of it are, too
    (tmp_path / "mean.py").write_text(CODE * 4, encoding="utf-8")
    by_window = Language()
    for window in hs.windows(tmp_path / "mean.py", mini_tokenizer()):
        by_window.add_window(window)
    assert by_window.stretches > 3
    assert not by_window.english


def test_the_texts_that_ship_are_english():
    for name in named_corpora():
        language = Language()
        for document in read_corpus(name):
            language.add(document)
        assert language.is_english, name


def test_windows_show_the_language_of_their_documents():
    for corpus in ("gold", *((pud("de"),) if pud("de") else ())):
        by_window, by_document = Language(), Language()
        for window in hs.windows(corpus, mini_tokenizer(), max_tokens=3_000):
            by_window.add_window(window)
        for document in read_corpus(corpus)[:20]:
            by_document.add(document)
        assert by_window.stretches > 20
        assert by_window.is_english is by_document.is_english is (corpus == "gold")


@pytest.mark.parametrize("text", [ENGLISH, GERMAN])
def test_a_stated_language_comes_before_the_text(text):
    for stated in ("en", "de"):
        language = Language(stated)
        language.add(read_text("text", text))
        assert language.is_english is (stated == "en")
        assert language.record["stated"] == stated


@pytest.mark.parametrize("language", ["english", "e", "", "de,en", "en_", "日本語"])
def test_a_language_is_a_code(language):
    with pytest.raises(ArgumentError, match="language"):
        hs.classify("mini", language=language)


@shared_data
@pytest.mark.parametrize("language", ["ar", "de", "en", "es", "fi", "fr", "ja", "pt", "ru", "zh"])
def test_text_of_ten_languages_is_told_from_its_first_and_from_other_words(language):
    documents = read_corpus(pud(language))
    words = " ".join(document.text for document in documents).split()
    for start in range(0, len(words) - 500, 500):
        assert language_of(" ".join(words[start : start + 500])).is_english is (language == "en")
