"""A run against the heads and scores that the literature publishes for the same model."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from numpy import ndarray

from headscope.arguments import FLAG, NAME, PATH, kinds_of, maybe, takes
from headscope.corpus.shipped import ALIASES, data_folder
from headscope.errors import ChoiceError, HeadscopeError, ModelError, RunError
from headscope.evidence.result import Result
from headscope.heads import head_name
from headscope.relations.writes.effect import WRITES
from headscope.runs.named import A_RUN, the_run
from headscope.runs.reload import Again
from headscope.studies.validation.published_lists import METRICS, compare_lists, read_related
from headscope.studies.validation.published_ranks import (
    RANK_COLUMNS,
    compare_ranks,
    left_out,
    model_in,
    not_scored,
    read_scores,
)
from headscope.studies.validation.published_stimulus import (
    EXPLORATORY,
    MAIN,
    Stimulus,
    diagonal_scores,
)
from headscope.studies.validation.verify_result import Verification

FUZZY = {("gpt2-small", 5, 8), ("gpt2-small", 5, 9), ("gpt2-small", 0, 10)}
"""Heads that Wang et al. 2022 (appendix C) call fuzzy: they do not show on random repeats."""


ELSEWHERE = {
    "bert-base": "published on other text and labels (Wall Street Journal in Stanford "
    "Dependencies; OntoNotes for coreference; BERT-base uncased), as the share of words whose "
    "arg-max word is right: hit_rate in evidence.csv is the like of it, and mass is not"
}
"""What is to be known of scores that no run repeats."""


@dataclass(frozen=True)
class Metric:
    """A published score matrix: which diagonal of which stimulus, and what to compare it with."""

    stimulus: Stimulus
    offset: int
    """How far below the main diagonal the scored one lies."""
    relation: str
    """The run's own relation, where the model cannot be run again."""
    accepted: float
    """Accepted largest difference on the published stimulus. On the very same tokens only rounding
    is left; where the notebook sets no seed, two draws differ by up to this much."""
    accepted_elsewhere: float
    """The same for the run's own stimulus, which is another."""
    strong: float
    """Heads above it are published as clear cases."""


MATRICES = {
    "induction_random_repeat_len100": Metric(EXPLORATORY, 99, "induction/repeat", 0.01, 0.07, 0.8),
    "induction_random_repeat_len50": Metric(MAIN, 49, "induction/repeat", 0.07, 0.07, 0.8),
    "duplicate_token_random_repeat": Metric(
        EXPLORATORY, 100, "induction/duplicate", 0.01, 0.03, 0.5
    ),
    "prev_token_random_repeat": Metric(
        EXPLORATORY, 1, "positional/offset-1-random", 0.01, 0.03, 0.9
    ),
}


@takes(
    run=A_RUN,
    model=maybe(NAME),
    measure=FLAG,
    scores=maybe(PATH),
    related=maybe(PATH),
    **kinds_of(Again),
)
def verify(
    run: Result | str | Path,
    *,
    model: str | None = None,
    measure: bool = True,
    scores: str | Path | None = None,
    related: str | Path | None = None,
    **again: Unpack[Again],
) -> Verification:
    """Compare a run with what is published for its model.

    Args:
        run: a run, or its folder, of GPT-2, DistilGPT-2, BERT-base or another model with published
            heads.
        model: the published name, when the run's model has another (a local folder).
        measure: run the model again on the stimulus of the published matrices, if it can be had;
            otherwise the run's own masses are compared, which have another stimulus.
        scores: a file of published scores of every head, `model,revision,metric,layer,head,value`;
            their ranks are compared (`compare_ranks`).
        related: what `headscope weights --table related` wrote of this model: published lists of
            heads that make words of words are compared with it (`compare_lists`).
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            `cpu`, `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        ChoiceError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, or the
            file holds no scores.
    """
    run = the_run(run)
    asked = model or str(run.info["model"]["name"])
    ranks, ranked, notes = _ranked(run, scores, asked, related)
    known = pd.read_csv(data_folder() / "known_heads.csv")
    matrices = pd.read_csv(data_folder() / "published_scores.csv")
    name = ALIASES.get(asked, asked)
    names = sorted(set(known["model"]) | set(matrices["model"]))
    if name not in names and ranked is None:
        raise ChoiceError("published model", asked, names)
    known, matrices = known[known["model"] == name], matrices[matrices["model"] == name]
    if len(known) or len(matrices):
        _check_shape(run, name, known, matrices)
    notes += [ELSEWHERE[name]] if name in ELSEWHERE else []
    own = None
    if measure and len(matrices):
        own = _measure_again(run, again, set(matrices["metric"]), notes)
    if own is None and len(matrices):
        notes.append(
            "compared with the run's own masses: copies of 25 to 64 tokens behind a BOS, where the "
            "published scores have 100 or 50 tokens and none"
        )
    heads, compared = _recall(run, known), _compare(run, matrices, own)
    name = name if name in names else str(ranked)
    return Verification(name, heads, compared, own is not None, tuple(notes), ranks)


