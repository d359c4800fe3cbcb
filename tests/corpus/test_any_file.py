"""Whatever is in a corpus file, it is read soundly or refused with its name."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.fuzz.corpora import check_corpus_file, conllu_bytes, text_bytes

FEW = settings(
    max_examples=150, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@FEW
@given(conllu_bytes)
def test_any_treebank_is_read_soundly_or_refused(tmp_path_factory, raw):
    check_corpus_file(tmp_path_factory.getbasetemp() / "any.conllu", raw)


@FEW
@given(text_bytes)
def test_any_plain_text_is_read_soundly_or_refused(tmp_path_factory, raw):
    check_corpus_file(tmp_path_factory.getbasetemp() / "any.txt", raw)


def test_most_of_what_is_tried_can_be_read(tmp_path):
    """Otherwise the tests above would only try the first check."""
    read = {"conllu": 0, "txt": 0}

    @FEW
    @given(conllu_bytes, text_bytes)
    def count(treebank, text):
        read["conllu"] += check_corpus_file(tmp_path / "any.conllu", treebank)
        read["txt"] += check_corpus_file(tmp_path / "any.txt", text)

    count()
    assert read["conllu"] > 20
    assert read["txt"] > 20
