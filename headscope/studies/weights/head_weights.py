"""`headscope study weights`: every head's weights, read without any text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headscope.arguments import FLAG, either, takes
from headscope.heads import head_name
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.load import Model
from headscope.runs.reopen_model import Again, model_of
from headscope.runs.resolve import A_MODEL, A_RUN, run_named, the_model
from headscope.statistics.result import Result
from headscope.studies.weights.composition import (
    Chance,
    WeightWrites,
    effective_ranks,
    k_composition,
    random_composition,
    write_evidence,
)
from headscope.studies.weights.copying import copying_scores, token_map
from headscope.studies.weights.factors import HeadFactors, head_factors
from headscope.studies.weights.listed import FEWEST
from headscope.studies.weights.related import related_heads
from headscope.studies.weights.weights_result import WARNING, WeightEvidence

_ROTARY = (
    "queries and keys turn with distance (rotary embedding); K-composition is that at distance 0"
)
_GROUPS = "query heads of one group share their keys and values, and so much of their scores"
_QK_NORM = "the norms of queries and keys are not in K-composition"
_HEAD = ["layer", "head"]


@takes(model=either(A_RUN, A_MODEL), related=FLAG)
def weights(
    model: Any,
    *,
    revision: str | None = None,
    bos: str | None = None,
    seed: int = 0,
    related: bool = False,
    progress: Progress = True,
    **again: Unpack[Again],
) -> WeightEvidence:
    """Read the weights of every head: copying, K-composition and writes.

    Args:
        model: a model's name as for `classify`, a run folder, a run, or a model loaded with
            `engine="lens"`. Of a run the patterns' evidence stands beside that of the weights.
        revision: branch, tag or commit on the hub, for a name.
        bos: as for `classify`, for a model without a BOS token. No text is read.
        seed: seeds the random matrices of the baseline, and the resamples of words.
        related: ask too which head makes of a word its opposite, past tense, capital, …
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the steps done and the steps in all.
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            where a model that is loaded here is put (`cpu` unless told), `auto` taking a GPU when
            there is one.

    Raises:
        ModelError: the model cannot be loaded, or its norms cannot be folded.
        RunError: the run has no model, or its weights have changed since.
    """
    source, device = again.get("source"), again.get("device", "cpu")
    run = run_named(model, revision=revision, source=source)
    with progress_bar(progress, "reading weights", unit="steps") as bar:
        if run is not None:
            loaded = model_of(run, source=source, engine="lens", device=device)
        elif isinstance(model, Model):
            loaded = the_model(model, revision=revision)
        else:
            device = device if isinstance(model, str) else "auto"  # what is in memory stays there
            loaded = the_model(model, revision=revision, device=device, bos=bos, engine="lens")
        advance = Steps(bar, 5 + related).advance
        factors = head_factors(loaded)
        advance()
        chance = random_composition(factors, seed=seed)
        advance()
        pairs = _composition_table(k_composition(factors), chance)
        advance()
        written = write_evidence(factors)
        writes = _writes_table(written)
        advance()
        heads = _heads_table(loaded, factors, written)
        advance()
        words, counts = related_heads(loaded, factors, seed=seed) if related else (None, {})
    heads = heads.merge(_most_alike(writes), how="left")
    heads = heads.merge(_best_source(pairs), how="left").fillna({"k_from": "", "write_alike": ""})
    heads = heads.assign(k_random_mean=chance.mean, k_random_p999=chance.p999)
    if run is not None:
        heads = _beside_patterns(heads, run)
    notes = (*_notes(loaded), *_too_few(counts))
    return WeightEvidence(loaded.name, heads, pairs, writes, notes, words)


def _heads_table(model: Model, factors: HeadFactors, written: WeightWrites) -> pd.DataFrame:
    after = copying_scores(factors, token_map(model, after_mlp=True))
    query_key, value_output = effective_ranks(factors)
    after[0] = torch.nan  # block 0 reads the embedding, before its MLP
    return _entries(
        ("layer", "head"),
        ov_copying=copying_scores(factors, token_map(model)),
        ov_copying_mlp0=after,
        ov_norm=written.circuit_norm,
        write_norm=written.output_norm,
        write_dim=written.dimensions,
        qk_rank=query_key,
        ov_rank=value_output,
    )


def _writes_table(written: WeightWrites) -> pd.DataFrame:
    axes = ("layer", "head", "other")
    table = _entries(axes, write_cosine=written.cosine, write_chance=written.chance)
    table = table[table["head"] < table["other"]]
    return _largest_first(table, "write_cosine")


def _composition_table(scores: Tensor, chance: Chance) -> pd.DataFrame:
    axes = ("earlier_layer", "earlier_head", "layer", "head")
    table = _entries(axes, k_composition=scores)
    table = table[table["earlier_layer"] < table["layer"]]
    table = table.assign(k_random_mean=chance.mean, k_random_p999=chance.p999)
    return _largest_first(table, "k_composition")


def _entries(axes: Sequence[str], **tensors: Tensor) -> pd.DataFrame:
    """A row per entry of some tensors of one shape: its place along each axis, and the entries."""
    shape = next(iter(tensors.values())).shape
    places = zip(axes, np.indices(shape), strict=True)
    columns = {axis: index.ravel() for axis, index in places}
    columns |= {name: tensor.double().numpy().ravel() for name, tensor in tensors.items()}
    return pd.DataFrame(columns)


def _most_alike(similarity: pd.DataFrame) -> pd.DataFrame:
    """Each head's partner with the largest cosine; a pair counts for both of its heads."""
    mirrored = similarity.rename(columns={"head": "other", "other": "head"})
    both = _largest_first(pd.concat([similarity, mirrored]), "write_cosine")
    return _partners(both, "write_alike", ("layer", "other"))[
        [*_HEAD, "write_alike", "write_cosine"]
    ]


