"""Published scores of a model's heads: do the same heads come first in a run?

Scores were published on other stimuli than a run's, so ranks are compared and not values. Heads of
one layer are alike, so the control permutes heads within their layers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.arguments import NAME, PATH, maybe, takes
from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError
from headscope.heads import head_name
from headscope.runs.resolve import A_RUN, the_run
from headscope.runs.user_file import given_file
from headscope.statistics.result import Result
from headscope.views.study import StudyResult

FILE_COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
TOP = 10
"""Most heads at the top of both rankings."""
PERMUTATIONS = 1_000
MAX_P = 0.05
COLUMNS = [
    *("metric", "revision", "relation", "quantity", "stimulus", "heads"),
    *("spearman", "spearman_control", "top", "shared", "shared_control", "p_value", "best"),
]
HEAD = ["layer", "head"]
SHIPPED = "published_models.csv.xz"
OWNERS = ("openai-community/", "distilbert/")
"""Owners on the hub whose models are published by their bare names."""
_Scores = Float[ndarray, "layer head"]


@dataclass(frozen=True)
class Published:
    """Definition of a published score, and the relation that resembles it most."""

    relation: str
    """Name of a relation, or of a column of `heads.csv`."""
    quantity: str
    """`attention` if the score is an attention mass, else another quantity such as `causal`."""
    stimulus: str
    """The published stimulus, and after `ours:` that of the run."""


_EVERY_QUERY = "every query of Neuronpedia's text; ours: of this run's"
_PROMPTS = "short prompts (LLMVis)"
_ONE_TEXT = "one text of up to 1,024 tokens without a beginning-of-text token (Blackwell 2026)"
_TWICE = "random tokens, repeated once, without a beginning-of-text token (TransformerLens)"
_OURS_TWICE = "ours: copies of 25 to 64 random tokens after a beginning-of-text token"
_SECTION = "the section of a report that holds the answer, amid 2,048 tokens of a novel"
_QUESTION = "ours: attention of a question in other words"
_FIRST_QUERY = "including the first token, which always scores 1; ours: without it"
_SECOND_QUERY = "including the second token's attention to the first; ours: without it"
_BY_VALUES = "weighted by the lengths of the values (Feucht et al. 2025)"
PUBLISHED: Mapping[str, Published] = {
    "induction_random_repeat_len100": Published(
        "induction/repeat", "attention", f"2 × 100 {_TWICE}; {_OURS_TWICE}"
    ),
    "induction_random_repeat_len50": Published(
        "induction/repeat", "attention", f"10 × 50 {_TWICE}; {_OURS_TWICE}"
    ),
    "duplicate_token_random_repeat": Published(
        "induction/duplicate", "attention", f"2 × 100 {_TWICE}; {_OURS_TWICE}"
    ),
    "prev_token_random_repeat": Published(
        "positional/offset-1-random", "attention", f"2 × 100 {_TWICE}; {_OURS_TWICE}"
    ),
    "prev_token_lorem_ipsum": Published(
        "positional/offset-1",
        "attention",
        "every query of a paragraph of lorem ipsum (TransformerLens); ours: of this run's text",
    ),
    "induction_next_token_random": Published(
        "induction/repeat",
        "attention",
        f"the last token of a repeat of text with random tokens in it, {_BY_VALUES}; ours: every "
        "token of copies of 25 to 64 random tokens",
    ),
    "induction_next_token_text": Published(
        "induction/repeat",
        "attention",
        "the last token of a repeat of text, to the first piece of the next word, "
        f"{_BY_VALUES}; ours: random tokens",
    ),
    "concept_induction_end_token_text": Published(
        "concept-induction/next-word",
        "attention",
        "the last token of a repeat of text, to the last piece of the next word, "
        f"{_BY_VALUES}; ours: in repeated random words",
    ),
    "causal_token_copying": Published(
        "induction/repeat", "causal", "patching on repeated random tokens (Feucht et al. 2025)"
    ),
    "causal_concept_copying": Published(
        "concept-induction/next-word", "causal", "patching on repeated words (Feucht et al. 2025)"
    ),
    "retrieval_score": Published(
        "retrieval/value",
        "copied",
        "copies from a needle while decoding (Wu et al. 2024); ours: attention of a question in "
        "other words, where following a repeat does not lead to the value",
    ),
    "retrieval_profile_copy": Published(
        "retrieval/value",
        "arg-max",
        "share of the tokens of an answer, given word for word, whose arg-max is the token in the "
        f"needle that they repeat; {_QUESTION}",
    ),
    "retrieval_profile_argmax": Published(
        "retrieval/value",
        "arg-max",
        f"share of prompts whose last token has its arg-max in the needle; {_QUESTION}",
    ),
    "headkv_r2_retrieval_reasoning": Published(
        "retrieval/value",
        "attention",
        "attention on the part of a needle that answers, while a right answer is decoded, if it is "
        f"among a row's largest, ten times; {_QUESTION}, on the value alone",
    ),
    "sec_summed_attention_2048": Published(
        "retrieval/value",
        "attention",
        f"the last token after a question, summed over {_SECTION}; {_QUESTION}, on the value alone",
    ),
    "sec_qrhead_2048": Published(
        "retrieval/value",
        "attention",
        "mean over the tokens of a question, less those of an empty one, summed over "
        f"{_SECTION}; {_QUESTION}, on the value alone",
    ),
    "prev_token_score": Published("positional/offset-1", "attention", _EVERY_QUERY),
    "self_attention_score": Published("positional/offset-0", "attention", _EVERY_QUERY),
    "induction_score": Published(
        "induction/natural",
        "attention of 0.01 or more",
        "queries of Neuronpedia's text whose token came before; ours: of this run's, if another "
        "token stood between, and all attention",
    ),
    "pattern_entropy": Published("entropy", "entropy", _EVERY_QUERY),
    "qk_distance": Published("mean_distance", "distance", _EVERY_QUERY),
    "llmvis_previous_token": Published(
        "positional/offset-1", "attention", f"every query of {_PROMPTS}, {_SECOND_QUERY}"
    ),
    "llmvis_induction": Published(
        "induction/natural",
        "attention",
        f"repeats in {_PROMPTS}; a mean over earlier occurrences, so a head with three of them "
        "scores a third at most; ours: their sum",
    ),
    "llmvis_duplicate_token": Published(
        "lexical/duplicate",
        "attention",
        f"repeats in {_PROMPTS}; a mean over earlier occurrences; ours: their sum",
    ),
    "llmvis_positional": Published(
        "sink/first-token", "attention", f"every query of {_PROMPTS}, {_FIRST_QUERY}"
    ),
    "llmvis_diffuse": Published(
        "entropy",
        "entropy",
        f"every query of {_PROMPTS}, as a share of the largest possible entropy; ours: in nats",
    ),
    "atlas_positional_prev_prose": Published(
        "positional/offset-1", "attention", f"every query of {_ONE_TEXT}, {_SECOND_QUERY}"
    ),
    "atlas_positional_p0_prose": Published(
        "sink/first-token", "attention", f"every query of {_ONE_TEXT}, {_FIRST_QUERY}"
    ),
    "atlas_induction_induction": Published(
        "induction/natural",
        "attention",
        f"tokens that came before, in {_ONE_TEXT}; ours: if another token stood between",
    ),
    "atlas_duplicate_duplicates": Published(
        "lexical/duplicate",
        "attention",
        f"every query of {_ONE_TEXT}, with 0 for those without an earlier occurrence; ours: those "
        "with one",
    ),
}
"""Published scores that a run's heads are ranked against, by metric."""


