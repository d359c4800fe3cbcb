"""Heads of a model while it is trained by transformers' Trainer, step by step."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from headscope.arguments import HEAD_TYPES, takes, whole
from headscope.classification import classify
from headscope.corpus.shipped import asked_corpora, corpus_title
from headscope.errors import HeadscopeError
from headscope.measure.readable import readable
from headscope.models.in_memory import open_model
from headscope.models.load import Model
from headscope.relations import check_types
from headscope.run import Run
from headscope.runs.folder import encoded
from headscope.runs.tables import table_to_csv
from headscope.runs.write import check_target, write_file
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.studies.sweep.counts import by_revision
from headscope.studies.sweep.sweep_cells import Cell, counted
from headscope.studies.sweep.sweep_result import Emergence
from headscope.views.study import check_table_file

TYPES = ("positional", "delimiter", "induction")
"""Types that a short text decides, and that come early in training."""
TOKENS = 2_000
"""Tokens of text: enough for the tags of position, which 1,000 leave undecided."""


class HeadCallback(TrainerCallback):  # type: ignore[misc]
    """Counts the heads of each type while transformers' Trainer trains a model.

    A small text, the same each time, is read when training begins and then every so many steps. The
    model is read as it is: its weights are shared with a copy in evaluation mode, and random
    states are put back. A reading that fails later than the first is left out with a warning.

    `emergence` is the table of `headscope sweep emergence` so far. To log the counts wherever the
    Trainer logs, set `callback.log = trainer.log`.

    Args:
        every: steps between readings.
        types: head types to ask for.
        corpus: files or folders of text; `gum`, which ships with headscope, when None.
        max_tokens: tokens of text to read, to the end of a window.
        out: a .csv file that is written anew after each reading.
        overwrite: replace a file that is there when training begins.

    Raises:
        ArgumentError: a value of another kind.
        ChoiceError: no such type.
        CorpusError: the text cannot be read.
        WriteError: `out` is no .csv file, or is there already.
    """

    @takes(every=whole(1), types=HEAD_TYPES)
    def __init__(
        self,
        *,
        every: int = 500,
        types: Sequence[str] = TYPES,
        corpus: str | Path | Sequence[str | Path] | None = None,
        max_tokens: int = TOKENS,
        out: str | Path | None = None,
        overwrite: bool = False,
    ) -> None:
        check_types(types)
        self.every, self.types, self.max_tokens = every, types, max_tokens
        self.corpus = [str(path) for path in asked_corpora(readable(corpus))]
        self.out = None if out is None else check_table_file(Path(out))
        if self.out is not None:
            check_target(self.out, overwrite=overwrite)
        self.log: Callable[[dict[str, float]], None] | None = None
        """Called with the counts of each reading, such as `trainer.log`."""
        self.seconds: list[float] = []
        """Seconds that each reading took."""
        self._cells: list[Cell] = []
        self._model: Model | None = None
        self._network: Any = None

    @property
    def emergence(self) -> Emergence:
        """Heads of each type at each step that was read, with its table and figure.

        Raises:
            RunError: nothing was read yet.
        """
        return Emergence(by_revision(self._cells))

    def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """Read the model before the first step."""
        if state.is_world_process_zero:
            self.read(state.global_step, context["model"], context.get("processing_class"))

    def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
        """Read the model where a multiple of `every` steps is done."""
        if state.is_world_process_zero and state.global_step % self.every == 0:
            should_log = control.should_log
            try:
                self.read(state.global_step, context["model"], context.get("processing_class"))
            except HeadscopeError as error:  # hours of training are worth more
                warnings.warn(f"heads at step {state.global_step}: {error}", stacklevel=2)
            control.should_log = should_log  # which the Trainer's log takes for done

    def read(self, step: int, model: Any, tokenizer: Any) -> None:
        """Read a model that a loop of one's own trains, as the Trainer's callback would.

        Args:
            step: steps that are done, the row's `step` in the table.
            model: of transformers.
            tokenizer: the model's.

        Raises:
            HeadscopeError: no tokenizer, or no head of these types can be counted on the text.
        """
        start = time.perf_counter()
        with random_states_restored():
            run = self._classified(model, tokenizer)
        types = countable_types(run.evidence, run.rules)
        if not types:
            raise HeadscopeError(
                f"no head of the types {', '.join(self.types)} can be counted: the text is too "
                "short, or the model's attention is not finite"
            )
        cell = Cell(run.name, f"step{step}", tuple(map(corpus_title, self.corpus)), "")
        self._cells = [known for known in self._cells if known.revision != cell.revision]
        self._cells.append(counted(cell, run.heads, types))
        if self.out is not None:
            text = table_to_csv(self.emergence.table)
            write_file(self.out, encoded(text), overwrite=True)
        self.seconds.append(time.perf_counter() - start)
        if self.log is not None:
            self.log(self._logged(run))

    def _classified(self, network: Any, tokenizer: Any) -> Run:
        if tokenizer is None:
            raise HeadscopeError(
                "HeadCallback reads text, and has no tokenizer: give one by "
                "Trainer(processing_class=tokenizer, …)"
            )
        if self._model is None or self._network is not network:
            self._model, self._network = open_model((network, tokenizer)), network
        return classify(
            self._model,
            self.corpus,
            types=self.types,
            max_tokens=self.max_tokens,
            all=True,
            twin=False,
            built=False,
            examples=False,
            progress=False,
        )

    def _logged(self, run: Run) -> dict[str, float]:
        """Heads of each type, and the largest lift of each, which moves before tags do."""
        lifts = run.evidence.groupby("type")["lift"].max()
        counts = self._cells[-1].counts
        logged = {f"heads/{name}": float(n) for name, n in counts.items() if name not in NO_TYPE}
        return logged | {f"lift/{name}": float(lift) for name, lift in lifts.dropna().items()}


@contextmanager
def random_states_restored() -> Iterator[None]:
    """Put back the random states of Python, NumPy and torch when the context ends."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
