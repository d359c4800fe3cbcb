from __future__ import annotations

from pathlib import Path

import pytest

from headscope import read_corpus
from headscope.errors import CorpusError
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.prose import mini_tokenizer
from tests.helpers.texts import SENTENCES


def read(tmp_path: Path, text: str | bytes) -> list:
    path = tmp_path / "file.conllu"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_corpus(path)


def test_the_text_is_rebuilt_and_mentions_carry_their_entity_and_head(keys_file):
    (document,) = read_corpus(keys_file)
    assert document.text == (
        'Anna told Maria that she couldn\'t find the old keys. "They were here," said Maria.'
    )
    found = [(m.entity, m.first, m.last, document.words[m.head].form) for m in document.mentions]
    assert found == [
        ("e1", 0, 0, "Anna"),
        ("e2", 2, 2, "Maria"),
        ("e1", 4, 4, "she"),
        ("e3", 8, 10, "keys"),
        ("e3", 13, 13, "They"),
        ("e2", 19, 19, "Maria"),
    ]


def test_parts_that_do_not_spell_their_token_share_its_characters(tmp_path):
    rows = [
        "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_",
        "2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_",
        "3\tpain\tpain\tNOUN\t_\t_\t0\troot\t_\t_",
    ]
    (document,) = read(tmp_path, "\n".join(rows) + "\n")
    assert document.text == "du pain"
    assert [(w.start, w.end) for w in document.words] == [(0, 2), (0, 2), (3, 7)]


def test_empty_nodes_paragraphs_and_documents(tmp_path):
    text = (
        "# newdoc id = one\n1\tYes\tyes\tINTJ\t_\t_\t0\troot\t_\t_\n"
        "1.1\tit\tit\tPRON\t_\t_\t_\t_\t_\t_\n\n"
        "# newpar\n1\tNo\tno\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
        "# newdoc id = two\n1\tOh\toh\tINTJ\t_\t_\t0\troot\t_\t_\n"
    )
    documents = read(tmp_path, text)
    assert [(d.name, d.text) for d in documents] == [("one", "Yes\nNo"), ("two", "Oh")]


def sentences(*comments: str) -> str:
    return "".join(f"{c}\n1\tOh\toh\tINTJ\t_\t_\t0\troot\t_\t_\n\n" for c in comments)


@pytest.mark.parametrize(
    ("comments", "documents"),
    [
        # an id that is repeated before every sentence, as in Parallel UD's Chinese and Arabic
        (("# newdoc id = a", "# newdoc id = a", "# newdoc id = b"), [("a", 2), ("b", 1)]),
        (("# newdoc", "# newdoc", "# sent_id = x001"), [("file", 1), ("file", 2)]),
        # no newdoc: all but the last three digits of a sentence's id, where that repeats
        (
            ("# sent_id = n01012", "# sent_id = n01013", "# sent_id = n02001", ""),
            [("n01", 2), ("n02", 2)],
        ),
        # ids of Parallel UD: sentences are left out, and numbers start again without a 1
        (
            (
                "# sent_id = n01001011",
                "# sent_id = n01001013",
                "# sent_id = n01002017",
                "# sent_id = n01002103",
                "# sent_id = w01001049",
                "# sent_id = w02001041",
            ),
            [("n01001", 2), ("n01002", 2), ("w01001", 1), ("w02001", 1)],
        ),
        (("# sent_id = a1", "# sent_id = b2"), [("file", 2)]),
        (("# sent_id = s-001", "# sent_id = s-002"), [("file", 2)]),
        # a file that marks documents is not read by the ids of its sentences
        (
            ("# newdoc id = a\n# sent_id = n01012", "# sent_id = n01013", "# sent_id = n02001"),
            [("a", 3)],
        ),
    ],
)
def test_sentences_belong_to_documents_by_newdoc_or_by_their_ids(tmp_path, comments, documents):
    text = sentences(*comments)
    if "" in comments:  # no empty line between two sentences
        text = text.replace("\n\n\n", "\n\n")
    read_documents = read(tmp_path, text)
    assert [(d.name, len(d.words)) for d in read_documents] == documents


# a counter that runs through the file is no name of a document, whatever its width
@pytest.mark.parametrize(
    "ids",
    [
        [f"train-s{n}" for n in range(1, 401)],  # of GSD
        [str(n) for n in range(990, 2012)],
        [f"{n:05}" for n in range(1, 2501)],
        [f"dev-s{n:04}" for n in range(900, 1100, 7)],  # a part of a treebank
        [f"x{n % 3}{n:03}" for n in range(1, 31)],  # no document is a stretch of its own
        ["a001", "a002", "b1001", "b1002"],
    ],
)
def test_ids_that_count_through_a_file_show_no_documents(tmp_path, ids):
    text = sentences(*(f"# sent_id = {name}" for name in ids))
    assert [(d.name, len(d.words)) for d in read(tmp_path, text)] == [("file", len(ids))]


