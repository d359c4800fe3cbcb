"""`ablate`: from a run to its table of causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from headscope.arguments import kinds_of, takes
from headscope.corpus.controlled.minimal_pairs import (
    MinimalPair,
    agreement_pairs,
    anaphor_pairs,
    read_pairs,
)
from headscope.errors import ChoiceError
from headscope.evidence.result import Result
from headscope.evidence.tags import RESTING_PLACES
from headscope.measure.stimuli import TextWindows, plan_pairs, plan_repeats
from headscope.models.encoders import refuse_encoder
from headscope.models.load import Model
from headscope.relations import head_types
from headscope.relations.relation import Relation
from headscope.runs.named import A_RUN, the_run
from headscope.runs.reload import Again, corpora_of, model_of
from headscope.studies.ablate.effects import (
    HOW,
    Group,
    ablate_groups,
    behaviour_of,
    choose_groups,
)
from headscope.studies.ablate.rerun import Rerunner
from headscope.studies.ablate.result import Ablation
from headscope.studies.ablate.stimulus import Stimulus, minimal_pairs, near_and_away, repeats

REPEATS, PAIRS, TEXT_TOKENS, TEXT_LENGTH, SENTENCES = 16, 128, 4_096, 128, 48

Progress = Callable[[int, int], None]


@takes(run=A_RUN, **kinds_of(Again))
def ablate(
    run: Result | str | Path,
    *,
    heads: str = "tagged",
    how: str = "mean",
    pairs: str | Path | Sequence[str | Path] = (),
    seed: int = 0,
    corpus: str | Path | Sequence[str | Path] = (),
    progress: Progress = lambda done, total: None,
    **again: Unpack[Again],
) -> Ablation:
    """Silence heads of a run's model and measure what their types predict; see `ablate_groups`.

    Args:
        run: a run or its folder, whose model is loaded again.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        how: `mean`, `zero` or `resample`.
        pairs: files of minimal pairs in BLiMP's format, instead of the built-in ones for syntax.
        seed: seeds stimuli, random heads and intervals.
        corpus: files or folders of text for predictions near the heads' queries; those of the run
            when empty.
        progress: called with the runs done and in all.
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            `cpu`, `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        ChoiceError: no such way to silence a head.
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: a file of pairs cannot be read.
        HeadscopeError: no such head, or none tagged.
    """
    if how not in HOW:
        raise ChoiceError("way to ablate", how, HOW)
    run = the_run(run)
    groups = choose_groups(run, heads, seed=seed)
    files = [pairs] if isinstance(pairs, str | Path) else pairs
    given = [pair for path in files for pair in read_pairs(Path(path))]
    model = model_of(run, longest=TEXT_LENGTH, **again)
    refuse_encoder(model, "ablate")
    rerunner = Rerunner(model)
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    found = _stimuli(run, model, groups, given, corpora, seed)
    causes = ablate_groups(rerunner, found, groups, how=how, seed=seed, progress=progress)
    return Ablation.of(run, causes)


def _stimuli(
    run: Result,
    model: Model,
    groups: Sequence[Group],
    given: Sequence[MinimalPair],
    corpora: Sequence[str | Path],
    seed: int,
) -> list[Stimulus]:
    types = {group.type: behaviour_of(group.type) for group in groups}
    length = min(TEXT_LENGTH, model.context)
    found: list[Stimulus] = []
    if "repeat" in types.values():
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = plan_repeats(vocabulary, model.tokenizer, max_length=length, seed=seed + 1)
        found.append(repeats(windows[:REPEATS]))
    if "agreement" in types.values():
        chosen = given or agreement_pairs(PAIRS, seed=seed)
        found.append(minimal_pairs("agreement", chosen, model.tokenizer))
    if "pronoun" in types.values():
        found.append(minimal_pairs("pronoun", anaphor_pairs(PAIRS, seed=seed), model.tokenizer))
    read = {"max_length": length, "seed": seed + 1}
    if near := _near(run, types, "text"):
        asked = corpora or corpora_of(run)
        text = TextWindows(asked, model.tokenizer, max_tokens=TEXT_TOKENS, **read)
        found.append(near_and_away("text", list(text), near))
    if near := _near(run, types, "pairs"):
        sentences = plan_pairs(model.tokenizer, **read)[:SENTENCES]
        found.append(near_and_away("pairs", sentences, near))
    return found


def _near(run: Result, types: dict[str, str], stimulus: str) -> dict[str, list[Relation]]:
    """By type, the tagged relations near whose queries this stimulus is predicted."""
    return {
        name: [r for r in head_types()[name].relations if r.id in _tagged(run, name)]
        for name, where in types.items()
        if where == stimulus and name in head_types()
    }


def _tagged(run: Result, kind: str) -> set[str]:
    """The relations of a type that some head of the run holds."""
    own = run.evidence[run.evidence["tagged"].astype(bool) & (run.evidence["type"] == kind)]
    return set(own["type"] + "/" + own["relation"]) - {*RESTING_PLACES}
