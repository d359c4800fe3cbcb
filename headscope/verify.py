"""A run against the heads and scores that the literature publishes for the same model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.data import data_folder
from headscope.errors import ChoiceError, HeadscopeError, RunError
from headscope.heads import head_name
from headscope.run import Run

if TYPE_CHECKING:
    from headscope.models import Model

ALIASES = {
    "gpt2": "gpt2-small",
    "openai-community/gpt2": "gpt2-small",
    "distilbert/distilgpt2": "distilgpt2",
    "openai-community/gpt2-xl": "gpt2-xl",
}
"""The literature's names for models that the hub calls otherwise."""
FUZZY = {("gpt2-small", 5, 8), ("gpt2-small", 5, 9), ("gpt2-small", 0, 10)}
"""Heads that Wang et al. 2022 (appendix C) call fuzzy: they do not show on random repeats."""
REPEATS, SEED = 8, 0


@dataclass(frozen=True)
class Metric:
    """A published score matrix: which diagonal of which stimulus, and what to compare it with."""

    offset_from_end: int | None
    """The diagonal at −(n + this); None for the diagonal at −1."""
    length: int
    """n: tokens that are repeated once, without BOS."""
    relation: str
    """The run's own relation, where the model cannot be run again."""
    accepted: float
    """Accepted largest difference."""
    strong: float
    """Heads above it are published as clear cases."""


METRICS = {
    "induction_random_repeat_len100": Metric(-1, 100, "induction/repeat", 0.07, 0.8),
    "induction_random_repeat_len50": Metric(-1, 50, "induction/repeat", 0.07, 0.8),
    "duplicate_token_random_repeat": Metric(0, 100, "induction/duplicate", 0.03, 0.5),
    "prev_token_random_repeat": Metric(None, 100, "positional/offset-1-random", 0.03, 0.9),
}


@dataclass(frozen=True)
class Verification:
    """What `headscope verify` found."""

    model: str
    heads: pd.DataFrame
    """A row per published head: `layer,head,type,relation,published,mass,kind,found`; `kind` is
    `clear`, `weak` (published below the relation's floor) or `fuzzy`."""
    scores: pd.DataFrame
    """A row per published matrix: `metric`, the run's `relation`, `pearson`,
    `largest_difference` and the head it is `at`, `accepted`, `within`, and `same_set`: the same
    heads are strong."""
    measured: bool
    """Whether the model ran on the published stimulus."""
    notes: tuple[str, ...]

    @property
    def recall(self) -> float:
        """Share of the clear published heads whose tag the run found, in [0, 1]; NaN if none."""
        clear = self.heads[self.heads["kind"] == "clear"]
        return float(clear["found"].mean()) if len(clear) else float("nan")

    @property
    def holds(self) -> bool:
        """Whether the matrices lie within the accepted differences.

        Without the published stimulus one matrix for each relation must: those for 50 and for
        100 tokens differ among themselves by up to 0.15. Without any
        matrix all clear heads must be found.
        """
        if self.scores.empty:
            return self.recall == 1
        if self.measured:
            return bool(self.scores["within"].all())
        return bool(self.scores.groupby("relation")["within"].any().all())


def verify(run: Run, *, model: str | None = None, measure: bool = True) -> Verification:
    """Compare a run with what is published for its model.

    Args:
        run: a run of GPT-2, DistilGPT-2 or another model with published heads.
        model: the published name, when the run's model has another (a local folder).
        measure: run the model again on the stimulus of the published matrices, if it can be had;
            otherwise the run's own masses are compared, which have another stimulus.

    Raises:
        ChoiceError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model.
    """
    known = pd.read_csv(data_folder() / "known_heads.csv")
    scores = pd.read_csv(data_folder() / "published_scores.csv")
    asked = model or str(run.info["model"]["name"])
    name = ALIASES.get(asked, asked)
    names = sorted(set(known["model"]) | set(scores["model"]))
    if name not in names:
        raise ChoiceError("published model", asked, names)
    known, scores = known[known["model"] == name], scores[scores["model"] == name]
    _check_shape(run, name, known, scores)
    notes: list[str] = []
    own = _measure_again(run, notes) if measure and len(scores) else None
    if own is None and len(scores):
        notes.append(
            "compared with the run's own masses: copies of 25 to 64 tokens behind a BOS, where the "
            "published scores have 100 or 50 tokens and none"
        )
    heads, compared = _recall(run, known), _compare(run, scores, own)
    return Verification(name, heads, compared, own is not None, tuple(notes))


