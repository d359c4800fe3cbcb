"""Patterns that come from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.corpus.text import read_text
from headscope.errors import CorpusError, PatternError
from tests.relations.examples import KEYS, KEYS_TEXT


def uniform(n: int) -> np.ndarray:
    a = np.tril(np.ones((1, 1, n, n)))
    return a / a.sum(-1, keepdims=True)


def test_given_patterns_get_the_evidence_that_the_model_gets(gpt2_folder, keys_file):
    """The same text through `classify`, and through transformers' patterns and token strings."""
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


def test_many_documents_give_intervals_and_tags():
    rng = np.random.default_rng(0)
    n, patterns, tokens = 12, [], []
    for _ in range(40):
        head = np.eye(n, k=-1)
        head[0, 0] = 1
        patterns.append(np.stack([head, uniform(n)[0, 0]])[None])
        tokens.append(["<bos>", *(str(i) for i in rng.permutation(1000)[: n - 1])])
    run = hs.score_patterns(patterns, None, tokens)
    assert run.heads["primary"].tolist() == ["positional", "unclassified"]
    assert run.heads["shape"].tolist()[0] == "diagonal"
    assert run.evidence.set_index(["head", "relation"]).loc[(0, "offset-1"), "ci_low"] > 0.9


def test_a_run_of_given_patterns_can_be_written_and_asked(tmp_path):
    run = hs.score_patterns(
        uniform(len(KEYS)), KEYS_TEXT, KEYS, name="a paper", out=tmp_path / "run"
    )
    assert hs.load(tmp_path / "run").why("0.0") == run.why("0.0")
    assert "unclassified" in run.why("0.0")


@pytest.mark.parametrize(
    ("patterns", "document", "tokens", "message"),
    [
        (uniform(3), None, ["a", "b"], r"shape \(1, 1, 3, 3\), but 2 tokens need"),
        (uniform(2)[0], None, ["a", "b"], r"shape \(1, 2, 2\)"),
        (uniform(2) * 2, None, ["a", "b"], "sum to 1 over keys"),
        (uniform(2) * np.nan, None, ["a", "b"], "off by inf"),
        (np.full((1, 1, 2, 2), 0.5), None, ["a", "b"], "a query attends to a later key"),
        ([uniform(2)], [None, None], [["a", "b"]], "1 pattern arrays, 2 documents"),
        (uniform(3), read_text("doc", "one two"), ["<s>", "one", "Ġtoo"], "token 2 is ' too', but"),
        (uniform(2), read_text("doc", "one two"), ["<s>", "one"], "tokens end before the text"),
    ],
)
def test_what_does_not_fit_is_refused(patterns, document, tokens, message):
    with pytest.raises(PatternError, match=message):
        hs.score_patterns(patterns, document, tokens)


def test_nothing_to_score_is_an_error_and_not_an_empty_table():
    with pytest.raises(CorpusError, match="no relation found a query"):
        hs.score_patterns(uniform(2), None, ["<s>", "a"], types=["syntactic"])
