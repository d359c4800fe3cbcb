"""Error rates of tags, on heads whose function is known.

`python -m tests.oracles.calibrate` prints the tables of docs/results/validation.md in about half an
hour. Lazy heads are judged on a short and on a long text, which narrows intervals.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from data.corpora.make import controlled_corpus
from headscope.relations.types.semantic import shipped_pairs
from headscope.run import classify
from headscope.statistics.result import Result
from headscope.statistics.tags import SINK_RELATIONS
from headscope.stimuli.prompts import draws
from headscope.stimuli.stimulus import MAX_DOCUMENTS
from headscope.stimuli.word_lists import IN_ORDER
from tests.oracles import writers
from tests.oracles.baseline_heads import BROAD
from tests.oracles.network import save_random
from tests.oracles.planted import HEADS, LAYOUTS, PlantedHead, by_place, save_planted
from tests.oracles.planted_syntax import SYNTAX_HEADS, Language
from tests.oracles.power import main as print_power
from tests.oracles.words import sentence_texts, vocabulary

NOISES, WRITER_NOISES = (0.0, 0.02, 0.05, 0.1, 0.2), (0.0, 0.1, 0.2)
"""Standard deviations of the noise on every attention weight, in units of the planted weights'
root mean square."""
SEED = 21
DOCUMENTS, MAX_TOKENS, MAX_LENGTH = 60, 12_000, 200
WRITER_DOCUMENTS, WRITER_TOKENS, WRITER_LENGTH = 24, 4_000, 128
FREQUENT = 8
"""Words of the text that a head raises wherever it looks."""


def planted_rows(
    layouts: Sequence[str] = LAYOUTS,
    noises: Sequence[float] = NOISES,
    *,
    max_tokens: int = MAX_TOKENS,
) -> pd.DataFrame:
    """Tags that hand-built heads get for attention.

    Returns:
        A row per layout × noise × head: `layout`, `noise`, `name`, `relation` (the tag that the
        head must earn, empty for a distractor), `type`, `found`, and `false` (its false tags,
        joined by `;`).
    """
    corpus = controlled_corpus(DOCUMENTS, seed=SEED)
    words = planted_vocabulary(corpus)

    def save(layout: str, noise: float, folder: Path) -> Path:
        return save_planted(layout, words, folder, noise=noise)

    settings = {"max_tokens": max_tokens, "max_length": MAX_LENGTH}
    score = partial(_score_heads, heads=HEADS)
    return _classified(corpus, product(layouts, noises), save, score, **settings)


def syntax_rows(
    layouts: Sequence[str] = LAYOUTS,
    noises: Sequence[float] = NOISES,
    *,
    max_tokens: int = MAX_TOKENS,
) -> pd.DataFrame:
    """Tags that hand-built heads get in an artificial language where agreement shows the tree.

    Returns:
        A row per layout × noise × head as in `planted_rows`.
    """
    language = Language(SEED)
    corpus = language.corpus(DOCUMENTS, SEED)

    def save(layout: str, noise: float, folder: Path) -> Path:
        return save_planted(
            layout,
            language.words,
            folder,
            heads=SYNTAX_HEADS,
            traits=language.traits,
            noise=noise,
        )

    settings = {"max_tokens": max_tokens, "max_length": MAX_LENGTH}
    score = partial(_score_heads, heads=SYNTAX_HEADS)
    return _classified(corpus, product(layouts, noises), save, score, **settings)


def writer_rows(
    layouts: Sequence[str] = writers.LAYOUTS, noises: Sequence[float] = WRITER_NOISES
) -> pd.DataFrame:
    """Tags that hand-built heads get for direct effects.

    Without the null model: the shuffled weights of a model that is all planted are no baseline.

    Returns:
        A row per layout × noise × head as in `planted_rows`; `relation` is the kind of effect that
        the head must earn, empty for a lazy head; `retrieves` is True if its attention earned the
        tag retrieval.
    """
    corpus = controlled_corpus(WRITER_DOCUMENTS, seed=SEED)
    sentences = sentence_texts(corpus)
    words = vocabulary([*sentences, *prompt_words()])
    counts = Counter(word for text in sentences for word in re.findall(r"\w+|[^\w\s]", text))
    frequent = [word for word, _ in counts.most_common(FREQUENT)]

    def save(layout: str, noise: float, folder: Path) -> Path:
        return writers.save_writers(layout, words, frequent, folder, noise=noise)

    settings = {"max_tokens": WRITER_TOKENS, "max_length": WRITER_LENGTH}
    grid = product(layouts, noises)
    return _classified(corpus, grid, save, _score_writers, direct_effects=True, **settings)


def random_tags(
    model: str,
    corpus: Sequence[str] | None = None,
    *,
    seeds: int = 5,
    max_tokens: int = MAX_TOKENS,
    direct_effects: bool = False,
) -> list[str]:
    """Tags that heads of an architecture get with newly drawn weights, as `L5H1 type/name`."""
    tags = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            fresh = save_random(model, Path(folder) / "model", seed=seed)
            settings: dict[str, Any] = {"max_tokens": max_tokens, "max_length": MAX_LENGTH}
            run = classify(
                str(fresh),
                corpus,
                types="all",
                examples=False,
                direct_effects=direct_effects,
                **settings,
            )
        table = run.effects if direct_effects else run.evidence
        assert table is not None
        tagged = table[table["tagged"].astype(bool)]
        rows = tagged[["layer", "head", "type"]].itertuples(index=False, name=None)
        tags += [f"L{layer}H{head} {kind}" for layer, head, kind in rows]
    return tags


def counts_by_noise(rows: pd.DataFrame) -> pd.DataFrame:
    """Heads found of those planted and, in brackets, false tags, by type and noise."""
    counted = rows.assign(
        planted=rows["relation"] != "", false=rows["false"].str.split(";").map(_count)
    )
    sums = counted.groupby(["type", "noise"])[["found", "planted", "false"]].sum()
    cells = [f"{found} of {planted} ({false})" for found, planted, false in sums.to_numpy()]
    return pd.Series(cells, sums.index).unstack()


def planted_vocabulary(corpus: str) -> list[str]:
    """Words of a corpus and of the word pairs that ship."""
    pairs = [word for pair in shipped_pairs().pairs for word in (pair.first, pair.second)]
    return vocabulary([*sentence_texts(corpus), " ".join(pairs)])


def prompt_words() -> Iterator[str]:
    """Texts that hold every word of the synthetic prompts."""
    for _, prompts in draws(MAX_DOCUMENTS, seed=0):
        for prompt in prompts:
            yield " ".join([prompt.text, *prompt.right, *prompt.wrong, *prompt.other])
    for members in IN_ORDER.values():
        yield " ".join(members)


def _classified(
    corpus: str,
    grid: Iterable[tuple[str, float]],
    save: Callable[[str, float, Path], Path],
    score: Callable[[Result], Iterable[dict[str, Any]]],
    **settings: Any,
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text.conllu"
        file.write_text(corpus, encoding="utf-8")
        for layout, noise in grid:
            model = save(layout, noise, Path(folder) / f"{layout}-{noise}")
            run = classify(
                str(model),
                file,
                types="all",
                progress=False,
                examples=False,
                challenge=False,
                **settings,
            )
            rows += [{"layout": layout, "noise": noise, **row} for row in score(run)]
    return pd.DataFrame(rows)


def _score_heads(run: Result, heads: Sequence[PlantedHead]) -> Iterator[dict[str, Any]]:
    evidence = run.evidence[run.evidence["tagged"].astype(bool)]
    for (layer, index), head in by_place(heads).items():
        tagged = evidence[(evidence["layer"] == layer) & (evidence["head"] == index)]
        tags = list(tagged["type"] + "/" + tagged["relation"])
        yield {
            "name": head.name,
            "relation": head.relation or "",
            "type": (head.relation or "distractor").split("/")[0],
            "found": head.relation in tags,
            "false": ";".join(tag for tag in tags if not _true(head, tag)),
        }


def _true(head: PlantedHead, tag: str) -> bool:
    # a sink is not a function, and "the four tokens before" is true of several
    true = (head.relation, *head.may_earn, *SINK_RELATIONS, *BROAD)
    return tag in true or tag.removesuffix("-random") in true


def _score_writers(run: Result) -> Iterator[dict[str, Any]]:
    table = run.effects
    assert table is not None
    retrieving = run.tagged("retrieval").index
    for (layer, index), head in writers.planted_heads().items():
        effects = table[(table["layer"] == layer) & (table["head"] == index)]
        tags = sorted(set(effects.loc[effects["tagged"].astype(bool), "type"]))
        yield {
            "name": head.name,
            "relation": head.earns,
            "type": head.earns or "lazy",
            "found": head.earns in tags,
            "false": ";".join(tag for tag in tags if tag not in (head.earns, *head.may)),
            "retrieves": f"L{layer}H{index}" in retrieving,
        }


def _count(tags: list[str]) -> int:
    return sum(map(bool, tags))


def main() -> None:
    """Print all tables."""
    print("Planted heads found (false tags), by noise on every weight:")
    print(counts_by_noise(planted_rows()))
    print("\nThe same in an artificial language:")
    print(counts_by_noise(syntax_rows()))
    print("\nThe same for direct effects:")
    print(counts_by_noise(writer_rows()))
    for direct_effects in (False, True):
        what = "direct effects" if direct_effects else "attention"
        tags = random_tags("mini", direct_effects=direct_effects)
        print(f"\nTags of mini with random weights, {what}: {tags}")
    with tempfile.TemporaryDirectory() as folder:
        for model, tokens in (("smollm2", 8_000), ("smollm2", 40_000), ("minilm", MAX_TOKENS)):
            print(f"\nLazy heads and oracles on {tokens:,} tokens of {model}:")
            print_power(model, str(tokens), folder)


if __name__ == "__main__":
    main()
