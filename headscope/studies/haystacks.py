"""Facts far back in long text: does the model find them, and do its tagged heads carry them?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import AfterValidator, Field
from torch import Tensor

from headscope.causal.haystack_answers import (
    answer_tokens,
    chance_of,
    haystack_answers,
    questions_of,
)
from headscope.causal.head_set import Head, heads_by_layer, matched_sets, written_norms
from headscope.causal.intervention import AttentionRead, HeadsSet
from headscope.causal.kept_keys import AttentionTile, TokensOnKeys, chosen_rows
from headscope.causal.loss import at_labels, log_probabilities
from headscope.causal.rerun import CleanRun, Rerunner, single_tokens
from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.models.engines.attention import CleanKeys
from headscope.models.families import refuse_encoder
from headscope.options import Device, Names, Positive, Revision, Seed, Source
from headscope.progress import Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.recorded_paths import name_of
from headscope.settings import check_haystack
from headscope.statistics.haystack_lengths import accuracies, refused_lengths
from headscope.statistics.ratio import estimate
from headscope.statistics.result import Result
from headscope.stimuli.haystack import HAYSTACK, NULL
from headscope.stimuli.stimulus import StimulusConfig
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

DEFAULT = ("2048",)
TEXTS_SEED = 1
"""Another seed than the default of a run, so that heads are judged on texts that did not choose
them."""
LISTED = 10
"""Heads with the largest copy rates that the notes compare with those with the largest masses."""

STUDY = Study(
    command=Command(
        group="study",
        name="haystack",
        summary="Test if a model finds facts in long text, and which heads do it.",
        examples=(
            "headscope study haystack smollm2 --haystack 1024,2048 --figure haystack.png",
            "headscope study haystack runs/smollm2 --out haystack.csv",
        ),
    ),
    rows="length of the text and depth of the fact in it",
    columns=table_columns("""
        length | tokens | length of the window; of a user's file the next power of two
        depth | percent | text before the fact
        questions | count | questions asked there
        accuracy | share | questions of which each token of the answer is the most likely one
        log_probability | nats | mean log-probability of the answer
        ablated | nats | mean change of the log-probability of the answer's first token if the
            tagged heads write at the question what they write where nothing is asked; empty
            without tagged heads
    """),
    figure=HeatMap(value="accuracy", x="depth", y="length"),
    encoders=False,
    bad_call={"sets": 0},
)


@study(STUDY)
def haystacks(
    model: ModelOrRun,
    haystack: Annotated[
        Names | None,
        AfterValidator(check_haystack),
        Field(
            description="Lengths in tokens, such as 2048,8192, or a .jsonl file with context, "
            "question and answer. Default: that of the run, or 2048."
        ),
    ] = None,
    *,
    sets: Annotated[Positive, Field(description="Random sets beside the tagged heads.")] = 100,
    seed: Seed = TEXTS_SEED,
    progress: Progress = True,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Test if a model finds facts in long text, and if its tagged heads carry them.

    Of a run, the heads with the tag of haystacks are ablated together, beside random sets matched
    by layer and norm: at each question their outputs are those at the question about nothing, which
    reads the same text. Each head's mass on the answer is compared with the score of Wu et al. 2024
    (Retrieval_Head): the share of the answer's tokens at which its largest attention is on the same
    token of the fact.

    Raises:
        CorpusError: the file has invalid rows, or a length is beyond the model's context.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
    """
    with progress_bar(progress) as bar:
        loaded, run = model_or_run(model, source=source, revision=revision, device=device)
        refuse_encoder(loaded, "study haystack")
        # a run is tested on the lengths that its tags come from
        stated = None if run is None else run.info["settings"].get("haystack")
        names = tuple(haystack or stated or DEFAULT)
        config = StimulusConfig(
            loaded.tokenizer,
            loaded.vocabulary_size,
            loaded.longest_window,
            seed,
            haystack=names,
            context=loaded.longest_window,
        )
        windows = HAYSTACK.windows(config)
        tagged = tagged_heads(run)
        rerunner = Rerunner(loaded)
        rerunner.check_tokens_alone()
        steps = Steps(bar, sum(map(len, windows)))

        # one forward pass of each window gives answers, attention at its questions, and the keys
        # on which the questions are run again with heads ablated
        answers: list[pd.DataFrame] = []
        masses: list[Float[ndarray, "question layer head"]] = []
        copies: list[Float[ndarray, "token layer head"]] = []
        changes: list[Float[ndarray, "set question"]] = []
        compared: list[tuple[Head, ...]] = []
        for window in windows:
            reading = WindowReading.of(loaded, window)
            answers.append(haystack_answers(loaded, [window], names, change=reading.rows))
            masses.append(reading.mass())
            copies.append(reading.copied())
            if tagged:
                at_questions = reading.at_questions(rerunner)
                if not compared:
                    norms = mean_norms(rerunner, at_questions)
                    compared = [tagged, *matched_sets(tagged, norms, count=sets, seed=seed)]
                changes.append(reading.changes(rerunner, at_questions, compared))
            steps.advance(len(window))
        steps.finish()

    table = pd.concat(answers, ignore_index=True)
    # the tagged heads together, because one of several retrieval heads alone may be backed up
    table["ablated"] = np.concatenate(changes, 1)[0] if changes else np.nan
    refused = refused_lengths(accuracies(table, seed=seed), chance_of(names))
    notes = list(refused.values())
    effect: dict[str, Any] | None = None
    if changes:
        effect = set_effects(np.concatenate(changes, 1), table["document"].to_numpy(), seed)
        heads = ", ".join(head_name(*head) for head in tagged)
        notes.append(
            f"{heads} ablated together change the log-probability of the answer's first token by "
            f"{effect['mean']:.2f} nats [{effect['low']:.2f}, {effect['high']:.2f}], {sets} random "
            f"sets by {effect['random_mean']:.2f} on average (p = {effect['p_value']:.3f})"
        )
    # the published score, which needs answers that are copied, should rank the heads alike
    heads_table = compared_scores(loaded.attention_layers, masses, copies)
    ranks = heads_table[["mass", "copy_rate"]].corr("spearman").iloc[0, 1]
    largest = [set(heads_table.nlargest(LISTED, name).index) for name in ("mass", "copy_rate")]
    notes.append(
        f"mass on the answer and arg-max copy rate (Retrieval_Head): rank correlation {ranks:.2f} "
        f"over {len(heads_table)} heads, {len(largest[0] & largest[1])} of the first {LISTED} in "
        "common"
    )
    # a model may find facts at the ends of a text and miss those in its middle, so that depths stay
    # apart
    by_place = table.groupby(["length", "depth"], as_index=False)
    means = by_place[["correct", "log_probability", "ablated"]].mean()
    means = means.rename(columns={"correct": "accuracy"}).assign(questions=by_place.size()["size"])
    return StudyResult(
        title=f"{name_of(loaded.name)}: {len(table)} questions about facts in long text",
        table=means[STUDY.names],
        notes=notes,
        values={"heads": heads_table.to_dict("records"), "ablated": effect},
        draw=STUDY.draw,
    )