@takes(run=A_RUN, model=maybe(NAME), scores=maybe(PATH))
def verify(
    run: Result | str | Path,
    *,
    model: str | None = None,
    scores: str | Path | None = None,
) -> StudyResult:
    """Compare the ranks of a run's heads with published scores of the same model.

    The table has a row per published `metric` that has a value for every head. `relation` is the
    run's relation, or column of `heads.csv`, that resembles it most; `quantity` and `stimulus` say
    what was published and how the run differs. `spearman` is the rank correlation over all heads.
    `shared` counts the heads that are among the `top` of both. `spearman_control` and
    `shared_control` are means over permutations of heads within their layers; `p_value` is the
    share of permutations, counting the run as one, that share as many. `best` is the head with the
    highest published score.

    Args:
        run: a run, or its folder.
        model: the published name, if the run's model has another (a local folder).
        scores: a CSV of published scores, `model,revision,metric,layer,head,value`, or
            Neuronpedia's `scatter_data.json` of the model; the scores of 61 models that ship if
            None.

    Raises:
        ChoiceError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, or the
            file holds no scores.
    """
    run = the_run(run)
    name = model or str(run.info["model"]["name"])
    published = read_scores(data_folder() / SHIPPED if scores is None else Path(scores), name)
    names = sorted(set(published["model"]))
    short = next((name.removeprefix(o) for o in OWNERS if name.startswith(o)), name)
    known = next((n for n in names if short in (n, n.rpartition("/")[2])), None)
    if known is None:
        raise ChoiceError("published model", name, names)
    of_model = published[published["model"] == known]
    table, notes = _ranks(run, of_model)
    agree = int((table["p_value"] < MAX_P).sum())
    return StudyResult(
        title=f"{run.name}: ranks of heads against published scores of {known}",
        table=table,
        terminal_table=table.drop(columns=["revision", "quantity", "stimulus", "heads"]),
        summary=(
            f"{agree} of {len(table)} metrics share more top heads with the run than "
            f"permutations within layers do (p < {MAX_P})",
        ),
        notes=notes,
    )


