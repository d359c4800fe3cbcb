"""Prompts: special tokens are special in them, as in transformers, and plain text in corpora."""

from __future__ import annotations

import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from transformers import AutoTokenizer

import headscope as hs
from headscope.causal.task_prompts import TaskPrompts
from headscope.corpus.shipped import data_folder
from headscope.corpus.text import read_text
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.models.tokenizer import Tokenizer
from headscope.serve.live import Live
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


def ablated_tokens(model, text, plain):
    """Tokens of a task's first prompt, as `hs.task` reads it, and the notes."""
    task = read_task([{"prompt": text, "answer": " old"}, {"prompt": "the", "answer": " old"}])
    prompts = TaskPrompts.of(task, model.with_plain_prompts(plain))
    return len(prompts.continuations[0].tokens), prompts.notes


def live_tokens(model, text, plain):
    reading = Live(model.with_plain_prompts(plain)).read(text)
    return len(reading.tokens), reading.notes


def pattern_tokens(model, text, plain):
    found = hs.patterns(model, text, plain=plain)
    return len(found.tokens), hs.show(found, "L0H0").notes


def shown_tokens(heads):
    def read(model, text, plain):
        view = hs.show(model, heads, text, plain=plain)
        return len(view.tokens), view.notes

    return read


def explained_tokens(model, text, plain):
    gold = data_folder() / "corpora" / "gold.conllu"
    found = hs.explain_at(model, "L0H0", text, gold, windows=8, features=1, plain=plain)
    return len(found.table), found.notes[:-1]


def found_tokens(model, text, plain):
    found = hs.find_heads(model, text, "previous", plain=plain)
    return found.values["tokens"], found.notes


def read_words(model, text, plain):
    """A task of words, of which the text is one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "words.csv"
        path.write_text(f"task,question,answer\nold,{text},keys\n")
        hs.function_vectors(model, tasks=str(path))


FRONTS = {
    "task": ablated_tokens,
    "live page": live_tokens,
    "patterns": pattern_tokens,
    "one head": shown_tokens("L0H0"),
    "all heads": shown_tokens("all"),
    "explain": explained_tokens,
    "template": found_tokens,
}


@pytest.mark.parametrize("front", FRONTS)
def test_whatever_reads_a_prompt_counts_its_special_tokens_unless_it_is_plain(front, chat):
    read = FRONTS[front]
    tokens, notes = read(chat, CHAT, plain=False)
    assert tokens == 1 + len(expected(chat, CHAT))
    assert [word for note in notes for word in note.split() if word.strip(";").isdigit()] == ["3;"]
    plain_tokens, plain_notes = read(chat, CHAT, plain=True)
    assert plain_tokens > tokens + 20
    assert not plain_notes


@pytest.mark.parametrize("front", [*FRONTS.values(), read_words])
def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(front, chat, monkeypatch):
    tokenized = []
    own = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer,
        "encode",
        lambda self, document, **options: (
            tokenized.append(len(document.text)),
            own(self, document, **options),
        )[1],
    )
    with pytest.raises(HeadscopeError, match=r"300,000.*\b25,600\b"):
        front(chat, "the old keys " + "x" * 299_987, plain=False)
    assert max(tokenized, default=0) < 1_000


def test_a_text_as_long_as_the_context_is_read(chat):
    longest = "<|endoftext|>" * (chat.context - 1)
    assert len(text_window(chat, longest)) == chat.context - 1