def tagged_heads(run: Result | None) -> tuple[Head, ...]:
    """Heads of a run with the tag of haystacks, in order."""
    if run is None:
        return ()
    evidence = run.evidence
    is_tagged = (evidence["relation"] == "haystack") & evidence["tagged"].astype(bool)
    places = evidence.loc[is_tagged, ["layer", "head"]].to_numpy().tolist()
    return tuple(sorted((int(layer), int(head)) for layer, head in places))


@dataclass(frozen=True, eq=False)
class WindowReading:
    """Attention and keys of one haystack, which are stored while the model runs."""

    window: Window
    queries: Int[ndarray, " question"]
    keys_of: tuple[Int[ndarray, " key"], ...]
    """Positions of the answer in the text, for each question."""
    places: tuple[Int[ndarray, " token"], ...]
    """Positions of the answer after each question."""
    rows: AttentionRead
    tiles: dict[tuple[int, int], Float[Tensor, "head key"]] = field(default_factory=dict)
    """Attention by layer and query."""
    clean: dict[int, CleanKeys] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any, window: Window) -> WindowReading:
        """A reading that is filled while the model runs with `rows` applied."""
        queries = questions_of(window)["query"].to_numpy(copy=True)
        arrows = window.arrows
        keys: list[ndarray] = []
        for query in queries.tolist():
            right = arrows.take((arrows.query == query) & arrows.right)
            # an answer may stand at several places
            spans = {*zip(right.first.tolist(), right.last.tolist(), strict=True)}
            keys.append(np.concatenate([np.arange(a, b + 1) for a, b in sorted(spans)]))
        places = tuple(answer_tokens(window, query) for query in queries.tolist())
        # rows of attention are kept at the tokens that predict the answer; all rows of a long
        # window would not fit into memory
        positions = np.unique(np.concatenate(places) - 1)
        tiles: dict[tuple[int, int], Tensor] = {}
        clean: dict[int, CleanKeys] = {}

        def store(tile: AttentionTile) -> None:
            clean[tile.layer] = tile.keys
            for query, row in zip(tile.query.tolist(), tile.attention, strict=True):
                tiles[tile.layer, query] = row

        rows = chosen_rows(model.attention_layers, positions, store)
        return cls(window, queries, tuple(keys), places, rows, tiles, clean)

    def mass(self) -> Float[ndarray, "question layer head"]:
        """Attention on the answer's tokens in the text, at each question."""
        masses = []
        for query, keys in zip(self.queries.tolist(), self.keys_of, strict=True):
            of_layers = [self.tiles[layer, query][:, keys].sum(-1) for layer in self.clean]
            masses.append(torch.stack(of_layers).cpu().numpy())
        return np.stack(masses)

    def copied(self) -> Float[ndarray, "token layer head"]:
        """1 if a head's largest attention is on the token of the fact that comes next."""
        tokens = self.window.tokens
        copied = []
        for keys, places in zip(self.keys_of, self.places, strict=True):
            for token in places.tolist():
                same = keys[tokens[keys] == tokens[token]]
                of_layers = []
                for layer in self.clean:
                    largest = self.tiles[layer, token - 1].argmax(-1).cpu().numpy()
                    of_layers.append(np.isin(largest, same))
                copied.append(np.stack(of_layers).astype(float))
        return np.stack(copied)

    @torch.inference_mode()
    def at_questions(self, rerunner: Rerunner) -> CleanRun:
        """The clean run at the questions alone, and last at the question about nothing."""
        null = self.window.arrows.query[self.window.arrows.kind == NULL][0]
        queries = torch.from_numpy(np.append(self.queries, null))
        ids = torch.from_numpy(self.window.tokens)[queries].to(rerunner.model.device)
        on_keys = TokensOnKeys([self.clean], torch.zeros_like(queries), queries)
        return rerunner.clean(single_tokens(ids, queries), on_keys)

    @torch.inference_mode()
    def changes(
        self, rerunner: Rerunner, at_questions: CleanRun, sets: Collection[tuple[Head, ...]]
    ) -> Float[ndarray, "set question"]:
        """Change of the log-probability of each answer's first token, for each set of heads.

        Args:
            rerunner: the model.
            at_questions: see the method of that name.
            sets: heads whose outputs are those at the question about nothing.
        """
        tokens = self.window.tokens
        label = torch.from_numpy(tokens[[places[0] for places in self.places]])
        questions = at_questions.at_rows(torch.arange(len(self.queries)))
        of_sets: list[Tensor] = []
        # the empty set changes nothing: what all other sets are compared with
        for heads in ((), *sets):
            by_layer = heads_by_layer(heads)
            # heads get what they write at the question about nothing, the last row
            unasked = {
                layer: at_questions.z[layer][-1:, :, members] for layer, members in by_layer.items()
            }
            states = rerunner.states(questions, HeadsSet(by_layer, unasked))
            logs = log_probabilities(rerunner.network, states).cpu()
            of_sets.append(at_labels(logs, label))
        untouched, *ablated = of_sets
        return (torch.stack(ablated) - untouched).double().numpy()


