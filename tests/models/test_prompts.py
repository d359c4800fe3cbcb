"""Prompts: special tokens are special in them, as in transformers, and plain text in corpora."""

from __future__ import annotations

import copy

import pytest
from transformers import AutoTokenizer

from headscope.causal.task_prompts import TaskPrompts
from headscope.corpus.text import read_text
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.models.tokenizer import Tokenizer
from headscope.stimuli.tasks import read_task
from tests.helpers.models import save_model

BEGIN, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT = f"{TURN}user\nthe old keys{END}\n{TURN}she told"
"""Three special tokens."""


@pytest.fixture(scope="module")
def chat(tokenizer, tmp_path_factory):
    """A tiny GPT-2 whose tokenizer has the special tokens of chats."""
    words = copy.deepcopy(tokenizer)
    words.add_special_tokens({"additional_special_tokens": [TURN, END]})
    return load_model(str(save_model("gpt2", words, tmp_path_factory.mktemp("chat"))))


def expected(model, text):
    """The tokens that transformers makes of a text."""
    backend = AutoTokenizer.from_pretrained(model.name)
    return backend(text, add_special_tokens=False)["input_ids"]


def test_special_tokens_of_a_prompt_are_those_of_transformers(chat):
    window = text_window(chat, CHAT)
    assert window.tokens.tolist() == [chat.tokenizer.bos, *expected(chat, CHAT)]
    assert [window.strings[i] for i in range(len(window)) if "<|" in window.strings[i]] == [
        *(BEGIN, TURN, END, TURN)
    ]
    assert chat.tokenizer.count_special(CHAT) == 3


def test_a_corpus_and_a_plain_prompt_spell_special_tokens_as_text(chat):
    corpus = chat.tokenizer.encode(read_text("doc", CHAT)).tokens.tolist()
    plain = text_window(chat.with_plain_prompts(True), CHAT)
    special = {*expected(chat, TURN), *expected(chat, END)}
    assert special.isdisjoint(corpus)
    assert plain.tokens.tolist() == [chat.tokenizer.bos, *corpus]
    assert chat.with_plain_prompts(True).tokenizer.count_special(CHAT) == 0


def test_words_of_a_prompt_lie_where_they_are_spelled_and_not_in_special_tokens(chat):
    words = text_window(chat, CHAT).words
    strings = text_window(chat, CHAT).strings
    spelled = [
        "".join(strings[first : last + 1]).strip()
        for first, last in zip(words.first, words.last, strict=True)
    ]
    assert spelled == ["user", "the", "old", "keys", "she", "told"]


@pytest.mark.parametrize("text", [BEGIN + CHAT, BEGIN + "the keys", BEGIN + BEGIN + "she"])
def test_a_prompt_that_begins_with_bos_has_it_once(chat, text):
    assert text_window(chat, text).tokens.tolist() == expected(chat, text)


def test_an_encoder_takes_a_prompt_with_its_own_beginning_and_end():
    model = load_model("minilm")
    text = "the old keys were lost"
    bare = text_window(model, text)
    framed = text_window(model, f"[CLS] {text} [SEP]")
    masked = text_window(model, f"{text} [MASK]")
    assert framed.tokens.tolist() == bare.tokens.tolist() == expected_pair(model, text)
    assert masked.tokens.tolist()[-2] == model.tokenizer.mask
    assert len(framed.words) == len(bare.words) == len(masked.words)


def expected_pair(model, text):
    """The tokens with the encoder's own frame."""
    return model.tokenizer._backend(text)["input_ids"]


def test_prompts_and_answers_of_a_task_may_be_special_tokens(chat):
    task = read_task([{"prompt": CHAT, "answer": END}, {"prompt": f"{BEGIN}the", "answer": " old"}])
    first, second = TaskPrompts.of(task, chat).continuations
    assert first.tokens == (chat.tokenizer.bos, *expected(chat, CHAT))
    assert first.labels == tuple(expected(chat, END))
    assert second.tokens == tuple(expected(chat, f"{BEGIN}the"))


def test_an_unknown_word_is_no_special_token():
    tokenizer = load_model("minilm").tokenizer
    unknown = "\u2fff\u2ffe"
    assert tokenizer._backend.unk_token_id in tokenizer._backend(unknown)["input_ids"]
    assert tokenizer.count_special(unknown) == 0
    assert tokenizer.count_special("[UNK] [MASK]") == 2


def test_the_tokenizer_is_not_changed_by_a_plain_copy(gpt2_folder):
    tokenizer = Tokenizer(AutoTokenizer.from_pretrained(gpt2_folder), name="tiny")
    assert tokenizer.with_plain_prompts(True).plain_prompts
    assert not tokenizer.plain_prompts