@pytest.mark.parametrize(
    ("entities", "mentions"),
    [
        # a discontinuous mention is counted and left out
        (["(e1[1/2]-event)", "(e2-object)", "(e1[2/2]-event)"], [("e2", 1, 1)]),
        (["(e2-person(e1-person)", "e2)"], [("e2", 0, 1), ("e1", 0, 0)]),
        (["(e1-thing-E=mc2)"], [("e1", 0, 0)]),
        ([""], []),
        (["_"], []),
    ],
)
def test_mentions_are_read_from_the_brackets_of_entities(tmp_path, entities, mentions):
    rows = [ROW.format(i, "a", "a", i - 1, f"Entity={own}") for i, own in enumerate(entities, 1)]
    (document,) = read(tmp_path, "".join(rows))
    assert [(m.entity, m.first, m.last) for m in document.mentions] == mentions
    assert document.skipped_mentions == (len(entities) == 3)


EMPTY = "{}\t_\t_\tPRON\t_\t_\t_\t_\t_\t{}\n"


@pytest.mark.parametrize(
    ("at_start", "at_word_1", "after_word_1", "at_word_2", "mentions", "zeros"),
    [
        ("_", "(e1-person", "e1)", "_", [("e1", 0, 0)], 0),  # it closes on an empty node
        ("_", "_", "(e1-person", "e1)", [("e1", 1, 1)], 0),  # it opens on one
        ("(e1-person", "_", "_", "e1)", [("e1", 0, 1)], 0),
        ("_", "(e1-person", "(e2)", "e1)", [("e1", 0, 1)], 1),  # a zero inside a mention
        ("(e1)", "(e2)", "(e1)", "(e2)", [("e2", 0, 0), ("e2", 1, 1)], 2),
        ("(e1(e2-person", "e2)", "e1)", "_", [("e2", 0, 0), ("e1", 0, 0)], 0),
        ("(e1[1/2]-person)", "_", "_", "(e1[2/2]-person)", [], 0),
    ],
)
def test_mentions_shrink_to_their_words_and_zeros_are_counted(
    tmp_path, at_start, at_word_1, after_word_1, at_word_2, mentions, zeros
):
    sentence = (
        EMPTY.format("0.1", f"Entity={at_start}")
        + ROW.format(1, "a", "a", 0, f"Entity={at_word_1}")
        + EMPTY.format("1.1", f"Entity={after_word_1}")
        + ROW.format(2, "b", "b", 1, f"Entity={at_word_2}")
    )
    path = tmp_path / "file.conllu"
    path.write_text(f"{sentence}\n{sentence}")
    (document,) = read_corpus(path)
    found = {(m.entity, m.first, m.last) for m in document.mentions}
    second = [(entity, first + 2, last + 2) for entity, first, last in mentions]
    assert found == {*mentions, *second}
    assert document.zero_mentions == 2 * zeros
    windows = TextWindows([path], mini_tokenizer(), max_tokens=99, max_length=99, seed=0)
    assert len(list(windows)) == 1
    assert any("empty nodes" in note for note in windows.notes) == (zeros > 0)


def test_crlf_and_byte_order_mark_change_nothing(tmp_path, keys_file):
    plain = read_corpus(keys_file)[0]
    marked = b"\xef\xbb\xbf" + SENTENCES.replace("\n", "\r\n").encode()
    (document,) = read(tmp_path, marked)
    assert (document.text, document.words, document.mentions) == (
        plain.text,
        plain.words,
        plain.mentions,
    )


@pytest.mark.parametrize("end", ["# sent_id = 9\n", "# newdoc id = b\n# text = Oh\n\n# x\n\n"])
def test_comments_at_the_end_of_a_treebank_are_skipped_with_a_note(tmp_path, end):
    path = tmp_path / "file.conllu"
    path.write_text(sentences("# newdoc id = a") + end)
    assert [(d.name, d.text) for d in read_corpus(path)] == [("a", "Oh")]
    windows = TextWindows([path], mini_tokenizer(), max_tokens=99, max_length=99, seed=0)
    assert len(list(windows)) == 1
    assert any("comments without a sentence skipped" in note for note in windows.notes)


# every comment and MISC attribute of Universal Dependencies that changes the text or its documents
@pytest.mark.parametrize(
    ("comment", "misc", "texts"),
    [
        ("# newpar", "_", ["a b\na b"]),
        ("#newpar=p1", "_", ["a b\na b"]),
        ("# newpar id = p1", "_", ["a b\na b"]),
        ("# newpar id = p1\n# newpar_block = p (1 s)", "_", ["a b\na b"]),
        ("# newpar_block = p (1 s)", "_", ["a b a b"]),
        ("# newpar id = p1\n", "_", ["a b\na b"]),  # above an empty line
        ("# newdoc", "_", ["a b", "a b"]),
        ("# newdoc id = d1", "_", ["a b", "a b"]),
        ("# newdoc id = d1\n# newpar id = p1", "_", ["a b", "a b"]),
        ("# x = newpar", "_", ["a b a b"]),
        ("# x", "SpaceAfter=No", ["ab ab"]),
        ("# x", "NewPar=Yes", ["a b\na b"]),
        ("# newpar", "SpacesAfter=\\s\\n|NewPar=Yes", ["a \nb\na \nb"]),
        ("# x", "SpacesAfter=\\t|NewPar=_", ["a\tb a\tb"]),
        ("# x", "SpacesAfter=\\r\\n\\u00A0", ["a\n\xa0b a\n\xa0b"]),
        ("# x", "SpacesAfter=\\u3000", ["a\u3000b a\u3000b"]),
        ("# x", "SpacesBefore=\\n\\n", ["\n\na b \n\na b"]),
        ("# x", "SpacesInToken=\\sa\\n", [" a\n b  a\n b"]),
    ],
)
def test_spaces_paragraphs_and_documents_are_as_the_file_marks_them(tmp_path, comment, misc, texts):
    rows = ROW.format(1, "a", "a", 0, misc) + ROW.format(2, "b", "b", 1, "_") + "\n"
    documents = read(tmp_path, f"{rows}{comment}\n{rows}")
    assert [d.text for d in documents] == texts
    assert all(d.text[w.start : w.end].strip() == w.form for d in documents for w in d.words)


