"""Texts in a model's chat template: the same tokens, words in their places, turns apart."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.roles import PromptRoles
from headscope.causal.task_prompts import TaskPrompts
from headscope.corpus.read import read_corpus
from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.measure.sink_positions import LATE, find_sink_positions, known_columns, late_tiles
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.models.tokenizer import Tokenizer
from headscope.relations import relations_of
from headscope.relations.window_pairs import WindowPairs
from headscope.resolve import model_of
from headscope.stimuli.conversations import conversation_document
from headscope.stimuli.stimulus import cut_document
from headscope.stimuli.tasks import read_task
from headscope.views.show import MARK, show
from tests.helpers.chat import CHATML, CONVERSATION, LIKE_GEMMA, LIKE_MISTRAL, with_chat_template
from tests.helpers.models import save_model

OWN = ("sink/template", "delimiter/turn")


@pytest.fixture(scope="module")
def words(tokenizer):
    """The tokenizer of the tests with a template that begins with a system's message."""
    return with_chat_template(tokenizer)


@pytest.fixture(scope="module")
def documents():
    return read_corpus(data_folder() / "corpora" / "gold.conllu")[:6]


@pytest.fixture(scope="module")
def windows(words, documents):
    tokenizer = Tokenizer(words, name="m").in_chat()
    return [
        window
        for number, document in enumerate(documents)
        for window in cut_document(document, tokenizer, "text", 160, number=number)
    ]


@pytest.fixture(scope="module")
def chat_folder(words, tmp_path_factory) -> Path:
    return save_model("gpt2", words, tmp_path_factory.mktemp("chat"))


def test_a_text_in_the_template_is_what_the_tokenizer_itself_makes_of_it(words, chat_folder):
    text = "The old keys were in the house."
    rendered = words.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=True, add_generation_prompt=True
    )
    window = text_window(load_model(str(chat_folder), chat=True), text)
    assert window.tokens.tolist() == rendered["input_ids"]
    assert "".join(window.strings[window.begins : window.stop]) == text
    marks = [window.strings[mark] for mark in window.turn_marks]
    assert marks == ["\n", "<|endoftext|>", "\n", "<|endoftext|>", "\n"]
    assert messages_of(window) == {
        "system": "Be kind to the old keys.",
        "user": text,
        "assistant": "",
    }


def messages_of(window: Window) -> dict[str, str]:
    return {role: "".join(window.strings[start:stop]) for role, start, stop in window.turns}


@pytest.mark.parametrize("template", [CHATML, LIKE_GEMMA, LIKE_MISTRAL])
def test_a_conversation_is_what_the_tokenizer_itself_makes_of_it(tokenizer, template):
    words = with_chat_template(tokenizer, template)
    tokenizer = Tokenizer(words, name="m").in_chat()
    assert (tokenizer.template.system is None) == (template == LIKE_MISTRAL)
    assert tokenizer.template.lead == (" " if template == LIKE_MISTRAL else "")
    starts = [1] if template == LIKE_MISTRAL else [0, 1]
    for start, count in itertools.product(starts, range(1, 6)):
        messages = CONVERSATION[start:][:count]
        if messages[-1]["role"] == "system":
            continue
        rows = [(message["role"], message["content"]) for message in messages]
        document = conversation_document("d", [rows], tokenizer.template)
        (window,) = cut_document(document, tokenizer, "text", 160, number=0)
        rendered = words.apply_chat_template(messages, tokenize=True)["input_ids"]
        # what closes the last message is no part of it
        assert window.tokens.tolist() == rendered[: len(window)]
        assert len(rendered) > len(window)
        spelled = ["".join(window.strings[a:b]).strip() for _, a, b in window.turns]
        assert [*zip([turn.role for turn in window.turns], spelled, strict=True)] == rows
        forms = " ".join(window.words.lemma)
        assert "old" in forms or "lost" in forms
        assert not {"system", "user", "assistant"} & {*forms.split()}


