"""`headscope weights`: every head's weights, read without any text."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import pandas as pd
from torch import Tensor

from headscope.arguments import FLAG, either, kinds_of, takes
from headscope.evidence.result import Result
from headscope.heads import head_name
from headscope.models.load import Model
from headscope.runs.named import A_MODEL, A_RUN, run_named, the_model
from headscope.runs.reload import Again, model_of
from headscope.studies.weights.composition import Chance, k_composition, random_composition
from headscope.studies.weights.copying import copying_scores, token_map
from headscope.studies.weights.factors import HeadFactors, head_factors
from headscope.studies.weights.listed import FEWEST
from headscope.studies.weights.related import related_heads
from headscope.studies.weights.result import WARNING, WeightEvidence
from headscope.studies.weights.writes import Writes, head_writes

_ROTARY = (
    "queries and keys turn with distance (rotary embedding); K-composition is that at distance 0"
)
_GROUPS = "query heads of one group share their keys and values, and so much of their scores"
_QK_NORM = "the norms of queries and keys are not in K-composition"


@takes(model=either(A_RUN, A_MODEL), related=FLAG, **kinds_of(Again))
def weights(
    model: Any,
    *,
    revision: str | None = None,
    bos: str | None = None,
    seed: int = 0,
    related: bool = False,
    **again: Unpack[Again],
) -> WeightEvidence:
    """What the weights of every head say: copying, K-composition and writes.

    Args:
        model: a model's name as for `classify`, a run folder, a run, or a model loaded with
            `engine="lens"`. Of a run the patterns' evidence stands beside that of the weights.
        revision: branch, tag or commit on the hub, for a name.
        bos: as for `load_model`; no text is read, but a model without such a token needs one.
        seed: seeds the random matrices of the baseline, and the resamples of words.
        related: ask too which head makes of a word its opposite, past tense, capital, …
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            where a model that is loaded here is put (`cpu` unless told), `auto` taking a GPU when
            there is one.

    Raises:
        ModelError: the model cannot be loaded, or its norms cannot be folded.
        RunError: the run has no model, or its weights have changed since.
    """
    source, device = again.get("source"), again.get("device", "cpu")
    run = run_named(model, revision=revision, source=source)
    if run is not None:
        loaded = model_of(run, source=source, engine="lens", device=device)
    elif isinstance(model, Model):
        loaded = the_model(model, revision=revision)
    else:
        device = device if isinstance(model, str) else "auto"  # what is in memory stays there
        loaded = the_model(model, revision=revision, device=device, bos=bos, engine="lens")
    factors = head_factors(loaded)
    chance = random_composition(factors, seed=seed)
    pairs = _composition_table(k_composition(factors), chance)
    written = head_writes(factors)
    alike = _writes_table(written)
    heads = _copying(loaded, factors)
    heads = heads.join(_write_columns(written)).merge(_most_alike(alike), how="left")
    heads = heads.merge(_best_source(pairs), how="left").fillna({"k_from": "", "write_alike": ""})
    heads = heads.assign(k_random_mean=chance.mean, k_random_p999=chance.p999)
    if run is not None:
        heads = _beside_patterns(heads, run)
    words, few = related_heads(loaded, factors, seed=seed) if related else (None, {})
    notes = (*_notes(loaded), *_too_few(few))
    return WeightEvidence(loaded.name, heads, pairs, alike, notes, words)


def _copying(model: Model, factors: HeadFactors) -> pd.DataFrame:
    direct = copying_scores(factors, token_map(model)).numpy()
    after = copying_scores(factors, token_map(model, after_mlp=True)).numpy()
    after[0] = np.nan  # block 0 reads the embedding, before its MLP
    return _per_head(model.layers, model.heads).assign(
        ov_copying=direct.ravel(), ov_copying_mlp0=after.ravel()
    )


def _per_head(layers: int, heads: int) -> pd.DataFrame:
    layer, head = np.divmod(np.arange(layers * heads), heads)
    return pd.DataFrame({"layer": layer, "head": head})


def _write_columns(written: Writes) -> pd.DataFrame:
    columns = {
        "ov_norm": written.circuit_norm,
        "write_norm": written.output_norm,
        "write_dim": written.dimensions,
    }
    return pd.DataFrame({name: value.double().numpy().ravel() for name, value in columns.items()})


def _writes_table(written: Writes) -> pd.DataFrame:
    layers, heads, _ = written.cosine.shape
    layer, head, other = (a.ravel() for a in np.indices((layers, heads, heads)))
    table = pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "other": other,
            "write_cosine": written.cosine.double().numpy().ravel(),
            "write_chance": written.chance.double().numpy().ravel(),
        }
    )
    table = table[table["head"] < table["other"]]
    return _largest_first(table, "write_cosine")


def _most_alike(alike: pd.DataFrame) -> pd.DataFrame:
    """Each head's partner with the largest cosine; a pair counts for both of its heads."""
    turned = alike.rename(columns={"head": "other", "other": "head"})
    both = _largest_first(pd.concat([alike, turned]), "write_cosine")
    best = both.dropna().drop_duplicates(["layer", "head"])
    names = [head_name(row.layer, row.other) for row in best.itertuples()]
    return best.assign(write_alike=np.array(names, object))[
        ["layer", "head", "write_alike", "write_cosine"]
    ]


def _composition_table(scores: Tensor, chance: Chance) -> pd.DataFrame:
    names = ("earlier_layer", "earlier_head", "layer", "head")
    table = pd.DataFrame(
        {name: a.ravel() for name, a in zip(names, np.indices(scores.shape), strict=True)}
    )
    table["k_composition"] = scores.double().numpy().ravel()
    table = table[table["earlier_layer"] < table["layer"]]
    table = table.assign(k_random_mean=chance.mean, k_random_p999=chance.p999)
    return _largest_first(table, "k_composition")


def _best_source(pairs: pd.DataFrame) -> pd.DataFrame:
    best = pairs.dropna().drop_duplicates(["layer", "head"])
    names = [head_name(row.earlier_layer, row.earlier_head) for row in best.itertuples()]
    return best.assign(k_from=np.array(names, object))[["layer", "head", "k_from", "k_composition"]]


def _largest_first(table: pd.DataFrame, column: str) -> pd.DataFrame:
    return table.sort_values(column, ascending=False, kind="stable", ignore_index=True)


def _beside_patterns(heads: pd.DataFrame, run: Result) -> pd.DataFrame:
    patterns = run.heads[["layer", "head", "primary", "relation", "mass"]]
    names = [head_name(row.layer, row.head) for row in patterns.itertuples()]
    relation_of = dict(zip(names, patterns["relation"], strict=True))
    heads = heads.merge(patterns, how="left")
    return heads.assign(k_from_relation=heads["k_from"].map(relation_of).fillna(""))


def _too_few(few: dict[str, int]) -> tuple[str, ...]:
    if not few:
        return ()
    said = ", ".join(f"{name} ({count})" for name, count in few.items())
    return (f"too few pairs of words of one token, fewer than {FEWEST}: {said}",)


def _notes(model: Model) -> tuple[str, ...]:
    rotary = getattr(model.bridge.cfg, "positional_embedding_type", None) == "rotary"
    normed = any("q_norm" in block.attn._modules for block in model.bridge.blocks)
    grouped = model.key_value_heads < model.heads
    said = ((True, WARNING), (rotary, _ROTARY), (grouped, _GROUPS), (normed, _QK_NORM))
    return tuple(note for holds, note in said if holds)
