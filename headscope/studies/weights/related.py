"""Relation heads from weights alone: which words does a head make of a word?

MAPS (Elhelo and Geva 2024, arXiv 2412.11965) reads relations off W_E W_V W_O W_U: a head holds one
if, for many of its pairs, the second word is among the tokens that the head raises most when it
reads the first. Here a pair counts where its word comes first among all words of the list, the
word itself and its other forms among them. Thus a head does not pass that raises any capital
(other words' answers), copies (the word itself), or raises whatever belongs to the word (its other
forms). Within a row the length by which a norm divides is the same number, and changes no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import gammaln
from torch import Tensor

from headscope.measure.bootstrap import interval, resample
from headscope.models.load import Model
from headscope.statistics.conditions import MAX_Q, TIMES_CONTROL
from headscope.statistics.estimates import adjusted
from headscope.studies.weights.copying import effective_embedding, folded_unembedding
from headscope.studies.weights.factors import HeadFactors, plain
from headscope.studies.weights.listed import FEWEST, Listed, listed_relations

FLOOR = 0.2
"""Least share of the words; ours, as is the next."""
IN_VOCABULARY = 0.1
"""Least share of the words for which a right one is among the `NEAREST` of all tokens."""
NEAREST = 10
"""Tokens of the vocabulary among which MAPS looks for the word."""
EXAMPLES = 3
"""Words that are shown of a head, with as many tokens each."""
HOLDS = "holds"
SIGNS = {"raises": 1.0, "lowers": -1.0}
COLUMNS = [
    *(
        "layer",
        "head",
        "relation",
        "sign",
        "pairs",
        "score",
        "control",
        "rival",
        "rival_is",
        "lift",
    ),
    *("ci_low", "ci_high", "q_value", "but_itself", "alike", "contested"),
    *("top_10", "verdict", "says"),
]


def related_heads(
    model: Model, factors: HeadFactors, *, seed: int = 0
) -> tuple[pd.DataFrame, dict[str, int]]:
    """A row per head, relation and sign, those that hold first; the columns are `COLUMNS`.

    - `score`: the share of words for which the token that the head raises (lowers) most, of all
      in the list, is a right one; `but_itself` the same with the word itself left out, and `alike`
      what that is for a head that writes the word's own unembedding: the word most like it.
      `contested` is the score among the words for which likeness is wrong.
    - `control`: the mean of the score when the answers are dealt anew to the words.
    - `rival`: the share for which a rival comes first, of the kind that does so most often.
    - `lift`: score less the larger of the two, with its interval over words. `q_value`: with the
      answers dealt anew λ = words × control hits are expected, and m or more have at most the
      probability λᵐ / m! (Markov's inequality for the number of sets of m hits, and Maclaurin's
      for their sum); Benjamini–Hochberg over all rows.
    - `verdict`: `holds`, or what speaks against it; empty where not even `but_itself` reaches the
      floor. With a verdict come `top_10`, the share of words with a right one among the ten first
      of the whole vocabulary, as MAPS counts, and `says`, what a few words become.

    Args:
        model: a loaded model.
        factors: its folded matrices.
        seed: seeds the resamples of words.

    Returns:
        the table, and the relations that have too few words, with their number.
    """
    relations, counts = listed_relations(model)
    if not relations:
        return pd.DataFrame(columns=COLUMNS), counts
    unembedding = folded_unembedding(model)
    parts = [_relation(model, factors, listed, unembedding, seed) for listed in relations]
    table = pd.concat(parts, ignore_index=True)
    table["q_value"] = adjusted(table.pop("p_value").to_numpy())
    table = table.assign(top_10=np.nan, says="", verdict="")
    near = (table[["score", "but_itself"]] >= FLOOR).any(axis=1)
    for listed in relations:
        for (layer, head), rows in table[near & (table["relation"] == listed.name)].groupby(
            ["layer", "head"]
        ):
            scores = _written(model, factors, listed, (layer, head)) @ unembedding
            for row in rows.itertuples():
                share, says = _in_the_vocabulary(model, listed, scores * SIGNS[row.sign])
                facts = [share, says, _verdict(row, share)]
                table.loc[row.Index, ["top_10", "says", "verdict"]] = facts
    table["held"] = table["verdict"] == HOLDS
    order = ["held", "top_10", "lift"]
    return table.sort_values(order, ascending=False, kind="stable", ignore_index=True)[
        COLUMNS
    ], counts


def _verdict(row: Any, share: float) -> str:
    """The first thing that speaks against a head's holding a relation."""
    if row.score < max(FLOOR, TIMES_CONTROL * row.rival):
        return f"{row.sign} {row.rival_is}"
    if row.score < TIMES_CONTROL * row.control:
        return f"{row.sign} any such word"
    if row.ci_low <= 0 or row.q_value >= MAX_Q:
        return "may be chance"
    if round(row.pairs * (1 - row.alike)) < FEWEST:
        return "likeness tells it too"
    if row.contested < FLOOR:
        return f"{row.sign} what is alike"
    return HOLDS if share >= IN_VOCABULARY else f"{row.sign} other tokens more"


