"""How often headscope is right, on models whose answer is known."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from headscope.arguments import FLAG, MODEL, kinds_of, maybe, takes, whole
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.corpus.word_pairs import shipped_pairs
from headscope.errors import ArgumentError
from headscope.evidence.result import Result
from headscope.evidence.tags import RESTING_PLACES
from headscope.pipeline import classify
from headscope.runs.named import Named
from headscope.studies.validation.calibrate_result import Calibration
from headscope.studies.validation.calibrate_writes import calibrate_planted_writers
from headscope.studies.validation.heads import HEADS, PlantedHead
from headscope.studies.validation.planted import LAYOUTS, save_planted
from headscope.studies.validation.words import vocabulary
from headscope.studies.validation.zoo.habit import BROAD

NOISES = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Standard deviations of the noise on every attention weight, in units of the planted weights'
root mean square."""
DOCUMENTS, SEED = 60, 21  # other sentences than those of the corpus that ships
MAX_TOKENS, MAX_LENGTH = 12_000, 200
SEEDS = 5

Tell = Callable[[str], None]


@takes(model=maybe(MODEL), seeds=whole(1), writes=FLAG, **kinds_of(Named))
def calibrate(
    model: str | Path | None = None,
    *,
    seeds: int = SEEDS,
    writes: bool = False,
    tell: Tell = lambda _: None,
    **named: Unpack[Named],
) -> Calibration:
    """How often tags are right: on hand-built models with noise, and on random weights.

    It takes minutes.

    Args:
        model: also try this architecture with newly drawn weights, none of whose heads should earn
            a tag.
        seeds: random initialisations of it.
        writes: try tags for what heads write instead of those for where they look.
        tell: called with a line before each model.
        named: `revision`, a branch, tag or commit on the hub, for a hub name, whose architecture is
            taken; `device`, where all models run, and where `auto`, the default, takes a GPU when
            there is one.

    Raises:
        ModelError: the model cannot be loaded, or the device is not to be had.
        ArgumentError: a revision, but no model.
    """
    if model is None and (revision := named.get("revision")) is not None:
        raise ArgumentError(f"revision is {revision!r}, but no model is named that could have it")
    # a model that cannot be loaded should say so before minutes of work
    drawn = None
    if model is not None:
        drawn = calibrate_random(str(model), seeds=seeds, writes=writes, tell=tell, **named)
    planted = calibrate_planted_writers if writes else calibrate_planted
    return Calibration(planted(tell=tell, device=named.get("device", "auto")), drawn)


def calibrate_planted(
    *,
    layouts: Sequence[str] = LAYOUTS,
    noises: Sequence[float] = NOISES,
    device: str = "auto",
    tell: Tell = lambda _: None,
) -> pd.DataFrame:
    """Classify hand-built models at several levels of noise.

    Returns:
        A row per layout × noise × head: `layout`, `noise`, `name`, `relation` (the tag that it
        must earn, empty for a distractor), `type`, `found`, `tags` and `false` (the tags that are
        not true of it), each joined by `;`.
    """
    corpus = controlled_corpus(DOCUMENTS, seed=SEED)
    words = planted_vocabulary(corpus)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        file = Path(folder) / "controlled.conllu"
        file.write_text(corpus, encoding="utf-8")
        for layout in layouts:
            for noise in noises:
                tell(f"planted {layout}, noise {noise:g}")
                model = save_planted(layout, words, Path(folder) / f"{layout}-{noise}", noise=noise)
                run = classify(
                    str(model),
                    file,
                    max_tokens=MAX_TOKENS,
                    max_length=MAX_LENGTH,
                    device=device,
                    examples=False,
                )
                rows += [{"layout": layout, "noise": noise, **row} for row in score_heads(run)]
    return pd.DataFrame(rows)


def planted_vocabulary(corpus: str) -> list[str]:
    """The words of the corpus and of the word pairs that ship."""
    sentences = [x.removeprefix("# text = ") for x in corpus.split("\n") if x.startswith("# text")]
    pairs = [word for pair in shipped_pairs().pairs for word in (pair.first, pair.second)]
    return vocabulary([*sentences, " ".join(pairs)])


def score_heads(run: Result) -> Iterator[dict[str, Any]]:
    """For each planted head what it earned, against what is true of it."""
    places: dict[int, int] = {}
    for head in HEADS:
        place = places.setdefault(head.layer, 0)
        places[head.layer] += 1
        own = run.evidence[(run.evidence["layer"] == head.layer) & (run.evidence["head"] == place)]
        tagged = own[own["tagged"].astype(bool)]
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
    corpus: Sequence[str] = (),
    seeds: int = SEEDS,
    max_tokens: int = MAX_TOKENS,
    writes: bool = False,
    tell: Tell = lambda _: None,
    **named: Unpack[Named],
) -> pd.DataFrame:
    """Classify a model's architecture with newly drawn weights, which have learned nothing.

    Returns:
        A row per seed: `seed`, `heads`, `tagged` and `tags`, which joins `L5H1 type/relation`.
    """
    from headscope.models.load import save_reinitialised

    rows = []
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        for seed in range(seeds):
            tell(f"{model} with random weights, seed {seed}")
            fresh = save_reinitialised(
                model, Path(folder) / str(seed), seed=seed, revision=named.get("revision")
            )
            run = classify(
                str(fresh),
                corpus,
                max_tokens=max_tokens,
                max_length=MAX_LENGTH,
                device=named.get("device", "auto"),
                examples=False,
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
