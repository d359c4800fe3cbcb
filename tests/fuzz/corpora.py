"""Corpus files as nobody should write them, and what must hold whatever is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document
from headscope.corpus.read import read_corpus
from headscope.errors import CorpusError
from headscope.relations import relations_of
from headscope.relations.window_pairs import WindowPairs
from tests.helpers.texts import SENTENCES

LONGEST_MESSAGE = 1000
RELATIONS = relations_of(["delimiter", "syntactic", "coreference", "semantic"])

_numbers = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "-1",
        "01",
        "1-2",
        "2-1",
        "1-9",
        "2-3",
        "1.1",
        "0.1",
        "1-999999999",
        "_",
        "",
        "1e9",
        "٣",
        "9" * 10,
        "1" * 5000,
        "1-" + "2" * 5000,
        "1.",
        "-",
        "1-2-3",
        " 1",
        "1 ",
    ]
)
_words = st.one_of(
    st.sampled_from(
        [
            "a",
            "she",
            "the",
            ".",
            '"',
            "don't",
            "do",
            "n't",
            "_",
            "",
            " ",
            "a  b",
            "\u3000",
            "\x85",
            "\x0c",
            "\x00",
            "\u202e",
            "é",
            "e\u0301",
            "😀",
            "=1+1",
            "<b>",
            "a" * 300,
        ]
    ),
    st.text(max_size=6),
)
_ids = st.sampled_from(["e1", "e2", "e1[1/2]", "e1[2/2]", "", "-", "e=1", "[1/1]"])
_brackets = st.builds(
    lambda shape, entity: shape.format(entity),
    st.sampled_from(["({}-person-1)", "({}", "{})", "({})", "({}-x-y", "{}", "()", ")(", "(", ")"]),
    _ids,
)
_misc = st.one_of(
    st.sampled_from(
        ["_", "SpaceAfter=No", "SpaceAfter", "SpaceAfter=", "|", "=", "Entity", "Entity=_", ""]
    ),
    st.lists(_brackets, max_size=4).map(lambda parts: "Entity=" + "".join(parts)),
    st.lists(_brackets, max_size=2).map(
        lambda parts: f"Entity={''.join(parts)}|SpaceAfter=No|Entity="
    ),
    _words,
)
_sound_misc = st.sampled_from(["_", "SpaceAfter=No", "Entity=(e1-person)", "Entity=(e2)(e1)"])
_labels = st.sampled_from(["NOUN", "PRON", "VERB", "PROPN", "_", "", "X" * 200])
_deprels = st.sampled_from(["obj", "nsubj", "det", "flat", "nmod:poss", ":", "_", "", "conj"])
_feats = st.sampled_from(["_", "PronType=Prs", "=", "|", ""])
_comments = st.one_of(
    st.sampled_from(
        [
            "# newdoc id = d",
            "# newdoc",
            "#newdoc id=",
            "# newpar",
            "#",
            "# = =",
            "## newdoc id = x",
            "# global.Entity = eid-etype",
            "# global.Entity = etype-eid-head",
            "# global.Entity =",
            "#\t" * 9,
        ]
    ),
    st.text(max_size=8).map(lambda text: "#" + text),
)
_wild_row = st.tuples(
    _numbers, _words, _words, _labels, _words, _feats, _numbers, _deprels, _words, _misc
).map("\t".join)


@st.composite
def _sentence(draw: st.DrawFn) -> str:
    """Rows that count up, most of them sound, so that code behind the checks runs too."""
    size = draw(st.integers(1, 6))
    odd = st.integers(0, 19).map(lambda n: n == 7)  # 0 is drawn more often
    rows = []
    for i in range(1, size + 1):
        if draw(odd):
            rows.append(draw(_wild_row))
        head = draw(
            st.one_of(st.integers(0, size), _numbers) if draw(odd) else st.integers(0, i - 1)
        )
        form = draw(_words)
        columns = [
            i,
            form if form.strip() else "a",
            draw(_words),
            draw(_labels),
            "_",
            draw(_feats),
            head,
            draw(_deprels),
            "_",
            draw(_misc if draw(odd) else _sound_misc),
        ]
        rows.append("\t".join(map(str, columns)))
    return "\n".join([*draw(st.lists(_comments, max_size=2)), *rows])


_file = st.lists(_sentence(), min_size=1, max_size=4).map(lambda parts: "\n\n".join(parts) + "\n")
conllu_text = st.one_of(
    _file,
    _file,
    _file,
    st.lists(st.one_of(_wild_row, _comments, st.just("")), max_size=6).map("\n".join),
)


@st.composite
def _edited(draw: st.DrawFn, raw: bytes) -> bytes:
    """Some bytes taken out, put in or changed."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        put = draw(
            st.one_of(
                st.sampled_from([b"\t", b"\n", b"\r", b"(", b")", b"#", b"\xff", b"\0"]),
                st.binary(max_size=3),
            )
        )
        raw = raw[:at] + put + raw[at + draw(st.integers(0, 3)) :]
    return raw


_encoded = conllu_text.map(lambda text: text.encode("utf-8", "replace"))
conllu_bytes = st.one_of(
    _encoded,
    _encoded,
    _encoded,
    _edited(SENTENCES.encode()),
    st.binary(max_size=60),
)
_prose = st.text(st.sampled_from(list(".!?…\"'”’)] \n\t\r\x0b\x85\u2028aé_1😀\0-")), max_size=80)
text_bytes = st.one_of(
    _prose.map(str.encode),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=60),
)


def check_corpus_file(path: Path, raw: bytes) -> bool:
    """Read a file; whether it could be read. What cannot be is refused with its name."""
    path.write_bytes(raw)
    try:
        documents = read_corpus(path)
    except CorpusError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message) < LONGEST_MESSAGE + len(str(path))
        return False
    assert documents
    for document in documents:
        _check_document(document)
        for window in _windows(document):
            for relation in RELATIONS:
                WindowPairs(window).cells(relation, [0])
    return True


def _check_document(document: Document) -> None:
    words, place = document.words, 0
    assert words
    for word in words:
        assert 0 <= word.start < word.end <= len(document.text)
        assert word.start >= place
        assert word.form.strip()
        place = word.start
        assert word.head < 0 or words[word.head].sentence == word.sentence
    for mention in document.mentions:
        assert 0 <= mention.first <= mention.head <= mention.last < len(words)
        assert words[mention.first].sentence == words[mention.last].sentence


def _windows(document: Document) -> Iterator:
    """Windows of a tokenizer that makes a token of every other character."""
    starts = np.arange(0, len(document.text), 2)
    offsets = np.stack([starts, np.minimum(starts + 2, len(document.text))], 1)
    strings = [document.text[a:b] for a, b in offsets]
    tokenized = TokenizedDocument(document, starts, strings, offsets)
    return cut_windows(tokenized, 0, "<s>", max_length=16, cuts=Cuts())