def test_a_special_token_in_a_message_is_plain_text(words):
    tokenizer = Tokenizer(words, name="m").in_chat()
    document = conversation_document("d", [[("user", "<|endoftext|>")]], tokenizer.template)
    (window,) = cut_document(document, tokenizer, "text", 160, number=0)
    (turn,) = window.turns
    assert turn.stop - turn.start > 1
    assert messages_of(window) == {"user": "<|endoftext|>"}


def test_templates_that_take_no_system_prompt_or_no_second_message_are_read(tokenizer):
    alone = "{{ messages[0]['content'] }}!{{ raise_exception('one') if messages | length > 1 }}"
    template = Tokenizer(with_chat_template(tokenizer, alone), name="m").in_chat().template
    assert (template.system, template.again, template.default) == (None, None, None)
    template.conversation([("user", "a"), ("assistant", "b")])
    for role in ("system", "user"):
        with pytest.raises(ModelError, match=f"{role}, .*leave --chat out"):
            template.conversation([(role, "a"), ("assistant", "b"), ("user", "c")])


def test_a_prompt_of_a_task_is_a_message_and_its_answer_begins_the_assistants(words, chat_folder):
    model = load_model(str(chat_folder), chat=True)
    assert read_task([{"prompt": "a", "answer": "b"}] * 2).rows[0].answer == " b"
    rows = [
        {"prompt": f"The old {word} was", "answer": "lost", "wrong": "keys"}
        for word in ("king", "house")
    ]
    prompts = TaskPrompts.of(read_task(rows), model)
    for row, right in zip(rows, prompts.continuations[::2], strict=True):
        messages = [{"role": "user", "content": row["prompt"]}]
        asked = words.apply_chat_template(messages, tokenize=True, add_generation_prompt=True)
        messages.append({"role": "assistant", "content": "lost"})
        answered = words.apply_chat_template(messages, tokenize=True)["input_ids"]
        whole = [*right.tokens, right.labels[-1]]
        assert whole == answered[: len(whole)]
        assert whole[: -len(right.labels)] == asked["input_ids"]
    # roles are found in the message, and the answer is due at the end of the template
    roles = PromptRoles.of(prompts.texts)
    for text, names in zip(prompts.texts, roles.of_prompt, strict=True):
        assert names.index("end") == len(text.strings) - 1
        assert "".join(text.strings[i] for i in text.positions((0, 3))) == "The"
    assert any("template" in note for note in prompts.notes)


def test_show_marks_the_role_of_each_message(chat_folder):
    view = show(str(chat_folder), "L0H1", "The old keys.", chat=True, generate=2)
    marked = {token.partition(MARK)[0] for token in view.tokens if MARK in token}
    assert marked == {"system", "user", "assistant"}
    assert len(view.tokens) == len(view.pattern)
    plain = show(str(chat_folder), "L0H1", "The old keys.")
    assert not any(MARK in token for token in plain.tokens)


def test_words_lie_where_they_are_spelled(words, documents, windows):
    """Words are as many as without the template, and no part of the template is one."""
    plain = Tokenizer(words, name="m")
    before, after = Tokenizer(words, name="m").in_chat().template.text
    spelled = 0
    for document in documents:
        own = [w for w in windows if w.name.rpartition("#")[0] == document.name]
        forms = iter(word.form for word in document.words)
        for window in own:
            assert len(window) <= 160
            assert "".join(window.strings[: window.begins]) == before
            assert "".join(window.strings[window.stop :]) == after
            assert window.words.first.min() >= window.begins
            assert window.words.last.max() < window.stop
            for first, last in zip(window.words.first, window.words.last, strict=True):
                assert next(forms) in "".join(window.strings[first : last + 1])
                spelled += 1
        (whole,) = cut_document(document, plain, "text", 100_000, number=0)
        assert sum(len(w.words) for w in own) == len(whole.words)
        assert sum(len(w.mentions) for w in own) == len(whole.mentions)
    assert spelled > 500


