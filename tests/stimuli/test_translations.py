"""Sentences with their translations: which are paired, and which words are gold."""

from __future__ import annotations

import re

import pytest

import headscope as hs
from headscope.corpus.document import Document
from headscope.errors import CorpusError
from headscope.relations.types.alignment import TRANSLATION, TRANSLATIONS, prompts, sentence_pairs
from tests.helpers.translated import ANNA, entries, sentence
from tests.helpers.treebanks import save_treebanks, treebank

DOG = [("dog", "Hund")]


def linked(texts: list[Document], name: str, kind: str) -> list[tuple[str, str]]:
    """Words of the source and of the translation that arrows of a kind connect in a document."""
    return [
        (document.text[arrow.right[0] :].split()[0], document.text[arrow.query :].split()[0])
        for document in texts
        for arrow in document.arrows
        if document.name == name and arrow.kind == kind
    ]


@pytest.mark.parametrize(
    ("others", "gold"),
    [
        (entries("dog/Hund", documents=3), DOG),
        (entries("dog/Hund", documents=2), []),
        (entries("dog/Hund", documents=3) + entries("dog/Tier", documents=9), []),
        (entries("dog/Hund", documents=6) + entries("dog/Tier", documents=5), DOG),
        (entries("dog/Hund", documents=5) + entries("dog/Tier", documents=7), []),
        (entries("bird/Hund", documents=7) + entries("dog/Hund", documents=5), []),
        (entries("dog/Hund", "dog/Hund", upos="DET"), []),
    ],
    ids=["frequent", "rare", "weak", "best", "not best", "not best of the source", "no content"],
)
def test_gold_is_in_the_dictionary_of_other_documents(others, gold):
    texts = prompts([ANNA, ANNA, ANNA, *others])
    assert linked(texts, "anna", TRANSLATION) == 3 * gold


def test_words_that_share_letters_or_have_several_partners_or_another_class_are_no_gold():
    words = (
        "book/Buch",
        "house/Haus",
        "university/Universität",
        "nation/Nation",
        "door/Tür",
        "12/12",
    )
    english = "book", "house", "university", "nation", "book", "door", "12"
    german = "Universität", "Haus", "Buch", "Nation", "12"
    pair = (
        sentence("own", *(f"{word}/{word}/NOUN/0" for word in english)),
        sentence("own", *(f"{word}/{word}/NOUN/0" for word in german), "Tür/Tür/ADJ/0"),
    )
    texts = prompts([pair, *entries(*words)])
    assert linked(texts, "own", TRANSLATION) == [("house", "Haus")]


def test_control_words_have_the_class_and_the_most_similar_depth():
    depth = (0, 1, 1, 2, 3, 3, 1)
    upos = ("NOUN",) * 6 + ("VERB",)
    pair = (
        sentence("own", *(f"w{i}/w{i}/{upos[i]}/{depth[i]}" for i in range(7))),
        sentence("own", *(f"V{row}/V{row}/NOUN/0" for row in (0, 1, 3))),
    )
    document, *_ = prompts([pair, *entries("w0/V0", "w1/V1", "w3/V3")])
    others = {
        arrow.right[0] // 3: [place // 3 for place in arrow.others]
        for arrow in document.arrows
        if arrow.kind == TRANSLATION
    }
    assert others == {0: [1, 2], 1: [2], 3: [1, 2, 4, 5]}


def test_depth_counts_the_words_above_in_a_tree_or_a_cycle(tmp_path):
    files = [tmp_path / "en.conllu", tmp_path / "fr.conllu"]
    rows = "".join(
        f"{i}\tw\tw\tX\t_\t_\t{head}\tdep\t_\t_\n" for i, head in enumerate((3, 1, 0, 5, 4), 1)
    )
    for path in files:
        path.write_text(rows)
    ((source, _),) = sentence_pairs(files)
    assert source.depth == (1, 2, 0, 2, 2)


def test_sentences_are_paired_by_their_ids_or_else_in_order(tmp_path):
    english, french = sorted(save_treebanks(tmp_path, ("en", "fr"), documents=3).iterdir())
    by_id = sentence_pairs([english, french])
    blocks = re.findall("# sent_id.*?\n\n", french.read_text(), re.DOTALL)
    french.write_text("".join(blocks[::-1]))
    assert sentence_pairs([english, french]) == by_id
    for path in (english, french):
        path.write_text(re.sub("# sent_id.*\n", "", treebank(path.name[:2], documents=3)))
    assert sentence_pairs([english, french]) == by_id
    french.write_text(re.sub("# sent_id.*\n", "", treebank("fr", documents=2)))
    assert sentence_pairs([english, french]) == []


def test_each_sentence_of_a_file_of_one_document_counts_as_a_document(tmp_path):
    files = sorted(save_treebanks(tmp_path, ("en", "fr"), documents=1, sentences=9).iterdir())
    assert len({source.document for source, _ in sentence_pairs(files)}) == 9


def test_a_run_needs_two_files_that_translate_each_other_unless_all_types_are_named(tmp_path):
    english, french = sorted(save_treebanks(tmp_path, ("en", "fr"), documents=40).iterdir())
    options = {"max_tokens": 600, "examples": False}
    run = hs.classify("mini", [english, french], types="alignment", **options)
    assert run.evidence.loc[run.evidence["relation"] == "translation", "n"].min() > 50
    french.write_text(treebank("fr", documents=39).replace("# sent_id = n", "# sent_id = other"))
    for corpora in (english, [english, tmp_path], [english, french]):
        with pytest.raises(CorpusError, match="--corpus"):
            hs.classify("mini", corpora, types="alignment", **options)
    run = hs.classify("mini", [english, french], types="all", **options)
    assert TRANSLATIONS.name not in run.info["provenance"]["stimulus_tokens"]
