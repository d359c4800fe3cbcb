"""Patterns of a text as one array, its file, and every form in which patterns may be given."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError
from tests.helpers import encoders

TEXT = "The old keys were in the house. She told them that, and they don't know."
TYPES = ["positional", "delimiter", "lexical"]


@pytest.fixture(scope="module")
def eager(gpt2_folder):
    return AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def found(model_folder):
    return hs.patterns(model_folder, TEXT)


def attentions(network, ids):
    return network(torch.tensor(ids)[None], output_attentions=True).attentions


def test_patterns_are_those_of_transformers(model_folder, found):
    network = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    layers = attentions(network.eval(), found.window.tokens.tolist())
    expected = torch.cat(layers).detach().numpy()
    assert found.array.dtype == np.float16
    assert np.allclose(found.array, expected, atol=1e-3)
    assert np.allclose(found["L1"], expected[1], atol=1e-3)
    assert np.allclose(found["L1H2"], expected[1, 2], atol=1e-3)
    part = hs.patterns(model_folder, TEXT, layers=[1], heads=[0, 2])
    assert (part.layers, part.heads) == ((1,), (0, 2))
    assert (part.array == found.array[1:, [0, 2]]).all()
    assert (part["L1H2"] == found["L1H2"]).all()


def test_words_are_where_their_tokens_are(found):
    expected = "The old keys were in the house . She told them that , and they don't know ."
    assert [word.word for word in found.words] == expected.split()
    for word in found.words:
        spelled = "".join(found.tokens[word.first : word.last + 1])
        assert spelled.strip() == word.word
    assert found.words[0].first == 1  # the beginning-of-text token belongs to no word


@pytest.mark.parametrize("model", ["causal", "encoder"])
def test_a_file_gives_back_what_was_saved(model, gpt2_folder, tokenizer, tmp_path):
    folder = gpt2_folder if model == "causal" else encoders.save_hand_built(tmp_path / "bert")
    patterns = hs.patterns(folder, TEXT)
    patterns.save(tmp_path / "text.npz")
    again = hs.Patterns.load(tmp_path / "text.npz")
    assert (again.array == patterns.array).all()
    assert (again.tokens, again.words) == (patterns.tokens, patterns.words)
    assert (again.name, again.layers, again.heads) == (
        patterns.name,
        patterns.layers,
        patterns.heads,
    )
    scored = hs.score_patterns(patterns, types=TYPES)
    for given in (tmp_path / "text.npz", again, [again]):
        assert hs.score_patterns(given, types=TYPES).evidence.equals(scored.evidence)


def masses(run):
    table = run.evidence.set_index(["type", "relation", "layer", "head"])
    return table[["n", "mass", "hit_rate"]].sort_index()


def test_every_form_of_one_text_gives_the_same_evidence(eager, gpt2_folder, tmp_path):
    """Arrays, tensors with gradients, lists from JSON and files, with a batch axis or without."""
    patterns = hs.patterns(gpt2_folder, TEXT)
    window, tokens = patterns.window, patterns.tokens
    layers = attentions(eager, window.tokens.tolist())
    assert layers[0].requires_grad
    plain = [layer.detach().numpy() for layer in layers]
    expected = masses(hs.score_patterns(np.concatenate(plain), window, types=TYPES))
    rows = [layer.tolist() for layer in plain]
    forms = {
        "a tuple": layers,
        "a list": list(layers),
        "a list of one text": [layers],
        "a stack": torch.stack(layers),
        "layers without a batch": [layer[0] for layer in layers],
        "JSON": rows,
        "JSON without a batch": [layer[0] for layer in rows],
    }
    for name, form in forms.items():
        close = np.allclose(
            masses(hs.score_patterns(form, window, types=TYPES)), expected, 1e-5, equal_nan=True
        )
        assert close, name

    bare = masses(hs.score_patterns(np.concatenate(plain), None, tokens, types=TYPES))
    files = {
        "one.npz": {"attentions": np.stack(plain), "tokens": np.array(tokens)},
        "other name.npz": {"fox": np.concatenate(plain), "tokens": np.array(tokens)},
        "layers.npz": {f"layer_{i}": plain[i] for i in (1, 0)} | {"tokens": np.array(tokens)},
        "one.json": {"attention": rows, "tokens": tokens},
    }
    for name, arrays in files.items():
        path = tmp_path / name
        if path.suffix == ".npz":
            np.savez(path, **arrays)
        else:
            path.write_text(json.dumps(arrays), encoding="utf-8")
        scored = masses(hs.score_patterns(path, types=TYPES))
        assert np.allclose(scored, bare, 1e-5, equal_nan=True), name
    (tmp_path / "bare.json").write_text(json.dumps(rows), encoding="utf-8")
    scored = masses(hs.score_patterns(str(tmp_path / "bare.json"), None, tokens, types=TYPES))
    assert np.allclose(scored, bare, 1e-5, equal_nan=True)


def test_circuitsvis_takes_patterns(gpt2_folder):
    from circuitsvis.attention import attention_heads, attention_patterns

    patterns = hs.patterns(gpt2_folder, TEXT)
    for draw in (attention_heads, attention_patterns):
        page = str(draw(attention=patterns["L1"], tokens=patterns.tokens))
        assert f"{float(patterns['L1H0'][1, 0])}" in page


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda folder, place: hs.patterns(folder, TEXT, layers=[7]), "L7"),
        (lambda folder, place: hs.patterns(folder, TEXT, heads=[9]), "H9"),
        (lambda folder, place: hs.patterns(folder, TEXT, layers=[]), "layers"),
        (lambda folder, place: hs.patterns(folder, ""), "empty"),
        (lambda folder, place: hs.patterns(folder, TEXT)["L0H9"], "L0H9"),
        (lambda folder, place: hs.patterns(folder, TEXT).save(place / "a.csv"), "npz"),
        (lambda folder, place: hs.score_patterns(place / "none.npz"), "none.npz"),
        (lambda folder, place: hs.Patterns.load(place / "none.npz"), "none.npz"),
        (lambda folder, place: hs.score_patterns(hs.patterns(folder, TEXT, layers=[1])), "layers"),
    ],
)
def test_a_bad_call_names_what_is_wrong(call, name, gpt2_folder, tmp_path):
    with pytest.raises(HeadscopeError, match=name):
        call(gpt2_folder, tmp_path)
