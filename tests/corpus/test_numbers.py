"""Which characters are a number, of which kind, and what is none."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.corpus.document import Document, Word
from headscope.corpus.read import read_corpus
from headscope.corpus.structure import with_structure
from headscope.corpus.structure.numbers import FORMS, NUMBER, numbers
from headscope.corpus.text import read_text

CASES = {
    "date": "12 May 2020|May 12, 2020|2020-05-12|12/05/2020|05/31/1999|1.2.2003|3rd June|Sept. 4|"
    "Dec 1999|21 March, 1685|May 2nd",
    "time": "10:30|23:59:59|8 pm|8:15 AM|0:05",
    "money": "$5.20|20 €|€ 3|£1,000,000|US$ 7|¥500|NZ$26",
    "percentage": "3%|4.5 %|50 percent|7 per cent",
    "ordinal": "3rd|21st|100th",
    "decimal": "5.20|1,234.5|0.001",
    "year": "1500|2099|1984",
    "count": "7|1499|2100|12,000|31415926",
}
"""What each is by itself, in a sentence without a sign."""
NONE = (
    "B12|12km|10-year|1.2.3|3/4|x2|555-1234|v2.0|5,10|a_3|#5|24:61|10:5|2020-13-01|44/44/2020|"
    "don't|May|pm 's|%|$|3x4|[7]|mp3 file|http://a.b/2020/05/1"
).split("|")
FILLERS = ["tea", "the old", "B12", "(", "so,", "x-ray", "he said:", "“", "."]


def told(text: str) -> list[tuple[str, str]]:
    return [(text[each.start : each.end], each.kind) for each in numbers(text)]


@pytest.mark.parametrize(
    ("form", "kind"), [(form, kind) for kind, own in CASES.items() for form in own.split("|")]
)
@pytest.mark.parametrize("frame", ["{}", "See {}.", "({}), so", "then “{}”; and", "a\n{}\nb"])
def test_a_number_is_of_its_kind(form, kind, frame):
    assert told(frame.format(form)) == [(form, kind)]


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_number(text):
    assert told(f"So {text} it is") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("in 1066, by 1400 and since 1200", [("1066", "year"), ("1400", "year"), ("1200", "year")]),
        ("with 1066 men", [("1066", "count")]),
        ("2020 houses", [("2020", "year")]),
        ("1914–1918", [("1914", "year"), ("1918", "year")]),
        ("12\nMay 2020", [("12", "count"), ("May 2020", "date")]),
        ("May 12 May 2020", [("12 May 2020", "date")]),
        ("2. tea\n3) milk\n  4. bread 5", [("5", "count")]),
        ("- 2 eggs", [("2", "count")]),
        ("3 per\ncent", [("3", "count")]),
        ("5, 6 and 7.", [("5", "count"), ("6", "count"), ("7", "count")]),
        ("$ 5 % more", [("$ 5", "money")]),
    ],
)
def test_what_is_ambiguous_follows_one_rule(text, found):
    assert told(text) == found


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]]]:
    """Words and numbers in turns, and the numbers; a bar between two, so that none go together."""
    parts, found = [], []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(sorted(CASES)))
        form = draw(st.sampled_from(CASES[kind].split("|")))
        parts += [draw(st.sampled_from(FILLERS)), form, "|"]
        found.append((form, kind))
    return draw(st.sampled_from([" ", "\n"])).join(parts), found


@given(texts())
def test_numbers_among_words_are_found_each_once(made):
    text, found = made
    assert told(text) == found


def slowly(text: str) -> list[tuple[int, int, str]]:
    """All pieces that are a number by themselves, of which the longest are taken first."""
    found = []
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            kinds = [kind for kind, form in FORMS if _is(form, text, start, end)]
            found += [(start - end, start, end, kinds[0])] if kinds else []
    taken: list[tuple[int, int, str]] = []
    for _, start, end, kind in sorted(found):
        if all(end <= left or right <= start for left, right, _ in taken):
            taken.append((start, end, kind))
    return sorted(taken)


def _is(form: str, text: str, start: int, end: int) -> bool:
    """Whether it has the form, and stands by itself."""
    before, after = text[:start], text[end:]
    alone = not re.search(r"(?:[\w$€£¥#@]|\w[-.,:/'’]|[$€£¥] )\Z", before)
    ends = not re.match(r"\w|[.,:/'’-]\w", after)
    marker = re.search(r"(?:^|\n)[^\S\n]*\d{0,2}\Z", before) and re.match(
        r"\d{1,3}[.)]\s", text[start:]
    )
    own = re.compile(form).match(text, start, end)
    return bool(alone and ends and not marker and own and own.end() == end)


@settings(max_examples=300)
@given(st.text("0123 5.,:/-$%€\nthB", max_size=14) | st.text("12 May0,/", max_size=18))
def test_they_are_those_of_a_slow_search(text):
    assert [tuple(each) for each in numbers(text)] == slowly(text)


@given(st.text(st.sampled_from("0129 .,:/-$%€\n\tabBMayJunpmth()_'’"), max_size=40))
def test_no_two_overlap_and_none_is_in_a_word_or_on_two_lines(text):
    found = numbers(text)
    assert all(a.end <= b.start for a, b in pairwise(found))
    for each in found:
        assert "\n" not in text[each.start : each.end]
        assert not re.search(r"\w\Z", text[: each.start])
        assert not re.match(r"\w", text[each.end :])


def asked(text: str, words: tuple[Word, ...] = ()) -> Document:
    """A text, or one of these words, with its structure."""
    return with_structure(Document("it", text, words) if words else read_text("it", text))


def pointed(document: Document) -> list[tuple[str, list[str]]]:
    words = {word.start: word.form for word in document.words}
    return [
        (words[each.query], [words[place] for place in each.right])
        for each in document.arrows
        if each.kind == NUMBER
    ]


def test_a_number_points_to_the_words_of_the_nearest_of_its_kind():
    text = "On 1 May 2001, 7 men had 3%, 8 on 2 June 2002."
    document = asked(text)
    assert pointed(document) == [("8", ["7"]), ("2002", ["1", "May", "2001"])]
    (_, last) = [each for each in document.arrows if each.kind == NUMBER]
    words = {word.start: word.form for word in document.words}
    assert [words[place] for place in last.others] == ["7", "3", "%", "8"]


def test_a_number_that_is_not_whole_words_is_left_out():
    forms = ["7", "men", "and", "8%", ",", "9"]
    text = " ".join(forms).replace(" ,", ",").replace("8%", "8 %,5")
    words = tuple(
        Word(match.group(), match.start(), match.end(), 0)
        for match in re.finditer(r"7|men|and|8 %,5|9", text)
    )
    assert pointed(asked(text, words)) == [("9", ["7"])]


def test_a_treebank_and_a_file_of_markdown_have_them(tmp_path):
    (tmp_path / "a.md").write_text("1. In 1990 with 5 men\n2. then 1991\n")
    (document,) = read_corpus(tmp_path / "a.md")
    assert pointed(document) == [("1991", ["1990"])]
    kinds = {each.kind for document in read_corpus("gum") for each in document.arrows}
    assert NUMBER in kinds


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "1," * 60_000, "5 " * 60_000, "May " * 40_000, "1:" * 60_000, "$" * 90_000]
)  # fmt: skip
def test_odd_texts_are_read_without_looking_at_all_pairs(text):
    found = with_structure(read_text("odd", text))
    assert all(len(each.others) <= 64 for each in found.arrows)
