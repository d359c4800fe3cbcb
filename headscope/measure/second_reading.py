"""Windows that a run reads once more: for its loss, the surrogates of some heads, and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headscope.corpus.window import Window
from headscope.measure.example import Example, ExampleRequest
from headscope.measure.examples import find_examples
from headscope.measure.fit_baselines import FittedBaselines
from headscope.measure.loss_check import LossCheck, check_loss, token_losses
from headscope.measure.rounds import was_read
from headscope.measure.sums import Sums
from headscope.measure.surrogate_rows import (
    LONGEST,
    SurrogateRequest,
    SurrogateRows,
    SurrogateText,
    read_surrogate_rows,
    rows_of_model,
    tokens_again,
)
from headscope.measure.text import Text
from headscope.models.model import Model
from headscope.progress import OnProgress
from headscope.relations.relation import Relation


@dataclass(frozen=True, eq=False)
class SecondReading:
    """Reads windows again that are in the sums of a run, by the same model, if they are needed."""

    model: Model
    text: Text
    relations: Sequence[Relation]
    """The relations that requests number."""
    baselines: FittedBaselines
    sums: Sums
    seed: int
    progress: OnProgress

    def text_loss(self) -> LossCheck:
        """The model's loss on some of the text."""
        return check_loss(
            self.sums.token_counts,
            self.sums.sample.windows,
            partial(token_losses, self.model),
            vocabulary=self.model.vocabulary_size,
            seed=self.seed,
        )

    def surrogate_rows(self, requests: Sequence[SurrogateRequest]) -> SurrogateRows | None:
        """Rows of some heads on the beginnings of some windows; None without a request."""
        if not requests:
            return None
        # text from its beginning, as far as it was kept, and the other stimuli
        read_windows = [
            *self.text.first[: self.sums.token_counts.windows],
            *self._were_read(self.text.others),
        ]
        # cells grow with the square of a window's length, and beginnings come from more documents
        beginnings = [window.cut(LONGEST) for window in read_windows]
        return read_surrogate_rows(
            partial(rows_of_model, self.model),
            SurrogateText(
                windows=beginnings,
                choices=self.baselines.choices,
                tokens=tokens_again(self.sums.tokens),
                seed=self.seed,
            ),
            self.relations,
            requests,
            progress=self.progress,
        )

    def examples(self, requests: Sequence[ExampleRequest]) -> list[Example]:
        """Examples of some heads, cut out of the sample of text and of other windows."""
        sample = self.sums.sample
        return find_examples(
            partial(sample.patterns, self.model),
            [*sample.windows, *self._were_read(self.text.synthetic)],
            self.relations,
            requests,
            seed=self.seed,
            progress=self.progress,
        )

    def _were_read(self, windows: Sequence[Window]) -> list[Window]:
        return [window for window in windows if was_read(window, self.sums.stopped)]
