"""How often headscope is right, on models whose answer is known."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.calibration.heads import HEADS, PlantedHead
from headscope.calibration.planted import LAYOUTS, save_planted
from headscope.calibration.words import vocabulary
from headscope.controlled.sentences import controlled_corpus
from headscope.corpus.word_pairs import shipped_pairs
from headscope.pipeline import classify
from headscope.run import Run
from headscope.tags import SINK

NOISES = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Standard deviations of the noise on every attention weight, in units of the planted weights'
root mean square."""
DOCUMENTS, SEED = 60, 21  # other sentences than those of the corpus that ships
MAX_TOKENS, MAX_LENGTH = 12_000, 200
SEEDS = 5

Say = Callable[[str], None]


def calibrate_planted(
    *, layouts: Sequence[str] = LAYOUTS, noises: Sequence[float] = NOISES, say: Say = lambda _: None
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
                say(f"planted {layout}, noise {noise:g}")
                model = save_planted(layout, words, Path(folder) / f"{layout}-{noise}", noise=noise)
                run = classify(str(model), file, max_tokens=MAX_TOKENS, max_length=MAX_LENGTH)
                rows += [{"layout": layout, "noise": noise, **row} for row in score_heads(run)]
    return pd.DataFrame(rows)


def planted_vocabulary(corpus: str) -> list[str]:
    """The words of the corpus and of the word pairs that ship."""
    sentences = [x.removeprefix("# text = ") for x in corpus.split("\n") if x.startswith("# text")]
    pairs = [word for pair in shipped_pairs().pairs for word in (pair.first, pair.second)]
    return vocabulary([*sentences, " ".join(pairs)])


def score_heads(run: Run) -> Iterator[dict[str, Any]]:
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
    model: str, *, corpus: Sequence[str] = (), seeds: int = SEEDS, max_tokens: int = MAX_TOKENS,
    say: Say = lambda _: None,
) -> pd.DataFrame:  # fmt: skip
    """Classify a model's architecture with newly drawn weights, which have learned nothing.

    Returns:
        A row per seed: `seed`, `heads`, `tagged` and `tags`, which joins `L5H1 type/relation`.
    """
    from headscope.models import save_reinitialised

    rows = []
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        for seed in range(seeds):
            say(f"{model} with random weights, seed {seed}")
            fresh = save_reinitialised(model, Path(folder) / str(seed), seed=seed)
            run = classify(str(fresh), corpus, max_tokens=max_tokens, max_length=MAX_LENGTH)
            tagged = run.evidence[run.evidence["tagged"].astype(bool)]
            names = [f"L{r.layer}H{r.head} {r.type}/{r.relation}" for r in tagged.itertuples()]
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


def by_type(planted: pd.DataFrame) -> pd.DataFrame:
    """By type and noise: heads that were found of those planted, and false tags."""
    counted = planted.assign(
        planted=planted["relation"] != "",
        false_tags=planted["false"].str.split(";").map(lambda tags: sum(map(bool, tags))),
    )
    return counted.groupby(["type", "noise"], as_index=False).agg(
        planted=("planted", "sum"), found=("found", "sum"), false_tags=("false_tags", "sum")
    )


def _true(head: PlantedHead, tag: str) -> bool:
    # resting on the first token is no claim about what a head does
    return tag == SINK or tag.removesuffix("-random") in (head.relation, *head.may_earn)