def _best_source(pairs: pd.DataFrame) -> pd.DataFrame:
    best = _partners(pairs, "k_from", ("earlier_layer", "earlier_head"))
    return best[[*_HEAD, "k_from", "k_composition"]]


def _partners(pairs: pd.DataFrame, column: str, axes: tuple[str, str]) -> pd.DataFrame:
    """The first pair of each head, with the name of the other head as a column."""
    best = pairs.dropna().drop_duplicates(_HEAD)
    names = [head_name(*at) for at in best[[*axes]].itertuples(index=False)]
    return best.assign(**{column: np.array(names, object)})


def _largest_first(table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.sort_values(column, ascending=False, kind="stable", ignore_index=True)


def _beside_patterns(heads: pd.DataFrame, run: Result) -> pd.DataFrame:
    patterns = run.heads[[*_HEAD, "primary", "relation", "mass"]]
    names = [head_name(row.layer, row.head) for row in patterns.itertuples()]
    relation_of = dict(zip(names, patterns["relation"], strict=True))
    heads = heads.merge(patterns, how="left")
    return heads.assign(k_from_relation=heads["k_from"].map(relation_of).fillna(""))


def _too_few(counts: dict[str, int]) -> tuple[str, ...]:
    if not counts:
        return ()
    listed = ", ".join(f"{name} ({count})" for name, count in counts.items())
    return (f"too few pairs of words of one token, fewer than {FEWEST}: {listed}",)


def _notes(model: Model) -> tuple[str, ...]:
    rotary = getattr(model.bridge.cfg, "positional_embedding_type", None) == "rotary"
    normed = any("q_norm" in block.attn._modules for block in model.bridge.blocks)
    grouped = model.key_value_heads < model.heads
    conditions = ((True, WARNING), (rotary, _ROTARY), (grouped, _GROUPS), (normed, _QK_NORM))
    return tuple(note for holds, note in conditions if holds)
