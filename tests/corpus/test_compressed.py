"""Compressed corpora: the same documents, and no harm from files that are damaged or made to harm."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import tracemalloc
import zlib

import pytest

from headscope.corpus import read as reading
from headscope.corpus.read import corpus_files, read_corpus
from headscope.errors import CorpusError
from tests.helpers.texts import SENTENCES

PACK = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".XZ": lambda raw: lzma.compress(raw, check=lzma.CHECK_SHA256),
}
formats = pytest.mark.parametrize("suffix", PACK)


@formats
@pytest.mark.parametrize(("kind", "text"), [(".conllu", SENTENCES), (".txt", "She lost it. Gone!")])
def test_a_compressed_file_holds_the_documents_of_the_plain_one(tmp_path, suffix, kind, text):
    plain, packed = tmp_path / f"keys{kind}", tmp_path / f"keys{kind}{suffix}"
    plain.write_text(text, encoding="utf-8")
    packed.write_bytes(PACK[suffix](text.encode()))
    assert read_corpus(packed) == read_corpus(plain)
    (document,) = read_corpus(packed)
    assert document.source == str(packed)
    assert document.name == "keys" or kind == ".conllu"
    assert corpus_files([tmp_path]) == [plain, packed] or kind == ".txt"


def test_a_document_without_a_name_has_that_of_its_file_without_suffixes(tmp_path):
    path = tmp_path / "keys.conllu.gz"
    rows = SENTENCES.partition("\n\n")[0].splitlines()
    nameless = "\n".join(row for row in rows if not row.startswith("# newdoc"))
    path.write_bytes(gzip.compress(nameless.encode()))
    assert [document.name for document in read_corpus(path)] == ["keys"]


@formats
def test_members_one_behind_another_are_one_text(tmp_path, suffix):
    path = tmp_path / f"two.txt{suffix}"
    padding = b"\0" * 8 if suffix != ".gz" else b""
    path.write_bytes(PACK[suffix](b"She lost") + padding + PACK[suffix](b" it."))
    assert read_corpus(path)[0].text == "She lost it."


@formats
def test_a_file_cut_off_anywhere_is_an_error_of_one_line(tmp_path, suffix):
    path, whole = tmp_path / f"keys.conllu{suffix}", PACK[suffix](SENTENCES.encode())
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(CorpusError, match=r"keys\.conllu\.(gz|xz|XZ): ") as caught:
            read_corpus(path)
        assert "\n" not in str(caught.value)
        if end > 30:
            assert "ends too early" in str(caught.value)


@formats
def test_a_damaged_byte_is_noticed_or_changes_nothing(tmp_path, suffix):
    plain = tmp_path / "plain.conllu"
    plain.write_text(SENTENCES, encoding="utf-8")
    expected = read_corpus(plain)
    path, whole = tmp_path / f"keys.conllu{suffix}", PACK[suffix](SENTENCES.encode())
    draw, refused = random.Random(5), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= draw.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            found = read_corpus(path)
        except CorpusError:
            refused += 1
        else:
            assert found == expected
    assert refused > 0.9 * len(whole)


@formats
def test_what_unpacks_to_more_than_can_be_read_is_refused_before_it_fills_the_memory(
    tmp_path, suffix, monkeypatch
):
    monkeypatch.setattr(reading, "MOST_BYTES", 1_000_000)
    path = tmp_path / f"bomb.txt{suffix}"
    path.write_bytes(PACK[suffix](b"word " * 8_000_000))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"more than 1 MB when unpacked"):
        read_corpus(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000  # of 40 MB; xz has a dictionary of 8 MB
    path.write_bytes(PACK[suffix](b"word " * 200_000))  # as much as can be read, to the byte
    assert len(read_corpus(path)[0].words) == 40_000


def test_an_xz_file_that_asks_for_gigabytes_to_be_unpacked_is_refused(tmp_path):
    path = tmp_path / "greedy.txt.xz"
    greedy = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4096}]
    raw = bytearray(lzma.compress(b"word", format=lzma.FORMAT_XZ, filters=greedy))
    place = raw.index(bytes([lzma.FILTER_LZMA2 & 0xFF, 1]), 12) + 2
    raw[place] = 39  # 3 GB; the header's checksum is set right
    end = 12 + (raw[12] + 1) * 4
    raw[end - 4 : end] = zlib.crc32(raw[12 : end - 4]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(CorpusError, match=r"cannot be unpacked: .*[Mm]emory"):
        read_corpus(path)


@pytest.mark.parametrize("name", ["keys.conllu.bz2", "keys.gz", "keys.pdf.xz"])
def test_other_suffixes_are_refused_with_those_that_can_be_read(tmp_path, name):
    (tmp_path / name).write_bytes(bz2.compress(SENTENCES.encode()))
    with pytest.raises(
        CorpusError, match=r"a corpus is \.conllu, \.txt, \.md, \.py, or one of them as \.gz"
    ):
        corpus_files([tmp_path / name])


def test_a_plain_file_with_a_compressed_name_is_refused(tmp_path):
    for suffix in (".gz", ".xz"):
        path = tmp_path / f"keys.conllu{suffix}"
        path.write_text(SENTENCES)
        with pytest.raises(CorpusError, match="cannot be unpacked"):
            read_corpus(path)
