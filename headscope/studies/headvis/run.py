"""`headvis`: from a run to the folder that the HeadVis frontend reads, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

import pandas as pd

from headscope.arguments import KINDS, PATH, kinds_of, takes, whole
from headscope.corpus.window import Window
from headscope.errors import CorpusError, RunError
from headscope.evidence.result import Result
from headscope.measure.stimuli import TextWindows
from headscope.models.load import Model
from headscope.runs.listing import chosen_heads
from headscope.runs.named import A_RUN, the_run
from headscope.runs.reload import Again, corpora_of, model_of
from headscope.runs.shareable import name_of
from headscope.runs.site import HEADVIS, check_site, new_site
from headscope.runs.write import write_file
from headscope.studies.headvis.axes import Axes, own_axes
from headscope.studies.headvis.chosen import Chosen
from headscope.studies.headvis.deciles import INTERVALS
from headscope.studies.headvis.export import Reading, write_heads
from headscope.studies.headvis.result import HeadVis
from headscope.studies.headvis.scan import scan
from headscope.studies.headvis.sums import METRICS, Sums
from headscope.studies.headvis.vectors import shows_vectors
from headscope.studies.headvis.written import FEWEST_POINTS, config_file, json_bytes, rounded

SEQUENCES, MAX_LENGTH, POINTS = 500, 256, 2_000
SHORTEST = 3
"""Tokens of a sequence with a cell off the first token's row and column and the diagonal."""


class Asked(Again, total=False):
    """What else may be said of an export."""

    corpus: str | Path | Sequence[str | Path]
    """Files or folders of text; those of the run when empty."""
    sequences: int
    """How many are read at most."""
    max_length: int
    """Tokens of a sequence at most."""
    points: int
    """Most points of a head's cloud; 0 for no clouds."""


@takes(
    run=A_RUN,
    out=PATH,
    corpus=KINDS["corpus"],
    sequences=whole(1),
    max_length=KINDS["max_length"],
    points=whole(0),
    **kinds_of(Again),
)
def headvis(
    run: Result | str | Path,
    out: str | Path,
    *,
    heads: str = "all",
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **asked: Unpack[Asked],
) -> HeadVis:
    """Write a run's heads as the `data` folder that the HeadVis frontend reads.

    HeadVis (github.com/anthropics/headvis) shows heads as a scatter of metrics, sequences by tenths
    of a head's largest attention, and clouds of its queries, keys, outputs and values. Its metrics
    are taken over the whole text that is read; headscope's evidence stands beside them as axes.

    Args:
        run: a run or its folder, whose model is loaded again.
        out: the folder; HeadVis looks for it under the name `data`.
        heads: `all`, `tagged`, or names such as `L5H1,L6H9`; 5 MB each, about.
        seed: seeds which text is read, which sequences of each tenth are shown, and the points.
        overwrite: replace an export that is there; what it did not write stays.
        progress: called with the tokens done and the tokens in all passes.
        asked: `corpus`, files or folders of text, those of the run when empty; `sequences` to read
            at most (500); `max_length` of one in tokens (256); `points` of a cloud at most (2,000),
            0 for none; `source`, the run's model, or where it is now if it is not where it was;
            `device`, `cpu`, `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        RunError: no run there, one without a model, or one of a model with several stacks.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or holds no sequence of three tokens.
        WriteError: the folder holds something else, or nothing can be written there.
        HeadscopeError: no such head, or none tagged.
    """
    folder = Path(out)
    check_site(folder, overwrite=overwrite, site=HEADVIS)
    run = the_run(run)
    if len(run.stacks):
        raise RunError(
            f"{run.name}: HeadVis shows heads that read one text, and those of an encoder and a "
            "decoder read several"
        )
    chosen = Chosen(tuple(sorted(set(chosen_heads(run, heads)))))
    model = _model(run, asked)
    windows = _windows(run, model, asked, seed)
    reading = Reading(model, windows, chosen, seed, asked.get("points", POINTS))
    steps = _Steps(reading.passes * sum(map(len, windows)), progress)
    scanned = scan(model, windows, chosen, points=reading.points, seed=seed, advance=steps.advance)
    axes = own_axes(run)
    table, told = _table(chosen, scanned.sums, axes)
    with new_site(folder, overwrite=overwrite, site=HEADVIS) as new:
        clouds = write_heads(new, reading, scanned, steps.advance)
        rows = [row.dropna().to_dict() for _, row in table.astype(object).iterrows()]
        write_file(new / "scatter_data.json", json_bytes(rows))
        config = config_file(
            name=name_of(run.name),
            heads=chosen.heads,
            shape=(model.layers + len(model.others), model.heads),
            told=told,
            clouds=clouds,
        )
        write_file(new / "config.json", json_bytes(config))
    notes = tuple(_notes(reading, len(clouds), asked.get("sequences", SEQUENCES)))
    tokens = sum(map(len, windows))
    return HeadVis(run.name, folder, table, told, len(windows), tokens, len(clouds), notes)


def _model(run: Result, asked: Asked) -> Model:
    again: dict[str, Any] = {
        name: asked.get(name) for name in ("source", "device") if name in asked
    }
    return model_of(run, longest=asked.get("max_length", MAX_LENGTH), **again)


def _windows(run: Result, model: Model, asked: Asked, seed: int) -> list[Window]:
    """The sequences, as many as were asked for or as there are."""
    corpus = asked.get("corpus", ())
    given = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    corpora = given or corpora_of(run)
    count = asked.get("sequences", SEQUENCES)
    longest = min(asked.get("max_length", MAX_LENGTH), model.longest_window)
    text = TextWindows(
        corpora, model.tokenizer, max_tokens=count * longest, max_length=longest, seed=seed
    )
    found = list(islice((window for window in text if len(window) >= SHORTEST), count))
    if not found:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: no sequence of {SHORTEST} tokens, the shortest with "
            "attention that HeadVis counts"
        )
    return found


def _table(chosen: Chosen, sums: Sums, axes: Axes) -> tuple[pd.DataFrame, dict[str, str]]:
    """A row per head, four decimals; and the metrics that some head has, with their words."""
    rows = [
        {"layer": layer, "head": head}
        | _rounded(sums.metrics(place) | dict(axes.values.get((layer, head), {})))
        for place, (layer, head) in enumerate(chosen.heads)
    ]
    known = {name for row in rows for name in row}
    told = {name: words for name, words in (METRICS | dict(axes.told)).items() if name in known}
    return pd.DataFrame(rows, columns=["layer", "head", *told]), told


def _rounded(metrics: dict[str, float]) -> dict[str, float]:
    """Four decimals each."""
    return {name: rounded(value) for name, value in metrics.items()}


def _notes(reading: Reading, clouds: int, asked: int) -> list[str]:
    found, windows = [], len(reading.windows)
    if windows < asked:
        found.append(f"the text has {windows} sequences, and {asked} were asked for")
    if windows < INTERVALS:
        found.append("fewer than ten sequences: some tenths hold none")
    if reading.points and not shows_vectors(reading.model):
        found.append("no clouds: queries, keys and values are read by the fused engine alone")
    elif reading.points and clouds < len(reading.chosen.heads):
        without = len(reading.chosen.heads) - clouds
        found.append(
            f"no cloud of {without} of the heads: fewer than {FEWEST_POINTS} of their queries "
            "attend strongly to anything but the first token"
        )
    return found


class _Steps:
    """Counts tokens of all passes for the progress bar."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def advance(self, tokens: int) -> None:
        """So many tokens more."""
        self.done += tokens
        self.progress(self.done, self.total)