@pytest.mark.parametrize("blank", ["\xa0", "\u3000"])
def test_a_blank_can_be_a_word(tmp_path, blank):
    rows = ROW.format(1, "a", "a", 0, "SpaceAfter=No") + ROW.format(2, blank, "_", 1, "_")
    (document,) = read(tmp_path, rows + ROW.format(3, "b", "b", 1, "_"))
    assert document.text == f"a{blank} b"
    assert [(word.start, word.end) for word in document.words] == [(0, 1), (1, 2), (3, 4)]


def test_a_paragraph_starts_at_a_multi_word_token_within_a_sentence(tmp_path):
    token = "2-3\tab" + "\t_" * 7 + "\tNewPar=Yes\n"
    rows = [ROW.format(i, form, form, i - 1, "_") for i, form in enumerate("xab", start=1)]
    assert read(tmp_path, rows[0] + token + rows[1] + rows[2])[0].text == "x\nab"


GOOD = "1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n"
TWO = "1\tGo\tgo\tVERB\t_\t_\t{}\troot\t_\t_\n2\ton\ton\tADV\t_\t_\t{}\tadvmod\t_\t{}\n"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("1\tGo\tgo\tVERB\n", ":1:", "4 columns, but CoNLL-U has 10"),
        (GOOD + "\nx\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n", ":3:", "not a valid ID"),
        (TWO.format(0, 7, "_"), ":2:", "head 7 is out of range; this sentence has words 1 to 2"),
        (GOOD.replace("1", "2", 1), ":1:", "word id 2"),
        (TWO.format(0, 1, "Entity=(e1-person"), ":2:", "brackets"),
        (TWO.format(0, 1, "Entity=e1)"), ":2:", "mention"),
        (TWO.format(0, 1, "Entity=)("), ":2:", "Entity"),
        (TWO.format(0, 1, "Entity=="), ":2:", "Entity=="),
        ("", "", "empty"),
        ("# text = nothing\n", "", "sentence"),
        (b"# caf\xe9\n" + GOOD.encode(), ":1:", "0xe9"),
        (GOOD.replace("Go", " "), ":1:", "word 1"),
        (TWO.format(0, -1, "_"), ":2:", "'-1'"),
        (TWO.format(0, 1, "SpacesAfter=No"), ":2:", "SpacesAfter=No"),
        (TWO.format(0, 1, "SpacesBefore=\\x"), ":2:", "SpacesBefore=\\x"),
        (TWO.format(0, 1, "SpacesInToken=o\\sm"), ":2:", "SpacesInToken=o\\sm"),
        ("# global.columns = ID LEMMA FORM\n" + GOOD, ":1:", "global.columns"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path, text, place, message):
    with pytest.raises(CorpusError) as error:
        read(tmp_path, text)
    assert f"file.conllu{place}" in str(error.value)
    assert message in str(error.value)


ROW = "{}\t{}\t{}\tX\t_\t_\t{}\tdep\t_\t{}\n"


def test_blanks_in_a_form_and_empty_columns_at_the_end_are_no_new_columns(tmp_path):
    rows = ROW.format(1, "10  000", "10  000", 0, "_") + ROW.format(2, "x", "_", 1, "")
    (document,) = read(tmp_path, rows + ROW.format(3, "_", "_", 1, "_"))
    assert [w.form for w in document.words] == ["10  000", "x", "_"]
    assert [w.head for w in document.words] == [-1, 0, 0]
    # an underscore is a missing lemma unless it is the word
    assert [w.lemma for w in document.words] == ["10  000", "", "_"]


@pytest.mark.parametrize("ranges", [["2-3"], ["1-2", "1-3"], ["1-4"]])
def test_ranges_must_cover_words_that_follow_and_never_overlap(tmp_path, ranges):
    rows = "".join(f"{r}\tab" + "\t_" * 8 + "\n" for r in ranges)
    words = "".join(ROW.format(i, "a", "a", i - 1, "_") for i in (1, 2, 3))
    with pytest.raises(CorpusError, match=ranges[-1]):
        read(tmp_path, rows + words)
