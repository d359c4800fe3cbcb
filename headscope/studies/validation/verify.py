"""A run against the heads and scores that the literature publishes for the same model."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from numpy import ndarray

from headscope.arguments import FLAG, NAME, PATH, maybe, takes
from headscope.corpus.shipped import ALIASES, data_folder
from headscope.errors import ChoiceError, HeadscopeError, ModelError, RunError
from headscope.heads import head_name
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.relations.effect import WRITES
from headscope.runs.reopen_model import Again
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.result import Result
from headscope.studies.validation.published_scores import (
    RANK_COLUMNS,
    by_layer,
    compare_ranks,
    left_out,
    masses_of,
    model_in,
    not_scored,
    read_scores,
    revision_of,
    run_shape,
    shipped_name,
    shipped_scores,
)
from headscope.studies.validation.published_stimulus import MATRICES, diagonal_scores
from headscope.studies.validation.verify_result import Verification

FUZZY = {("gpt2-small", 5, 8), ("gpt2-small", 5, 9), ("gpt2-small", 0, 10)}
"""Heads that Wang et al. 2022 (appendix C) call fuzzy: they do not show on random repeats."""


ELSEWHERE = {
    "bert-base": "published on other text and labels (Wall Street Journal in Stanford "
    "Dependencies; OntoNotes for coreference; BERT-base uncased), as the share of words whose "
    "arg-max word is right: hit_rate in evidence.csv is the like of it, and mass is not"
}
"""What is to be known of scores that no run repeats."""


@takes(
    run=A_RUN,
    model=maybe(NAME),
    measure=FLAG,
    scores=maybe(PATH),
)
def verify(
    run: Result | str | Path,
    *,
    model: str | None = None,
    measure: bool = True,
    scores: str | Path | None = None,
    progress: Progress = True,
    **again: Unpack[Again],
) -> Verification:
    """Compare a run with published heads and scores of the same model.

    Args:
        run: a run, or its folder, of GPT-2, DistilGPT-2, BERT-base or another model with published
            heads.
        model: the published name, when the run's model has another (a local folder).
        measure: run the model on the published stimulus, if it is at hand. Otherwise the run's own
            masses are compared, which have another stimulus.
        scores: a CSV of published scores, `model,revision,metric,layer,head,value`, or
            Neuronpedia's `scatter_data.json` of the model; those of 60 models that ship when None.
            The ranks of all heads are compared (`compare_ranks`).
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the stimuli done and the stimuli in all.
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            where it runs.

    Raises:
        ChoiceError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, or the
            file holds no scores.
    """
    run = the_run(run)
    model_name = model or str(run.info["model"]["name"])
    ranks, ranked, notes = _ranked(run, scores, model_name)
    known = pd.read_csv(data_folder() / "known_heads.csv")
    matrices = pd.read_csv(data_folder() / "published_scores.csv")
    name = ALIASES.get(model_name, model_name)
    names = sorted(set(known["model"]) | set(matrices["model"]))
    if name not in names and ranked is None:
        raise ChoiceError("published model", model_name, names)
    known, matrices = known[known["model"] == name], matrices[matrices["model"] == name]
    if len(known) or len(matrices):
        _check_shape(run, name, known, matrices)
    notes += [ELSEWHERE[name]] if name in ELSEWHERE else []
    measured = None
    if measure and len(matrices):
        with progress_bar(progress, "reading the published stimuli", unit="stimuli") as bar:
            measured = _measure_again(run, again, set(matrices["metric"]), notes, bar)
    if measured is None and len(matrices):
        notes.append(
            "compared with the run's own masses: copies of 25 to 64 tokens behind a BOS, where the "
            "published scores have 100 or 50 tokens and none"
        )
    heads, compared = _recall(run, known), _compare(run, matrices, measured)
    name = name if name in names else str(ranked)
    return Verification(name, heads, compared, measured is not None, tuple(notes), ranks)


def _ranked(
    run: Result, scores: str | Path | None, model_name: str
) -> tuple[pd.DataFrame, str | None, list[str]]:
    """Ranks of the run's heads by a file of published scores, the model's name in it, and notes."""
    if scores is None:
        name = shipped_name(model_name)
        if name is None:
            return pd.DataFrame(columns=RANK_COLUMNS), None, []
        table = shipped_scores()
    else:
        table = read_scores(Path(scores), model_name)
        name = model_in(table, model_name)
    if name is None:
        raise ChoiceError("published model in that file", model_name, sorted(set(table["model"])))
    ranks = compare_ranks(run, table, name)
    others = left_out(table, name)
    notes = ["published ranks are of another stimulus than this run's"]
    of_model = table[table["model"] == name]
    revision = revision_of(run, of_model)
    if revision not in set(of_model["revision"]):
        revisions = ", ".join(sorted(set(of_model["revision"])))
        notes.append(
            f"not compared: the scores of {name} are of revision {revisions}, and this run's is "
            f"{revision}"
        )
    notes += [
        f"{metric} is not compared: this run has not scored {relation}, which is held against it"
        for metric, relation in not_scored(run, table, name).items()
    ]
    if others:
        notes.append(f"not compared, for nothing here is like it: {', '.join(others)}")
    return ranks, name, notes


def _check_shape(run: Result, name: str, known: pd.DataFrame, scores: pd.DataFrame) -> None:
    shape = run_shape(run)
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
    run: Result, again: Again, metric_names: Set[str], notes: list[str], bar: OnProgress
) -> dict[str, ndarray] | None:
    """The published matrices as this run's model gives them, or None and a note why not."""
    if not run.info["model"].get("weights_sha256"):
        return None
    from headscope.runs.reopen_model import model_of

    try:
        model = model_of(run, **again)
    except ModelError as error:
        notes.append(f"the model is not at hand: {error}")
        return None
    metrics = {name: metric for name, metric in MATRICES.items() if name in metric_names}
    matrices: dict[str, ndarray] = {}
    stimuli = list(dict.fromkeys(metric.stimulus for metric in metrics.values()))
    for index, stimulus in enumerate(stimuli):
        bar(index, len(stimuli))
        try:
            stimulus.check(model)
        except HeadscopeError as error:
            notes.append(f"the published stimulus does not apply: {error}")
            return None
        of_stimulus = {
            name: metric for name, metric in metrics.items() if metric.stimulus == stimulus
        }
        offsets = [metric.offset for metric in of_stimulus.values()]
        diagonals = diagonal_scores(model, stimulus.tokens(), offsets)
        matrices |= {name: diagonals[metric.offset] for name, metric in of_stimulus.items()}
        if not stimulus.seeded:
            notes.append(
                f"{', '.join(of_stimulus)}: the notebook that published it sets no seed; compared "
                "on another draw of the same kind"
            )
    return matrices


