"""Calibration: how often headscope is right, on models whose answer is known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from headscope.arguments import FLAG, MODEL_NAME, maybe, takes, whole
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.corpus.word_pairs import shipped_pairs
from headscope.errors import ArgumentError
from headscope.measure.progress import OnMessage, Progress, progress_bar
from headscope.measure.progress_steps import RunSteps
from headscope.runs.resolve import Named
from headscope.statistics.result import Result
from headscope.statistics.tags import RESTING_PLACES
from headscope.studies.validation.calibrate_result import Calibration
from headscope.studies.validation.calibrate_writes import NOISES as WRITER_NOISES
from headscope.studies.validation.calibrate_writes import calibrate_planted_writers
from headscope.studies.validation.heuristic_benchmark.heuristics import BROAD
from headscope.studies.validation.model_series import SILENT, ModelSeries
from headscope.studies.validation.planted import HEADS, LAYOUTS, PlantedHead, by_place, save_planted
from headscope.studies.validation.planted_words import sentence_texts, vocabulary
from headscope.studies.validation.planted_writers import LAYOUTS as WRITER_LAYOUTS

NOISES = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Standard deviations of the noise on every attention weight, in units of the planted weights'
root mean square."""
DOCUMENTS, SEED = 60, 21  # other sentences than those of the corpus that ships
MAX_TOKENS, MAX_LENGTH = 12_000, 200
SEEDS = 5


@takes(model=maybe(MODEL_NAME), seeds=whole(1), writes=FLAG)
def calibrate(
    model: str | Path | None = None,
    *,
    seeds: int = SEEDS,
    writes: bool = False,
    tell: OnMessage = lambda _: None,
    progress: Progress = True,
    **load_options: Unpack[Named],
) -> Calibration:
    """Measure how often tags are right: on hand-built models with noise, and on random weights.

    It takes minutes.

    Args:
        model: also try this architecture with newly drawn weights, none of whose heads should earn
            a tag.
        seeds: random initialisations of `model`.
        writes: try tags for what heads write, beside the laziest heads that could be taken for
            them. Tags for where heads look are not tried then.
        tell: called with a line before each model.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and those of all models.
        load_options: `revision`, a branch, tag or commit on the hub, for a hub name, whose
            architecture is taken; `device`, where all models run, and where `auto`, the default,
            takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, or the device is not to be had.
        ArgumentError: a revision, but no model.
    """
    if model is None and (revision := load_options.get("revision")) is not None:
        raise ArgumentError(f"revision is {revision!r}, but no model is named that could have it")
    # a model that cannot be loaded should say so before minutes of work
    random_models = None
    grid = (WRITER_LAYOUTS, WRITER_NOISES) if writes else (LAYOUTS, NOISES)
    count = len(grid[0]) * len(grid[1]) + (0 if model is None else seeds)
    with progress_bar(progress, "reading models", loads=False) as bar:
        bar.say(
            f"{count} models are read one after the other; nothing is kept but what --out names"
        )
        steps = map(RunSteps(bar, count).of, range(count))
        series = ModelSeries(tell, lambda: next(steps))
        if model is not None:
            options: dict[str, Any] = {"seeds": seeds, "writes": writes, "series": series}
            random_models = calibrate_random(str(model), **options, **load_options)
        planted = calibrate_planted_writers if writes else calibrate_planted
        scores = planted(device=load_options.get("device", "auto"), series=series)
    return Calibration(scores, random_models)


def calibrate_planted(
    *,
    layouts: Sequence[str] = LAYOUTS,
    noises: Sequence[float] = NOISES,
    device: str = "auto",
    series: ModelSeries = SILENT,
) -> pd.DataFrame:
    """Classify hand-built models at several levels of noise.

    Returns:
        A row per layout × noise × head: `layout`, `noise`, `name`, `relation` (the tag that it
        must earn, empty for a distractor), `type`, `found`, `tags` and `false` (the tags that are
        not true of it), each joined by `;`.
    """
    corpus = controlled_corpus(DOCUMENTS, seed=SEED)
    words = planted_vocabulary(corpus)

    def save(layout: str, noise: float, folder: Path) -> Path:
        return save_planted(layout, words, folder, noise=noise)

    settings = {"max_tokens": MAX_TOKENS, "max_length": MAX_LENGTH, "device": device}
    grid = product(layouts, noises)
    return series.classify_planted(corpus, grid, save, score_heads, **settings)


def planted_vocabulary(corpus: str) -> list[str]:
    """The words of the corpus and of the word pairs that ship."""
    pairs = [word for pair in shipped_pairs().pairs for word in (pair.first, pair.second)]
    return vocabulary([*sentence_texts(corpus), " ".join(pairs)])


def score_heads(run: Result) -> Iterator[dict[str, Any]]:
    """For each planted head what it earned, against what is true of it."""
    evidence = run.evidence[run.evidence["tagged"].astype(bool)]
    for (layer, index), head in by_place(HEADS).items():
        tagged = evidence[(evidence["layer"] == layer) & (evidence["head"] == index)]
        tags = list(tagged["type"] + "/" + tagged["relation"])
        yield {
            "name": head.name,
            "relation": head.relation or "",
            "type": (head.relation or "distractor").split("/")[0],
            "found": head.relation in tags,
            "tags": ";".join(tags),
            "false": ";".join(tag for tag in tags if not _true(head, tag)),
        }


def calibrate_random(
    model: str,
    *,
    corpus: Sequence[str] | None = None,
    seeds: int = SEEDS,
    max_tokens: int = MAX_TOKENS,
    writes: bool = False,
    series: ModelSeries = SILENT,
    **load_options: Unpack[Named],
) -> pd.DataFrame:
    """Classify a model's architecture with newly drawn weights, which have learned nothing.

    Returns:
        A row per seed: `seed`, `heads`, `tagged` and `tags`, which joins `L5H1 type/relation`.
    """
    from headscope.models.load import save_reinitialised

    rows = []
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        for seed in range(seeds):
            series.on_message(f"{model} with random weights, seed {seed}")
            fresh = save_reinitialised(
                model, Path(folder) / str(seed), seed=seed, revision=load_options.get("revision")
            )
            run = series.classify(
                fresh,
                corpus,
                max_tokens=max_tokens,
                max_length=MAX_LENGTH,
                device=load_options.get("device", "auto"),
                writes=writes,
            )
            tagged, names = _tags_of(run, writes)
            heads = tagged[["layer", "head"]].drop_duplicates()
            rows.append(
                {
                    "seed": seed,
                    "heads": len(run.heads),
                    "tagged": len(heads),
                    "tags": ";".join(names),
                }
            )
    return pd.DataFrame(rows)


def _tags_of(run: Result, writes: bool) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a run's tags for what heads write, or for where they look, and their names."""
    table, column = (run.effects, "effect") if writes else (run.evidence, "relation")
    if table is None:
        return pd.DataFrame(columns=["layer", "head"]), []
    tagged = table[table["tagged"].astype(bool)]
    rows = tagged[["layer", "head", "type", column]].itertuples(index=False, name=None)
    return tagged, [f"L{layer}H{head} {kind}/{name}" for layer, head, kind, name in rows]


def _true(head: PlantedHead, tag: str) -> bool:
    # resting on the first token is no claim about what a head does, nor is "the four tokens before"
    return tag in (*RESTING_PLACES, *BROAD) or tag.removesuffix("-random") in (
        head.relation,
        *head.may_earn,
    )
