"""Generated text is read as it was generated: against transformers' steps with a cache of keys."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.measure.text import natural_text
from headscope.models.load import load_model
from headscope.settings import Settings
from headscope.views.show import MARK

TEXT = "She told them that the old keys were"


def step_by_step(network, tokens, count):
    """Tokens with the continuation, and all attention, layer × head × query × key."""
    ids, cache, rows = torch.from_numpy(tokens)[None], None, []
    for step in range(count + 1):
        with torch.no_grad():
            new = ids if cache is None else ids[:, -1:]
            out = network(new, past_key_values=cache, use_cache=True, output_attentions=True)
        cache = out.past_key_values
        rows.append(torch.cat(out.attentions))
        if step < count:
            ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], 1)
    size = ids.shape[1]
    padded = [torch.nn.functional.pad(row, (0, size - row.shape[-1])) for row in rows]
    return ids[0].numpy(), torch.cat(padded, 2).double().numpy()


@pytest.fixture
def network(model_folder):
    return AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()


def test_show_gives_the_attention_of_each_step(model_folder, network):
    plain = hs.show(str(model_folder), "L1H2", TEXT)
    view = hs.show(str(model_folder), "L1H2", TEXT, generate=9)
    tokenizer = load_model(str(model_folder)).tokenizer
    prompt = np.array(AutoTokenizer.from_pretrained(model_folder)(TEXT)["input_ids"])
    tokens, attention = step_by_step(network, np.append(tokenizer.bos, prompt), 9)
    start = len(plain.tokens)
    assert view.tokens[:start] == plain.tokens
    spelled = tokenizer.spell(tokens[start:].tolist())
    assert view.tokens[start:] == (MARK + spelled[0], *spelled[1:])
    np.testing.assert_allclose(view.pattern, attention[1, 2], atol=1e-5)
    assert MARK in str(view).split("\n", 1)[1]
    assert MARK in view.html()
    # nothing of it stays in the model
    assert np.array_equal(hs.show(str(model_folder), "L1H2", TEXT).pattern, plain.pattern)


def test_an_end_of_text_token_ends_the_text_and_is_left_out(model_folder, network):
    own = AutoTokenizer.from_pretrained(model_folder)
    prompt = np.append(own.bos_token_id, own(TEXT)["input_ids"])
    tokens, _ = step_by_step(network, prompt, 9)
    new = tokens[len(prompt) :].tolist()
    network.generation_config.eos_token_id = [own.eos_token_id, new[4]]
    view = hs.show((network, own), "L0H0", TEXT, generate=9)
    assert len(view.tokens) == len(prompt) + new.index(new[4])


def test_classify_measures_the_attention_of_each_step(model_folder, network, story, tmp_path):
    options = {"max_tokens": 200, "max_length": 60, "generate": 20}
    out = tmp_path / "run"
    run = hs.classify(str(model_folder), story, types=["positional"], all=True, out=out, **options)
    assert json.loads((out / "run.json").read_text())["settings"]["generate"] == 20
    model = load_model(str(model_folder))
    windows = list(natural_text(model, [story], Settings(**options), max_tokens=200))
    plain = hs.windows(story, str(model_folder), max_tokens=200, max_length=40)
    patterns = []
    for window, prompt in zip(windows, plain, strict=False):
        count = len(window) - len(prompt) if window.name != plain[-1].name else 20
        tokens, attention = step_by_step(network, window.tokens[:-count], count)
        assert window.tokens.tolist() == tokens.tolist()
        words = window.words
        assert np.array_equal(words.first[: len(prompt.words)], prompt.words.first)
        spelled = [
            "".join(window.strings[first : last + 1]).lower()
            for first, last in zip(words.first, words.last, strict=True)
        ]
        assert all(
            form in text or "\N{REPLACEMENT CHARACTER}" in text
            for form, text in zip(words.lemma, spelled, strict=True)
        )
        assert words.last[-1] >= len(prompt)
        patterns.append(attention)
    scored = hs.score_patterns(patterns, windows, types=["positional"])
    keys = ["layer", "head", "relation"]
    both = scored.evidence.merge(run.evidence, on=keys, suffixes=("", "_run"))
    both = both[both["relation"] == "offset-1"]
    assert len(both) == 8
    assert both["n"].tolist() == both["n_run"].tolist()
    np.testing.assert_allclose(both["mass"], both["mass_run"], atol=1e-5)


def test_an_annotated_text_is_read_as_plain_text(gpt2_folder, keys_file):
    types = ["syntactic", "positional"]
    run = hs.classify(str(gpt2_folder), keys_file, types=types, generate=5)
    assert run.evidence.groupby("type")["n"].sum().to_dict().get("syntactic", 0) == 0
    assert any("no annotation" in note for note in run.info["notes"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"generate": 250}, "--max-length.*266"),
        ({"generate": 2, "chat": True}, "--chat"),
    ],
)
def test_windows_must_leave_room_for_a_text(gpt2_folder, story, settings, words):
    with pytest.raises(HeadscopeError, match=words):
        hs.classify(str(gpt2_folder), story, **settings)


def test_generated_text_must_fit_into_the_context(gpt2_folder):
    with pytest.raises(HeadscopeError, match="256"):
        hs.show(str(gpt2_folder), "L0H0", TEXT, generate=250)