def _recall(run: Result, known: pd.DataFrame) -> pd.DataFrame:
    floors = {name: rule.floor for name, rule in run.rules.items()}
    judged, rows = _judged(run).set_index(["layer", "head", "id"]), []
    for (layer, head, relation), claims in known.groupby(["layer", "head", "relation"]):
        # a run on random tokens alone knows the second alone
        keys = ((layer, head, name) for name in (relation, f"{relation}-random"))
        key = next((key for key in keys if key in judged.index), None)
        if key is None:
            continue
        published, verdict = claims["score"].max(), judged.loc[[key]].iloc[0]
        kind = "weak" if relation in floors and published < floors[relation] else "clear"
        if (known["model"].iloc[0], layer, head) in FUZZY:
            kind = "fuzzy"
        claimed = (layer, head, claims["type"].iloc[0], relation, published)
        rows.append((*claimed, verdict["mass"], kind, bool(verdict["tagged"])))
    columns = ["layer", "head", "type", "relation", "published", "mass", "kind", "found"]
    return pd.DataFrame(rows, columns=columns)


def _judged(run: Result) -> pd.DataFrame:
    """The run's verdicts on heads: where they look (mass), what they write (lift, logits)."""
    attention = run.evidence.assign(id=run.evidence["type"] + "/" + run.evidence["relation"])
    columns = ["layer", "head", "id", "mass", "tagged"]
    if run.effects is None:
        return attention[columns]
    writes = run.effects.assign(
        id=f"{WRITES}/" + run.effects["type"] + "/" + run.effects["effect"],
        mass=run.effects["lift"],
    )
    return pd.concat([attention[columns], writes[columns]], ignore_index=True)


def _compare(
    run: Result, scores: pd.DataFrame, measured: dict[str, ndarray] | None
) -> pd.DataFrame:
    rows = []
    for name, metric in MATRICES.items():
        table = scores[scores["metric"] == name]
        matrix = measured.get(name) if measured is not None else masses_of(run, metric.relation)
        if table.empty or matrix is None:
            continue
        published = by_layer(table, "value", matrix.shape)
        accepted = metric.accepted_elsewhere if measured is None else metric.accepted
        rows.append(_score_row((name, metric.relation), matrix, published, accepted, metric.strong))
    return pd.DataFrame(rows, columns=_SCORE_COLUMNS)


def _score_row(
    names: tuple[str, str], matrix: ndarray, published: ndarray, accepted: float, strong: float
) -> dict[str, object]:
    """A metric and its relation, and how far a matrix is from the published one."""
    difference = np.abs(matrix - published)
    layer, head = np.unravel_index(difference.argmax(), difference.shape)
    return {
        "metric": names[0],
        "relation": names[1],
        "pearson": float(np.corrcoef(matrix.ravel(), published.ravel())[0, 1]),
        "largest_difference": float(difference.max()),
        "at": head_name(int(layer), int(head)),
        "accepted": accepted,
        "within": bool(difference.max() <= accepted),
        "same_set": bool(((matrix >= strong) == (published >= strong)).all()),
    }


_SCORE_COLUMNS = ["metric", "relation", "pearson", "largest_difference", "at", "accepted"]
_SCORE_COLUMNS += ["within", "same_set"]