def read_scores(path: Path, model: str = "") -> pd.DataFrame:
    """Published scores from a file with the columns `model,revision,metric,layer,head,value`.

    Args:
        path: a .csv file, or Neuronpedia's `scatter_data.json`: a list with an object for each
            head, with its `layer`, `head` and a number of each metric.
        model: the model of a .json file.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    raw = given_file(path, f"a CSV of published scores: {', '.join(FILE_COLUMNS)}")
    try:
        if path.suffix == ".json":
            heads = pd.DataFrame(json.loads(raw)).astype({"layer": "int64", "head": "int64"})
            table = heads.melt(HEAD, var_name="metric").dropna().astype({"value": "float64"})
            table = table.assign(model=model, revision="main")
        else:
            kinds = dict.fromkeys(FILE_COLUMNS, "str")
            kinds |= {"layer": "int64", "head": "int64", "value": "float64"}
            packed = "xz" if path.suffix == ".xz" else None
            table = pd.read_csv(BytesIO(raw), compression=packed, dtype=kinds, usecols=FILE_COLUMNS)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise RunError(f"{path}: no table of published scores: {error!s:.200}") from error
    if not np.isfinite(table["value"]).all():
        raise RunError(f"{path}: a published score is not a finite number")
    return table.fillna({"revision": "main"})


def _ranks(run: Result, published: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table of `verify`, and reasons why metrics are not compared."""
    revisions = sorted(set(published["revision"]))
    of_run = str(run.info.get("model", {}).get("revision") or "main")
    revision = of_run if of_run in revisions else "main"
    if revision not in revisions:
        note = f"published scores are of revision {', '.join(revisions)}, and the run of {of_run}"
        return pd.DataFrame(columns=COLUMNS), [note]
    rows, notes, without_relation = [], [], []
    for metric, unsorted in published[published["revision"] == revision].groupby("metric"):
        if metric not in PUBLISHED:
            without_relation.append(str(metric))
            continue
        masses = masses_of(run, PUBLISHED[str(metric)].relation)
        if masses is None:
            relation = PUBLISHED[str(metric)].relation
            notes.append(f"{metric} is not compared: this run has not scored {relation}")
            continue
        table = unsorted.sort_values(HEAD)
        if not np.array_equal(table[HEAD], run.heads[HEAD].sort_values(HEAD)):
            layers, heads = masses.shape
            raise RunError(
                f"this run has {layers} layers × {heads} heads, and {metric} has {len(table)} "
                f"scores of {table['layer'].max() + 1} × {table['head'].max() + 1}"
            )
        rows.append({"metric": metric, "revision": revision, **_row(table, masses, str(metric))})
    if without_relation:
        notes.append(f"not compared, as no relation resembles them: {', '.join(without_relation)}")
    return pd.DataFrame(rows, columns=COLUMNS), notes


def _row(table: pd.DataFrame, masses: _Scores, metric: str) -> dict[str, object]:
    published = table["value"].to_numpy().reshape(masses.shape)
    top = min(TOP, published.size // 4)
    first, ranks = _first_heads(published, top), rankdata(published.ravel())

    def agreement(values: _Scores) -> tuple[float, int]:
        correlation = np.corrcoef(ranks, rankdata(values.ravel()))[0, 1]
        return float(correlation), len(first & _first_heads(values, top))

    rng = np.random.default_rng(0)
    spearman, shared = agreement(masses)
    permuted = [agreement(rng.permuted(masses, axis=1)) for _ in range(PERMUTATIONS)]
    correlations, counts = np.array(permuted, float).T
    best = table.loc[table["value"].idxmax()]
    return {
        **vars(PUBLISHED[metric]),
        "heads": masses.size,
        "spearman": spearman,
        "spearman_control": float(correlations.mean()),
        "top": top,
        "shared": shared,
        "shared_control": float(counts.mean()),
        "p_value": (1 + int((counts >= shared).sum())) / (1 + PERMUTATIONS),
        "best": head_name(int(best["layer"]), int(best["head"])),
    }


def masses_of(run: Result, relation: str) -> _Scores | None:
    """Masses of a relation, or a column of `heads.csv`; None if a head has none."""
    heads, column = run.heads, relation
    if relation not in heads:
        heads = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation]
        column = "mass"
    if len(heads) != len(run.heads):
        return None
    shape = run.heads["layer"].nunique(), run.heads["head"].nunique()
    return np.asarray(heads.sort_values(HEAD)[column], float).reshape(shape)


def _first_heads(values: _Scores, top: int) -> set[int]:
    """Flat indices of the heads with the largest values; ties by index."""
    return {int(index) for index in np.argsort(-values.ravel(), kind="stable")[:top]}
