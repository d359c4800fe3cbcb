"""Emergence: number of heads of each type at each revision of a model, e.g. during training."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field
from transformers import TrainerCallback

from headscope.corpus.shipped import asked_corpora, corpus_title
from headscope.errors import HeadscopeError, RunError
from headscope.models.load import open_model
from headscope.models.model import Model
from headscope.options import Corpus, MaxTokens, Names, Overwrite, PathName, Positive, checked
from headscope.random_state import random_state_kept
from headscope.relations import check_types
from headscope.run import Run, classify
from headscope.runs.write import check_target
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.stimuli.natural_text import readable
from headscope.studies.study import Command, Study, study, table_columns
from headscope.studies.sweep_folder import (
    COMPLETE,
    Cell,
    SweepFolder,
    counted_types,
    measured_types,
    with_counts,
)
from headscope.views.study_figure import Lines
from headscope.views.study_result import StudyResult, check_table_file

TYPES = ("positional", "delimiter", "induction", "duplicate-token")
"""Types that a short text decides, and that emerge early in training."""
TOKENS = 2_000
"""Tokens of text; 1,000 leave positional tags undecided."""


STUDY = Study(
    command=Command(
        group="sweep",
        summary="Find the revision at which each head type appears.",
        examples=("headscope sweep emergence runs/stages --figure stages.pdf",),
    ),
    rows="model × corpus × revision × type",
    columns=table_columns("""
        model | text | the model's name
        corpus | names joined by `;` | what was read
        revision | text | the revision
        step | number, ≥ 0 | the last number in the revision's name
        type | a head type | the type, `not identifiable` or `unclassified`
        heads | heads, ≥ 0 | heads that hold a tag of the type
        all_heads | heads, ≥ 1 | heads of the model
    """),
    figure=Lines(x="revision", y="heads", by="type", panels=("model", "corpus")),
    bad_call={"sweep": ""},
)


@study(STUDY)
def emergence(
    sweep: Annotated[PathName, Field(description="Folder of a sweep.")],
) -> StudyResult:
    """Count the heads of each type at each revision of a sweep, e.g. during training.

    Revisions are in the order of their `step`, the last number in the name.

    Raises:
        RunError: the folder holds no sweep, a damaged one, or one without a complete run.
    """
    return cell_emergence([*SweepFolder.read(Path(sweep)).cells.values()])


def cell_emergence(cells: Sequence[Cell]) -> StudyResult:
    """The emergence of heads along the complete cells.

    Raises:
        RunError: no cell is complete.
    """
    table = by_revision(cells)
    models = ", ".join(table["model"].unique())
    corpora = ", ".join(table["corpus"].unique())
    # columns that say nothing are not shown
    hidden = [name for name in ("model", "corpus") if table[name].nunique() == 1]
    keys = ["model", "corpus", "revision", "all_heads"]
    counts = table.pivot(index=keys, columns="type", values="heads")
    counts = counts[measured_types(cells)]
    # revisions in the order of training
    order = pd.MultiIndex.from_frame(table[keys].drop_duplicates())
    by_row = counts.reindex(order).reset_index()
    typed = table[~table["type"].isin(NO_TYPE)]
    return StudyResult(
        title=f"heads with a tag of each type in {models} on {corpora}",
        table=table,
        terminal_table=by_row.drop(columns=hidden),
        draw=partial(STUDY.draw, table=typed.dropna(subset="heads")),
    )


def by_revision(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row per model, corpus, revision and type of the complete cells; see `emergence`.

    Raises:
        RunError: no cell is complete.
    """
    complete = [cell for cell in cells if cell.status == COMPLETE]
    if not complete:
        raise RunError(f"none of the {len(cells)} runs of this sweep is complete")
    # models in the order given, and their revisions by steps
    models = list(dict.fromkeys((cell.model, cell.corpus) for cell in complete))

    def position(cell: Cell) -> tuple[int, bool, int]:
        step = step_of(cell.revision)
        return models.index((cell.model, cell.corpus)), step is None, step or 0

    rows = [
        {
            "model": cell.model,
            "corpus": ";".join(cell.corpus),
            "revision": cell.revision or "",
            "step": step_of(cell.revision),
            "type": name,
            "heads": cell.counts.get(name),
            "all_heads": cell.heads,
        }
        for cell in sorted(complete, key=position)
        for name in counted_types(measured_types(cells))
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(("step", "heads", "all_heads"), "Int64"))


