"""Patterns of a text as one array, its file, and every form in which patterns may be given."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError, PatternError
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


@pytest.fixture
def saved(gpt2_folder, tmp_path):
    """The arrays of a file of `Patterns.save`, and its record."""
    hs.patterns(gpt2_folder, TEXT).save(tmp_path / "sound.npz")
    with np.load(tmp_path / "sound.npz") as arrays:
        arrays = dict(arrays)
    return arrays, json.loads(str(arrays["headscope_patterns"]))


def of_record(**changed):
    """A change of the record of a file: new values made from the old ones."""

    def change(arrays, record):
        new = record | {name: make(record[name]) for name, make in changed.items()}
        return arrays | {"headscope_patterns": np.array(json.dumps(new))}

    return change


def of_array(name, make):
    return lambda arrays, record: arrays | {name: make(arrays[name])}


def negative(patterns):
    changed = patterns.copy()
    changed[..., 1, :2] = -1, 2
    return changed


def words_moved(count):
    return lambda words: [{**word, "last": word["last"] + count} for word in words]


CHANGES = {
    "tokens cut": of_array("tokens", lambda tokens: tokens[:-2]),
    "tokens added": of_array("tokens", lambda tokens: np.append(tokens, "x")),
    "tokens as numbers": of_array("tokens", lambda tokens: np.arange(len(tokens))),
    "numbers of tokens cut": of_record(ids=lambda ids: ids[:-2]),
    "both cut": lambda arrays, record: of_record(ids=lambda ids: ids[:-2])(
        arrays | {"tokens": arrays["tokens"][:-2]}, record
    ),
    "sums of 3": of_array("patterns", lambda patterns: patterns * 3),
    "below 0": of_array("patterns", negative),
    "NaN": of_array("patterns", lambda patterns: patterns * np.float16("nan")),
    "later keys": of_array("patterns", lambda patterns: patterns[..., ::-1]),
    "whole numbers": of_array("patterns", lambda patterns: patterns.astype(int)),
    "a layer less": of_array("patterns", lambda patterns: patterns[1:]),
    "a head less": of_array("patterns", lambda patterns: patterns[:, 1:]),
    "no axis": of_array("patterns", lambda patterns: patterns[0]),
    "layers named twice": of_array("layers", lambda layers: layers * 0),
    "layers in halves": of_array("layers", lambda layers: layers + 0.5),
    "heads below 0": of_array("heads", lambda heads: heads - 1),
    "words behind the end": of_record(words=words_moved(99)),
    "words that end before they begin": of_record(words=words_moved(-1)),
    "words backwards": of_record(words=lambda words: words[::-1]),
    "a word less": of_record(words=lambda words: words[:-1]),
    "words of another form": of_record(words=lambda words: ["a"]),
    "tokens in halves": of_record(ids=lambda ids: [i + 0.5 for i in ids]),
    "inner behind the end": of_record(inner=lambda inner: [999]),
    "no record": lambda arrays, record: arrays | {"headscope_patterns": np.array("{}")},
    "deep record": lambda arrays, record: arrays | {"headscope_patterns": np.array("[" * 100_000)},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_whose_parts_do_not_fit_is_refused(name, saved, tmp_path):
    path = tmp_path / "changed.npz"
    np.savez(path, **CHANGES[name](*saved))
    for read in (hs.Patterns.load, hs.score_patterns):
        with pytest.raises(PatternError, match=r"changed\.npz"):
            read(path)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize("size", [0, 3, 100, 4000])
def test_a_file_that_was_cut_short_is_refused(size, suffix, saved, tmp_path):
    whole = (tmp_path / "sound.npz").read_bytes()
    path = tmp_path / f"short{suffix}"
    path.write_bytes(whole[: min(size, len(whole) - 1)])
    for read in (hs.Patterns.load, hs.score_patterns):
        with pytest.raises(PatternError, match="short"):
            read(path)


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
        (lambda folder, place: hs.patterns(folder, TEXT)[0], "L5H1"),
        (lambda folder, place: hs.patterns(folder, TEXT)[0:2], "L5H1"),
        (lambda folder, place: hs.patterns(folder, TEXT)[0, 1, 2], "L5H1"),
        (lambda folder, place: list(hs.patterns(folder, TEXT)), "L5H1"),
        (lambda folder, place: hs.patterns(folder, TEXT).save(place / "a.csv"), "npz"),
        (lambda folder, place: hs.score_patterns(place / "none.npz"), "none.npz"),
        (lambda folder, place: hs.Patterns.load(place / "none.npz"), "none.npz"),
        (lambda folder, place: hs.score_patterns(hs.patterns(folder, TEXT, layers=[1])), "layers"),
    ],
)
def test_a_bad_call_names_what_is_wrong(call, name, gpt2_folder, tmp_path):
    with pytest.raises(HeadscopeError, match=name):
        call(gpt2_folder, tmp_path)