def test_no_relation_but_its_own_asks_about_the_template(windows):
    asked = dict.fromkeys(OWN, 0)
    message = 0
    for window in windows:
        for relation in relations_of(["all"], in_chat=True):
            cells = WindowPairs(window).cells(relation, [0])
            if cells is None:
                continue
            for part in (cells.targets, cells.controls):
                assert ((part.query >= window.begins) & (part.query < window.stop)).all()
                key = part.key[part.key > 0]
                if relation.id in OWN and part is cells.targets:
                    assert (key < window.begins).all()
                    asked[relation.id] += len(key)
                else:
                    assert ((key >= window.begins) & (key < window.stop)).all(), relation.id
                    message += len(key)
    assert min(asked.values()) > 100
    assert message > 10_000


def test_heads_that_look_at_the_template_score_by_what_they_look_at(windows):
    """One rests on the template's tokens evenly, and one on its marks."""
    for relation in (r for r in relations_of(["all"], in_chat=True) if r.id in OWN):
        for window in windows:
            cells = WindowPairs(window).cells(relation, [0]).targets
            keys = np.arange(len(window))
            in_template = (keys > 0) & (keys < window.begins)
            is_mark = np.isin(keys, window.turn_marks)
            rests, marks = (
                (cells.weight * row[cells.key]).sum() / row.sum() / len(cells.queries)
                for row in (in_template, is_mark)
            )
            share = 1 if relation.id == "sink/template" else is_mark.sum() / in_template.sum()
            assert rests == pytest.approx(share)
            assert marks == pytest.approx(1)


def test_the_template_is_in_no_sink_position(windows):
    window = next(window for window in windows if len(window) > 100)
    pattern = torch.full((1, 2, LATE, len(window)), 1e-3)
    pattern[..., 3] = 0.6
    rest = window.begins + 2
    pattern[..., rest] = 0.3
    (tile,) = late_tiles([window])
    found = find_sink_positions([window], [(tile, pattern)], logarithms=False)
    columns = {*found.columns[0].tolist(), *known_columns([window])[0].tolist()}
    assert {*range(1, window.begins), rest, len(window) - 1} == columns - {-1}
    assert np.allclose(found.mass, LATE * 0.3, atol=1e-3)


def test_a_run_says_its_template_and_its_model_comes_back_with_it(chat_folder, tmp_path):
    corpus = data_folder() / "corpora" / "gold.conllu"
    options = {
        "types": ["sink", "delimiter"],
        "max_tokens": 1500,
        "challenge": False,
    }
    run = hs.classify(str(chat_folder), corpus, chat=True, out=tmp_path / "chat", **options)
    stored = json.loads((tmp_path / "chat" / "run.json").read_text())
    mark = "<|endoftext|>"
    system = f"{mark}system\nBe kind to the old keys.{mark}\n"
    assert stored["chat"] == {"before": f"{system}{mark}user\n", "after": f"{mark}\n"}
    assert " --chat" in stored["command"]
    assert set(OWN) <= set(run.evidence["type"] + "/" + run.evidence["relation"])
    again = text_window(model_of(hs.load(tmp_path / "chat")), "The old keys.")
    assert again.begins > 1
    plain = hs.classify(str(chat_folder), corpus, out=tmp_path / "plain", **options)
    stored = json.loads((tmp_path / "plain" / "run.json").read_text())
    assert "chat" not in stored
    assert "--chat" not in stored["command"]
    assert set(OWN).isdisjoint(plain.evidence["type"] + "/" + plain.evidence["relation"])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "--chat"),
        (
            "{{ raise_exception('no users') }}",
            "no users",
        ),
        ("<|endoftext|>only this", "template"),
        (
            "{{ messages[0]['content'] | upper }}",
            "template",
        ),
    ],
)
def test_a_template_that_cannot_be_used_is_said(tokenizer, template, message):
    words = copy.deepcopy(tokenizer)
    words.chat_template = template
    with pytest.raises(ModelError, match=message):
        Tokenizer(words, name="m").in_chat()
