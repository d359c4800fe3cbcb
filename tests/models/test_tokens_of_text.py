"""Tokens of running text, as vocabularies of several kinds make them."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headscope.corpus.align import Cuts, cut_windows, window_of_tokens
from headscope.corpus.text import read_text
from headscope.models.tokenizer import Tokenizer

TEXT = "Anna played naïve 東京 songs, 9 €."


def byte_level() -> Backend:
    """Each byte a token, in GPT-2's alphabet."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return backend


def word_piece() -> Backend:
    pieces = ["[UNK]", "Anna", "play", "##ed", "na", "##ïve", "東", "##京", "songs"]
    pieces += [",", "9", "€", "."]
    backend = Backend(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def sentence_piece() -> Backend:
    """Characters, and bytes for those that its vocabulary lacks."""
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), "▁", *sorted(set("Annaplyedvesog,9."))]
    backend = Backend(
        models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True, unk_token=None)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return backend


@pytest.mark.parametrize("make", [byte_level, word_piece, sentence_piece])
def test_entries_of_a_vocabulary_spell_the_text_that_they_were_made_of(make):
    encoded = make().encode(TEXT)
    assert len(encoded.tokens) >= 12
    document = read_text("doc", TEXT)
    window = window_of_tokens(["<s>", *encoded.tokens], document)
    spans = [
        (document.text[word.start : word.end], word.start, word.end) for word in document.words
    ]
    assert len(window.words) == len(spans)
    for (form, start, end), first, last in zip(
        spans, window.words.first, window.words.last, strict=True
    ):
        inside = [
            i for i, (a, b) in enumerate(encoded.offsets, 1) if a < end and b > start and b > a
        ]
        blank = [i for i in inside if encoded.tokens[i - 1] == "▁"]
        inside = [i for i in inside if i not in blank]
        assert (first, last) == (inside[0], inside[-1]), form
    assert "".join(window.strings[1:]).strip().startswith("Anna")


def test_special_tokens_in_running_text_are_text(gpt2_folder):
    backend = AutoTokenizer.from_pretrained(gpt2_folder)
    tokenizer = Tokenizer(backend, name="tiny")
    document = read_text("doc", f"the {backend.eos_token} old keys")
    tokenized = tokenizer.encode(document)
    assert backend.eos_token_id not in tokenized.tokens
    assert tokenizer.decode(tokenized.tokens.tolist()) == document.text


def test_the_blank_before_a_word_is_no_token_of_the_word():
    """XLM-R writes a word that begins with a rare piece as `▁` and the piece."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("▁", -1.0), ("nine", -1.0), ("▁old", -1.0)]
    backend = Backend(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    backend.decoder = decoders.Metaspace()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")
    tokenizer = Tokenizer(fast, name="tiny")
    document = read_text("doc", "old nine old")
    tokenized = tokenizer.encode(document)
    assert fast.convert_ids_to_tokens(tokenized.tokens.tolist()) == ["▁old", "▁", "nine", "▁old"]
    (window,) = cut_windows(tokenized, tokenizer.bos, "<s>", max_length=9, cuts=Cuts())
    assert window.words.first.tolist() == [1, 3, 4]
    assert window.words.last.tolist() == [1, 3, 4]
