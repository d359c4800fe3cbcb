"""Patterns that come from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.corpus.text import read_text
from headscope.errors import PatternError


def uniform(n: int) -> np.ndarray:
    a = np.tril(np.ones((1, 1, n, n)))
    return a / a.sum(-1, keepdims=True)


def test_given_patterns_get_the_evidence_that_the_model_gets(gpt2_folder, keys_file):
    """A text through `classify`, and through transformers' patterns and token strings."""
    types = ["positional", "syntactic", "coreference", "delimiter"]
    run = hs.classify(str(gpt2_folder), keys_file, types=types)
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    (document,) = hs.read_corpus(keys_file)
    ids = [tokenizer.bos_token_id, *tokenizer(document.text)["input_ids"]]
    with torch.no_grad():
        patterns = torch.cat(model(torch.tensor([ids]), output_attentions=True).attentions)
    tokens = tokenizer.convert_ids_to_tokens(ids)
    given = hs.score_patterns(patterns, document, tokens, types=types)

    def masses(evidence):
        table = evidence.set_index(["type", "relation", "layer", "head"])
        return table[["n", "mass", "hit_rate"]].sort_index()

    # random tokens are not part of the given patterns
    expected = masses(run.evidence[~run.evidence["relation"].str.endswith("-random")])
    assert len(expected) == len(given.evidence) > 100
    assert np.allclose(masses(given.evidence), expected, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("patterns", "document", "tokens", "message"),
    [
        (uniform(3), None, ["a", "b"], r"\(1, 1, 3, 3\)"),
        (uniform(2) * 2, None, ["a", "b"], "sum to 1"),
        (np.full((1, 1, 2, 2), 0.5), None, ["a", "b"], "later"),
        ([uniform(2)], [None, None], [["a", "b"]], "2 documents"),
        (uniform(3), read_text("doc", "one two"), ["<s>", "one", "Ġtoo"], "token 2"),
    ],
)
def test_what_does_not_fit_is_refused(patterns, document, tokens, message):
    with pytest.raises(PatternError, match=message):
        hs.score_patterns(patterns, document, tokens)


def masses(run):
    table = run.evidence.set_index(["type", "relation", "layer", "head"])
    return table[["n", "mass", "hit_rate"]].sort_index()


@pytest.fixture(scope="module")
def two_texts(gpt2_folder, tmp_path_factory):
    """A tiny model, its tokenizer, windows of two texts, and transformers' patterns of them."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("The old keys were in the house. She told them that.")
    (folder / "b.txt").write_text("They were in the old house, and she told them.")
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    windows = hs.windows(folder, tokenizer, max_length=64)
    assert len(windows) == 2
    assert len(windows[0]) != len(windows[1])
    return model, tokenizer, windows


def attention(model, window):
    with torch.no_grad():
        ids = torch.tensor(window.tokens)[None]
        return torch.cat(model(ids, output_attentions=True).attentions).numpy()


def test_arrays_a_function_a_padded_batch_and_a_cache_give_the_same_evidence(
    two_texts, gpt2_folder
):
    model, _, windows = two_texts
    arrays = [attention(model, window) for window in windows]
    expected = masses(hs.score_patterns(arrays, windows))
    by_function = hs.score_patterns(lambda window: attention(model, window), windows)
    assert masses(by_function).equals(expected)

    longest = max(map(len, windows))
    rows = [np.pad(window.tokens, (0, longest - len(window))) for window in windows]
    mask = [np.arange(longest) < len(window) for window in windows]
    with torch.no_grad():
        ids, mask = torch.tensor(np.array(rows)), torch.tensor(np.array(mask)).long()
        batch = model(ids, attention_mask=mask, output_attentions=True).attentions
    assert isinstance(batch, tuple)
    assert batch[0].shape[0] == 2
    assert np.allclose(
        masses(hs.score_patterns(batch, windows)), expected, atol=1e-5, equal_nan=True
    )

    from transformer_lens import ActivationCache

    cache = ActivationCache(
        {f"blocks.{i}.attn.hook_pattern": layer for i, layer in enumerate(batch)}, model=None
    )
    assert np.allclose(
        masses(hs.score_patterns(cache, windows)), expected, atol=1e-5, equal_nan=True
    )


def test_a_list_that_may_be_one_of_layers_is_refused(two_texts):
    model, _, windows = two_texts
    n = min(map(len, windows))
    cut = [window.cut(n) for window in windows]
    layers = model(
        torch.tensor(np.stack([w.tokens for w in cut])), output_attentions=True
    ).attentions
    assert len(layers) == len(cut) == 2  # as many layers as texts, all of one length
    expected = masses(hs.score_patterns(layers, cut))
    for ambiguous in (list(layers), torch.stack(layers)):
        with pytest.raises(PatternError, match=r"tuple\(patterns\)"):
            hs.score_patterns(ambiguous, cut)
    assert not expected.equals(masses(hs.score_patterns(tuple(layers[::-1]), cut)))
    three = [*layers, layers[0]]  # no list of two texts
    assert masses(hs.score_patterns(three, cut)).equals(
        masses(hs.score_patterns(tuple(three), cut))
    )


@pytest.mark.parametrize("has_mask", [True, False])
def test_padding_on_the_left_is_refused(two_texts, has_mask):
    model, _, windows = two_texts
    longest = max(map(len, windows))
    rows = np.array([np.pad(w.tokens, (longest - len(w), 0)) for w in windows])
    mask = np.array([np.pad(np.ones(len(w), int), (longest - len(w), 0)) for w in windows])
    options = {"attention_mask": torch.tensor(mask)} if has_mask else {}
    layers = model(torch.tensor(rows), output_attentions=True, **options).attentions
    with pytest.raises(PatternError, match="right"):
        hs.score_patterns(layers, windows)


def test_patterns_that_sdpa_leaves_out_name_the_option_that_keeps_them(two_texts, gpt2_folder):
    _, _, windows = two_texts
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="sdpa").eval()
    given = model(torch.tensor(windows[0].tokens)[None], output_attentions=True).attentions
    for patterns in (given, None):
        with pytest.raises(PatternError, match=r'attn_implementation="eager"'):
            hs.score_patterns(patterns, windows[0])


def test_a_document_longer_than_its_pattern_is_cut(two_texts):
    """Equal to a text that ends there: the words that are left have the same places and targets."""
    model, _, windows = two_texts
    window, n = windows[0], 9
    short = attention(model, window)[..., :n, :n]
    cut = window.cut(n)
    assert len(cut) == n
    assert int(cut.words.last.max()) < n
    assert masses(hs.score_patterns([short], [window])).equals(
        masses(hs.score_patterns([short], [cut]))
    )
    tokens = list(window.strings[:n])
    document = read_text("a", "".join(window.strings[1:]))
    spelled = hs.score_patterns(short, document, tokens)
    assert masses(spelled).equals(masses(hs.score_patterns([short], [cut])))


def test_patterns_without_a_beginning_of_text_token_are_scored():
    """The first token is the text's own; a previous-token head still scores 1 on the others."""
    document = read_text("doc", "one two three four")
    window = hs.window_of_tokens(["one", " two", " three", " four"], document, bos=False)
    assert [window.strings[i] for i in window.words.first] == [" two", " three", " four"]
    head = np.eye(4, k=-1)
    head[0, 0] = 1
    run = hs.score_patterns(head[None, None], window)
    row = run.evidence.set_index("relation").loc["offset-1"]
    assert (row["n"], row["mass"]) == (2, 1.0)


