"""`ablate`: from a run to its table of causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from headscope.controlled.minimal_pairs import (
    MinimalPair,
    agreement_pairs,
    anaphor_pairs,
    read_pairs,
)
from headscope.corpus.plan import TextWindows, plan_pairs, plan_repeats
from headscope.data import shipped_corpora
from headscope.errors import RunError
from headscope.head_view import model_of
from headscope.interventions.ablate import Group, ablate_groups, choose_groups
from headscope.interventions.rerun import Rerunner
from headscope.interventions.stimulus import Stimulus, minimal_pairs, near_and_away, repeats
from headscope.models import Model
from headscope.relations import TYPES
from headscope.run import Run

REPEATS, PAIRS, TEXT_TOKENS, TEXT_LENGTH, SENTENCES = 16, 128, 4_096, 128, 48
BY_QUERIES = {"positional": "text", "delimiter": "text", "semantic": "pairs"}
"""Types whose behaviour is prediction at their relations' queries, and what is read for it."""

Progress = Callable[[int, int], None]


def ablate(
    run: Run,
    *,
    heads: str = "tagged",
    how: str = "mean",
    pairs: Sequence[str | Path] = (),
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> pd.DataFrame:
    """Silence heads of a run's model and measure what their types predict; see `ablate_groups`.

    Args:
        run: the run, whose model is loaded again.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        how: `mean`, `zero` or `resample`.
        pairs: files of minimal pairs in BLiMP's format, instead of the built-in ones for syntax.
        seed: seeds stimuli, random heads and intervals.
        progress: called with the runs done and in all.

    Raises:
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: a file of pairs cannot be read.
        HeadscopeError: no such head, or none tagged.
    """
    groups = choose_groups(run, heads, seed=seed)
    given = [pair for path in pairs for pair in read_pairs(Path(path))]
    model = model_of(run)
    if model.weights_sha256 != run.info["model"]["weights_sha256"]:
        raise RunError(f"{model.name} has other weights now than when this run was made")
    rerunner = Rerunner(model)
    found = _stimuli(run, model, groups, given, seed)
    return ablate_groups(rerunner, found, groups, how=how, seed=seed, progress=progress)


def _stimuli(
    run: Run, model: Model, groups: Sequence[Group], given: Sequence[MinimalPair], seed: int
) -> list[Stimulus]:
    types = {group.type for group in groups}
    length = min(TEXT_LENGTH, model.context)
    found: list[Stimulus] = []
    if "induction" in types:
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = plan_repeats(vocabulary, model.tokenizer, max_length=length, seed=seed + 1)
        found.append(repeats(windows[:REPEATS]))
    if "syntactic" in types:
        chosen = given or agreement_pairs(PAIRS, seed=seed)
        found.append(minimal_pairs("agreement", chosen, model.tokenizer))
    if "coreference" in types:
        found.append(minimal_pairs("pronoun", anaphor_pairs(PAIRS, seed=seed), model.tokenizer))
    for stimulus in ("text", "pairs"):
        asked = {
            name: [r for r in TYPES[name] if r.id in _tagged(run, name)]
            for name, where in BY_QUERIES.items()
            if name in types and where == stimulus
        }
        if not asked:
            continue
        if stimulus == "text":
            text = TextWindows(
                run.info["corpora"]["asked"] or shipped_corpora(), model.tokenizer,
                max_tokens=TEXT_TOKENS, max_length=length, seed=seed + 1,
            )  # fmt: skip
            windows = list(text)
        else:
            windows = plan_pairs(model.tokenizer, max_length=length, seed=seed + 1)[:SENTENCES]
        found.append(near_and_away(stimulus, windows, asked))
    return found


def _tagged(run: Run, kind: str) -> set[str]:
    """The relations of a type that some head of the run holds."""
    own = run.evidence[run.evidence["tagged"].astype(bool) & (run.evidence["type"] == kind)]
    return set(own["type"] + "/" + own["relation"]) - {"delimiter/first-token"}