def _ranked(
    run: Result, scores: str | Path | None, asked: str, related: str | Path | None
) -> tuple[pd.DataFrame, str | None, list[str]]:
    """How a file of published scores ranks the run's heads, the model's name in it, and notes."""
    if scores is None:
        if related is not None:
            raise RunError(
                f"{related}: words of words are compared with published lists, and no file of "
                "scores came; add --scores FILE"
            )
        return pd.DataFrame(columns=RANK_COLUMNS), None, []
    table = read_scores(Path(scores))
    name = model_in(table, asked)
    if name is None:
        raise ChoiceError("published model in that file", asked, sorted(set(table["model"])))
    found = compare_ranks(run, table, name)
    if related is not None:
        lists = compare_lists(run, table, name, read_related(Path(related)))
        found = pd.concat([each for each in (found, lists) if len(each)] or [found])
    others = [each for each in left_out(table, name) if each not in set(found["metric"])]
    notes = ["published ranks are of another stimulus than this run's"]
    if related is None and set(others) & set(METRICS):
        notes.append(
            "lists of heads that make words of words are compared with --related FILE, which "
            "headscope weights --table related --out FILE writes"
        )
    notes += [
        f"{metric} is not compared: this run has not scored {relation}, which is held against it"
        for metric, relation in not_scored(run, table, name).items()
    ]
    if others:
        notes.append(f"not compared, for nothing here is like it: {', '.join(others)}")
    return found.reset_index(drop=True), name, notes


def _check_shape(run: Result, name: str, known: pd.DataFrame, scores: pd.DataFrame) -> None:
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


def _measure_again(
    run: Result, again: Again, wanted: Set[str], notes: list[str]
) -> dict[str, ndarray] | None:
    """The published matrices as this run's model gives them, or None and a note why not."""
    if not run.info["model"].get("weights_sha256"):
        return None
    from headscope.runs.reload import model_of

    try:
        model = model_of(run, **again)
    except ModelError as error:
        notes.append(f"the model is not at hand: {error}")
        return None
    metrics = {name: metric for name, metric in MATRICES.items() if name in wanted}
    found: dict[str, ndarray] = {}
    for stimulus in dict.fromkeys(metric.stimulus for metric in metrics.values()):
        try:
            stimulus.check(model)
        except HeadscopeError as error:
            notes.append(f"the published stimulus does not apply: {error}")
            return None
        own = {name: metric for name, metric in metrics.items() if metric.stimulus == stimulus}
        offsets = [metric.offset for metric in own.values()]
        diagonals = diagonal_scores(model, stimulus.tokens(), offsets)
        found |= {name: diagonals[metric.offset] for name, metric in own.items()}
        if not stimulus.seeded:
            notes.append(
                f"{', '.join(own)}: the notebook that published it sets no seed; compared on "
                "another draw of the same kind"
            )
    return found


def _recall(run: Result, known: pd.DataFrame) -> pd.DataFrame:
    floors, judged = {name: rule.floor for name, rule in run.rules.items()}, _judged(run)
    rows = []
    for (layer, head, relation), claims in known.groupby(["layer", "head", "relation"]):
        at = judged[(judged["layer"] == layer) & (judged["head"] == head)]
        own = at[at["id"] == relation]
        if own.empty:
            own = at[at["id"] == f"{relation}-random"]  # a run on random tokens alone
        if own.empty:
            continue
        published = claims["score"].max()
        kind = "weak" if relation in floors and published < floors[relation] else "clear"
        if (known["model"].iloc[0], layer, head) in FUZZY:
            kind = "fuzzy"
        held = (own["mass"].iloc[0], kind, bool(own["tagged"].iloc[0]))
        rows.append((layer, head, claims["type"].iloc[0], relation, published, *held))
    columns = ["layer", "head", "type", "relation", "published", "mass", "kind", "found"]
    return pd.DataFrame(rows, columns=columns)


def _judged(run: Result) -> pd.DataFrame:
    """What the run says of its heads, where they look (mass) and what they write (lift, logits)."""
    looks = run.evidence.assign(id=run.evidence["type"] + "/" + run.evidence["relation"])
    columns = ["layer", "head", "id", "mass", "tagged"]
    if run.effects is None:
        return looks[columns]
    writes = run.effects.assign(
        id=f"{WRITES}/" + run.effects["type"] + "/" + run.effects["effect"],
        mass=run.effects["lift"],
    )
    return pd.concat([looks[columns], writes[columns]], ignore_index=True)


def _compare(run: Result, scores: pd.DataFrame, own: dict[str, ndarray] | None) -> pd.DataFrame:
    shape = (int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1)
    rows = []
    for name, metric in MATRICES.items():
        table = scores[scores["metric"] == name].sort_values(["layer", "head"])
        if table.empty:
            continue
        ours = _masses(run, metric.relation, shape) if own is None else own[name]
        if ours is None:
            continue
        published = table["value"].to_numpy().reshape(shape)
        difference = np.abs(ours - published)
        accepted = metric.accepted_elsewhere if own is None else metric.accepted
        layer, head = np.unravel_index(difference.argmax(), shape)
        strong = metric.strong
        rows.append(
            {
                "metric": name,
                "relation": metric.relation,
                "pearson": float(np.corrcoef(ours.ravel(), published.ravel())[0, 1]),
                "largest_difference": float(difference.max()),
                "at": head_name(int(layer), int(head)),
                "accepted": accepted,
                "within": bool(difference.max() <= accepted),
                "same_set": bool(((ours >= strong) == (published >= strong)).all()),
            }
        )
    return pd.DataFrame(rows, columns=_SCORE_COLUMNS)


_DIFFERENCE = ["pearson", "largest_difference", "at", "accepted", "within"]
_SCORE_COLUMNS = ["metric", "relation", *_DIFFERENCE, "same_set"]


def _masses(run: Result, relation: str, shape: tuple[int, int]) -> ndarray | None:
    own = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation]
    if len(own) != shape[0] * shape[1]:
        return None
    return np.asarray(own.sort_values(["layer", "head"])["mass"]).reshape(shape)