def test_rows_with_a_learned_sink_are_read_when_they_are_announced():
    """Half of each row goes to the sink: the mass of a previous-token head is 0.5."""
    words = ["<s>", *(f"w{i}" for i in range(40))]
    head = np.eye(41, k=-1) / 2
    head[0, 0] = 0.5
    with pytest.raises(PatternError, match="sinks=True"):
        hs.score_patterns(head[None, None], None, words, types=["positional"])
    run = hs.score_patterns(head[None, None], None, words, types=["positional"], sinks=True)
    row = run.evidence.set_index("relation").loc["offset-1"]
    assert row["mass"] == pytest.approx(0.5)
    with pytest.raises(PatternError):
        hs.score_patterns(head[None, None] * 3, None, words, types=["positional"], sinks=True)


@pytest.mark.parametrize(
    ("texts", "tokens", "blocks"), [(1, 400, 8), (2, 200, 8), (4, 300, 32), (1, 120, 2)]
)
def test_few_texts_are_cut_into_stretches_as_the_notes_state(texts, tokens, blocks):
    """A head on the previous token has its tag from 8 stretches on; one that looks evenly never."""
    rng = np.random.default_rng(0)
    even = uniform(tokens)[0, 0]
    previous = np.eye(tokens, k=-1)
    previous[0, 0] = 1
    patterns = np.stack([0.9 * previous + 0.1 * even, even])[None]
    words = [["<s>", *(f"w{i}" for i in rng.permutation(9999)[: tokens - 1])] for _ in range(texts)]
    run = hs.score_patterns([patterns] * texts, None, words, types=["positional"])
    assert any(f"{blocks} blocks" in note for note in run.info["notes"])
    rows = run.evidence[run.evidence["relation"] == "offset-1"].set_index("head")
    assert rows["tagged"].tolist() == [blocks >= 8, False]
    assert rows["ci_low"].notna().all() == (blocks >= 8)
    # the sums are those of the whole text; the second query may have no control
    assert rows.loc[1, "n"] == pytest.approx(texts * (tokens - 2), abs=texts)
    mean = np.mean([1 / (query + 1) for query in range(2, tokens)])
    assert rows.loc[1, "mass"] == pytest.approx(mean, abs=5e-3)


def one_head(n: int, layers: int = 1, heads: int = 1) -> np.ndarray:
    return np.tile(uniform(n), (layers, heads, 1, 1))


@pytest.mark.parametrize(
    "patterns",
    [
        [],
        np.array([]),
        np.zeros((1, 1, 0, 0)),
        [[[[1.0], [0.5, 0.5], [0.3, 0.3, 0.4]]]],
        [one_head(3), one_head(3, layers=2)],
        [one_head(3), one_head(3, heads=2)],
        "a function",
    ],
)
def test_empty_and_ragged_patterns_are_one_sentence(patterns):
    texts = 1
    if isinstance(patterns, list) and len(patterns) == 2:
        texts = 2
    if isinstance(patterns, str):  # it gives one head, then two
        texts, heads = 2, iter((1, 2))
        patterns = lambda window: one_head(3, heads=next(heads))  # noqa: E731
    with pytest.raises(PatternError) as error:
        hs.score_patterns(patterns, None, [["<s>", "a", "b"]] * texts)
    assert "broadcast" not in str(error.value)
    assert "inhomogeneous" not in str(error.value)