def step_of(revision: str | None) -> int | None:
    """The last number in a revision's name; None if absent, or if it is a commit.

    >>> step_of("step1000"), step_of("main")
    (1000, None)
    """
    numbers = re.findall(r"\d+", Path(revision or "").name)
    is_commit = re.fullmatch(r"[0-9a-f]{40}", revision or "")
    # more digits are a date or a hash, and do not fit into a column of integers
    return int(numbers[-1]) if numbers and not is_commit and len(numbers[-1]) < 16 else None


class HeadCallback(TrainerCallback):  # type: ignore[misc]
    """Counts the heads of each type while transformers' Trainer trains a model.

    The same short text is read when training begins and then every few steps. The weights are
    shared with a copy in evaluation mode. If a later reading fails, it is skipped with a warning.

    `emergence` is the result of `headscope.emergence` so far. To log the counts wherever the
    Trainer logs, set `callback.log = trainer.log`.

    Args:
        every: steps between readings.
        types: head types to count.
        corpus: files or folders of text; the corpus that ships if None.
        max_tokens: tokens of text to read, to the end of a window.
        out: a .csv file that is replaced after each reading.
        overwrite: replace a file that exists when training begins.

    Raises:
        ArgumentError: an invalid value.
        ChoiceError: no such type.
        CorpusError: the text cannot be read.
        WriteError: `out` is not a .csv file, or exists already.
    """

    @checked
    def __init__(
        self,
        *,
        every: Positive = 500,
        types: Names = TYPES,
        corpus: Corpus = None,
        max_tokens: MaxTokens = TOKENS,
        out: PathName | None = None,
        overwrite: Overwrite = False,
    ) -> None:
        check_types(types)
        self.every, self.types, self.max_tokens = every, types, max_tokens
        self.corpus = [str(path) for path in asked_corpora(readable(corpus))]
        self.out = None if out is None else check_table_file(Path(out))
        if self.out is not None:
            check_target(self.out, overwrite=overwrite, chosen_by="out")
        self.log: Callable[[dict[str, float]], None] | None = None
        """Called with the counts of each reading, such as `trainer.log`."""
        self._cells: dict[str, Cell] = {}
        self._model: Model | None = None
        self._network: Any = None

    @property
    def emergence(self) -> StudyResult:
        """Heads of each type at each step that was read.

        Raises:
            RunError: nothing was read yet.
        """
        return cell_emergence([*self._cells.values()])

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """Read the model before the first step."""
        if state.is_world_process_zero:
            self.read(state.global_step, context["model"], context.get("processing_class"))

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """Read the model after every multiple of `every` steps."""
        if state.is_world_process_zero and state.global_step % self.every == 0:
            should_log = control.should_log
            try:
                self.read(state.global_step, context["model"], context.get("processing_class"))
            except HeadscopeError as error:  # hours of training are worth more
                warnings.warn(f"heads at step {state.global_step}: {error}", stacklevel=2)
            control.should_log = should_log  # our log entry must not replace the Trainer's

    def read(self, step: int, model: Any, tokenizer: Any) -> None:
        """Read a model, e.g. in a training loop without the Trainer.

        Raises:
            ModelError: no tokenizer, or the model cannot be read.
            HeadscopeError: the text decides none of the types.
        """
        # the same text each time, so that counts differ by training alone
        run = self._classified(model, tokenizer)
        # types whose heads can be counted on this text
        types = countable_types(run.evidence_with_thresholds)
        if not types:
            raise HeadscopeError(
                f"no head of the types {', '.join(self.types)} can be counted: the text is too "
                "short, or the model's attention is not finite"
            )
        cell = Cell(run.name, f"step{step}", tuple(map(corpus_title, self.corpus)), "")
        self._cells[f"step{step}"] = with_counts(cell, run.heads, types)
        # saved after each model, as training may stop
        if self.out is not None:
            self.emergence.save(self.out, overwrite=True)
        if self.log is not None:
            # the largest lift of a type moves before its tags do
            logged: dict[str, float] = {}
            for name, count in self._cells[f"step{step}"].counts.items():
                if name not in NO_TYPE:
                    logged[f"heads/{name}"] = float(count)
            lifts = run.evidence.groupby("type")["lift"].max().dropna()
            for name, lift in lifts.items():
                logged[f"lift/{name}"] = float(lift)
            self.log(logged)

    @random_state_kept()  # training goes on with the same dropout and batches
    def _classified(self, network: Any, tokenizer: Any) -> Run:
        # merged weights are copies, which do not change with the network's
        is_current = self._model is not None and not self._model.merged
        if not is_current or self._network is not network:
            self._model, self._network = open_model((network, tokenizer)), network
        return classify(
            self._model,
            self.corpus,
            types=self.types,
            max_tokens=self.max_tokens,
            all=True,
            challenge=False,
            examples=False,
            progress=False,
        )