def _relation(
    model: Model, factors: HeadFactors, listed: Listed, unembedding: Tensor, seed: int
) -> pd.DataFrame:
    """All heads of a model on one relation, both signs."""
    towards = unembedding[:, torch.from_numpy(listed.candidates)]
    draws = resample(len(listed.sources), np.random.default_rng(seed))
    answers = listed.right.sum(0) / len(listed.sources)
    similarity = unembedding[:, torch.from_numpy(listed.sources)].T @ towards
    like = _but_itself(listed, similarity.numpy())
    rows = []
    for layer, reads in _reads(model, listed.sources):
        value, output = factors.value[layer], factors.output[layer]
        scores = ((reads @ value) @ (output @ towards)).numpy()  # [head word candidate]
        for sign, times in SIGNS.items():
            first = (times * scores).argmax(-1)
            shares = _shares(listed, first, answers, draws)
            others = _but_itself(listed, times * scores).mean(-1)
            share_among_others = _share_among(_right(listed, first), ~like)
            rows.append(
                shares.assign(
                    layer=layer, sign=sign, but_itself=others, contested=share_among_others
                )
            )
    return pd.concat(rows, ignore_index=True).assign(relation=listed.name, alike=like.mean())


def _but_itself(
    listed: Listed, scores: Float[ndarray, "*head word candidate"]
) -> Bool[ndarray, "*head word"]:
    """True where the first candidate, the word itself left out, is right."""
    return _right(listed, np.where(listed.rivals[0], -np.inf, scores).argmax(-1))


def _right(listed: Listed, first: Int[ndarray, "*head word"]) -> Bool[ndarray, "*head word"]:
    is_right: ndarray = listed.right[np.arange(first.shape[-1]), first]
    return is_right


def _share_among(
    right: Bool[ndarray, "head word"], some: Bool[ndarray, " word"]
) -> Float[ndarray, " head"]:
    """The share that is right of some words; NaN of none."""
    if not some.any():
        return np.full(len(right), np.nan)
    return np.asarray(right[:, some].mean(-1))


def _shares(
    listed: Listed,
    first: Int[ndarray, "head word"],
    answers: Float[ndarray, " candidate"],
    draws: Float[ndarray, "resample word"],
) -> pd.DataFrame:
    """Share of right first candidates for each head, and what that is compared with."""
    words = np.arange(first.shape[1])
    hits = _right(listed, first).astype(float)
    rivals = listed.rivals[:, words, first].astype(float)  # [rival head word]
    dealt = answers[first]
    score, control, shares = hits.mean(-1), dealt.mean(-1), rivals.mean(-1)
    nearest_rival = shares.argmax(0)
    rival = shares.max(0)
    against = np.where(
        (control >= rival)[:, None], dealt, rivals[nearest_rival, np.arange(len(nearest_rival))]
    )
    low, high = interval((hits - against).T, np.ones(len(words)), draws)
    right, expected = hits.sum(-1), control * len(words)
    # where nothing is expected nothing is found
    bound = right * np.log(np.where(expected > 0, expected, 1)) - gammaln(right + 1)
    return pd.DataFrame(
        {
            "head": np.arange(len(first)),
            "pairs": len(words),
            "score": score,
            "control": control,
            "rival": rival,
            "rival_is": [listed.rival_names[index] for index in nearest_rival],
            "lift": score - np.maximum(control, rival),
            "ci_low": low,
            "ci_high": high,
            "p_value": np.exp(np.minimum(bound, 0.0)),
        }
    )


def _reads(
    model: Model, tokens: Int[ndarray, " word"]
) -> Iterator[tuple[int, Float[Tensor, "word d_model"]]]:
    """The input of each layer's heads for a word: its embedding, later what block 0 makes of it."""
    token_ids = torch.from_numpy(tokens)
    later = effective_embedding(model, token_ids)
    for layer in range(model.layers):
        yield layer, plain(model.bridge.W_E)[token_ids] if layer == 0 else later


def _written(
    model: Model, factors: HeadFactors, listed: Listed, at: tuple[int, int]
) -> Float[Tensor, "word d_model"]:
    reads = dict(_reads(model, listed.sources))[at[0]]
    return reads @ factors.value[at] @ factors.output[at]


def _in_the_vocabulary(
    model: Model, listed: Listed, scores: Float[Tensor, "word token"]
) -> tuple[float, str]:
    """Share of right words among the first ten of all tokens, and what a few words become."""
    first = scores.topk(min(NEAREST, scores.shape[1])).indices.numpy()
    right = [listed.candidates[row] for row in listed.right]
    share = np.mean([np.isin(a, b).any() for a, b in zip(first, right, strict=True)])
    spell = model.tokenizer.spell
    lines = []
    for i in np.linspace(0, len(first) - 1, EXAMPLES).round().astype(int):
        word, *others = spell([int(listed.sources[i]), *first[i, :EXAMPLES].tolist()])
        lines.append(f"{word.strip()}: {', '.join(word_text.strip() for word_text in others)}")
    return float(share), "; ".join(lines)