def mean_norms(rerunner: Rerunner, at_questions: CleanRun) -> dict[Head, float]:
    """Mean norm of each head's output z W_O at the questions."""
    norms: dict[Head, float] = {}
    for layer, z in at_questions.z.items():
        means = written_norms(rerunner.outputs[layer], z[:, 0]).mean(0)
        for head, norm in enumerate(means.tolist()):
            norms[layer, head] = norm
    return norms


def set_effects(
    changes: Float[ndarray, "set question"], documents: Int[ndarray, " question"], seed: int
) -> dict[str, Any]:
    """The mean change by the first set with its interval over documents, beside the other sets."""
    _, group = np.unique(documents, return_inverse=True)
    sums = np.bincount(group, changes[0])
    mean, low, high, _ = estimate(sums, np.bincount(group), seed=seed)
    random = changes[1:].mean(1)
    # random sets that lower the answer as much; the measured set counts as one of them
    at_least = int((random <= mean).sum())
    return {
        "mean": mean,
        "low": low,
        "high": high,
        "random_mean": float(random.mean()),
        "random": random.tolist(),
        "p_value": (1 + at_least) / (1 + len(random)),
    }


def compared_scores(
    layers: Collection[int],
    masses: Collection[Float[ndarray, "question layer head"]],
    copies: Collection[Float[ndarray, "token layer head"]],
) -> pd.DataFrame:
    """A row for each head with its mean mass on the answer and its copy rate, by its name."""
    mass = np.concatenate([*masses]).mean(0)
    copied = np.concatenate([*copies]).mean(0)
    rows: list[dict[str, Any]] = []
    for number, layer in enumerate(layers):
        for head in range(mass.shape[1]):
            scores = {"mass": float(mass[number, head]), "copy_rate": float(copied[number, head])}
            rows.append({"layer": layer, "head": head, **scores})
    return pd.DataFrame(rows)