def diagonal_scores(
    model: Model, length: int, *, repeats: int = REPEATS, seed: int = SEED
) -> dict[int | None, Float[ndarray, "layer head"]]:
    """The published stimulus and score: means of diagonals on random tokens repeated once, no BOS.

    The diagonals are those at −1 (key None), −n (key 0) and −(n − 1) (key −1), as in
    TransformerLens' Exploratory_Analysis_Demo. Unlike headscope's masses they average over all
    places of the diagonal, the first copy's among them for −1.

    Raises:
        HeadscopeError: the model's context is shorter than the stimulus.
    """
    import torch

    from headscope.engine import stream_patterns

    if model.context < 2 * length:
        raise HeadscopeError(
            f"{model.name}: context of {model.context} tokens; the stimulus has {2 * length}"
        )
    rng = np.random.default_rng(seed)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    copied = rng.choice(vocabulary, (repeats, length))
    tokens = torch.from_numpy(np.concatenate([copied, copied], 1)).to(model.device)
    offsets = {None: 1, 0: length, -1: length - 1}
    found = {key: np.zeros((model.layers, model.heads)) for key in offsets}

    def take(layer: int, pattern: torch.Tensor) -> None:
        for key, offset in offsets.items():
            diagonal = pattern.float().diagonal(-offset, -2, -1)
            found[key][layer] = diagonal.mean((0, -1)).cpu().numpy()

    stream_patterns(model.engine, tokens, take)
    return found


def _check_shape(run: Run, name: str, known: pd.DataFrame, scores: pd.DataFrame) -> None:
    shape = (int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1)
    published = pd.concat([known, scores])[["layer", "head"]].max()
    least = (int(published["layer"]) + 1, int(published["head"]) + 1)
    if len(scores) and shape != least:
        raise RunError(
            f"this run has {shape[0]} layers × {shape[1]} heads, and {name} has "
            f"{least[0]} × {least[1]}"
        )
    if shape[0] < least[0] or shape[1] < least[1]:
        raise RunError(
            f"this run has {shape[0]} layers × {shape[1]} heads, and {name} has a published head "
            f"{head_name(least[0] - 1, least[1] - 1)}"
        )


def _measure_again(run: Run, notes: list[str]) -> dict[str, ndarray] | None:
    if not run.info["model"].get("weights_sha256"):
        return None
    from headscope.models import load_model

    facts = run.info["model"]
    try:
        model = load_model(facts["name"], revision=facts.get("revision") or None)
    except HeadscopeError as error:
        notes.append(f"the model is not at hand: {error}")
        return None
    if model.weights_sha256 != facts["weights_sha256"]:
        raise RunError(f"{facts['name']} has other weights now than when this run was made")
    by_length = {m.length: diagonal_scores(model, m.length) for m in METRICS.values()}
    return {name: by_length[m.length][m.offset_from_end] for name, m in METRICS.items()}


def _recall(run: Run, known: pd.DataFrame) -> pd.DataFrame:
    floors = {name: rule.floor for name, rule in run.rules.items()}
    evidence = run.evidence.assign(id=run.evidence["type"] + "/" + run.evidence["relation"])
    rows = []
    for (layer, head, relation), claims in known.groupby(["layer", "head", "relation"]):
        at = evidence[(evidence["layer"] == layer) & (evidence["head"] == head)]
        own = at[at["id"] == relation]
        if own.empty:
            own = at[at["id"] == f"{relation}-random"]  # a run on random tokens alone
        if own.empty:
            continue
        published = claims["score"].max()
        kind = "weak" if published < floors[relation] else "clear"
        if (known["model"].iloc[0], layer, head) in FUZZY:
            kind = "fuzzy"
        rows.append(
            {
                "layer": layer, "head": head, "type": claims["type"].iloc[0], "relation": relation,
                "published": published, "mass": own["mass"].iloc[0], "kind": kind,
                "found": bool(own["tagged"].iloc[0]),
            }
        )  # fmt: skip
    columns = ["layer", "head", "type", "relation", "published", "mass", "kind", "found"]
    return pd.DataFrame(rows, columns=columns)


def _compare(run: Run, scores: pd.DataFrame, own: dict[str, ndarray] | None) -> pd.DataFrame:
    shape = (int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1)
    rows = []
    for name, metric in METRICS.items():
        table = scores[scores["metric"] == name].sort_values(["layer", "head"])
        ours = own[name] if own is not None else _masses(run, metric.relation, shape)
        if table.empty or ours is None:
            continue
        published = table["value"].to_numpy().reshape(shape)
        difference = np.abs(ours - published)
        layer, head = np.unravel_index(difference.argmax(), shape)
        strong = metric.strong
        rows.append(
            {
                "metric": name,
                "relation": metric.relation,
                "pearson": float(np.corrcoef(ours.ravel(), published.ravel())[0, 1]),
                "largest_difference": float(difference.max()),
                "at": head_name(int(layer), int(head)),
                "accepted": metric.accepted,
                "within": bool(difference.max() <= metric.accepted),
                "same_set": bool(((ours >= strong) == (published >= strong)).all()),
            }
        )
    return pd.DataFrame(rows, columns=_SCORE_COLUMNS)


_SCORE_COLUMNS = [
    "metric", "relation", "pearson", "largest_difference", "at", "accepted", "within", "same_set",
]  # fmt: skip


def _masses(run: Run, relation: str, shape: tuple[int, int]) -> ndarray | None:
    own = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation]
    if len(own) != shape[0] * shape[1]:
        return None
    return np.asarray(own.sort_values(["layer", "head"])["mass"]).reshape(shape)
