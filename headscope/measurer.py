"""What reads a model for a run: this process, or others; the run's own steps are the same.

`headscope.pipeline.classify` asks a measurer for sums and examples and never runs a model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headscope.corpus.window import Window
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    import pandas as pd

    from headscope.example import Example
    from headscope.models import Model
    from headscope.reading import Prepared
    from headscope.schedule import Choose
    from headscope.tally import Pass, Tally

BATCH_TOKENS = 1_024
"""Tokens of one forward pass on a processor; bounds memory. With twice as many, glibc hands GPT-2
small's temporaries back to the system and asks for new pages each time, a tenth of all time."""
ACCELERATOR_BATCH_TOKENS = 8_192
"""Tokens of one forward pass elsewhere."""
Progress = Callable[[int], None]
ProgressOf = Callable[[int, int], None]
Keep = Callable[[], None]


def batch_tokens_on(device: str) -> int:
    """Tokens of one forward pass on a device."""
    return BATCH_TOKENS if device == "cpu" else ACCELERATOR_BATCH_TOKENS


@runtime_checkable
class Measurer(Protocol):
    """Loads one model after the other, and reads each with its run's windows."""

    again: int
    """Tokens that the twin of the last measured model is to read."""
    resumes: bool
    """Whether it goes on with sums that were kept, and says when there are new ones to keep."""

    def load(self, name: str, **how: Any) -> Model:
        """The model and its facts; `how` is what `headscope.models.load_model` takes.

        Raises:
            ModelError: see there.
        """

    def check_twin(self) -> None:
        """Refuse a loaded model that can have no twin; see `headscope.twin.check_twin`."""

    def measure(
        self, text: Iterable[Window], synthetic: Sequence[Window], relations: Sequence[Relation],
        *, seed: int, share: Choose, progress: Progress, so_far: Pass, keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of the loaded model; see `headscope.measure.measure`."""

    def measure_twin(
        self, relations: Sequence[Relation], *, seed: int, progress: Progress, so_far: Pass,
        keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of its twin on the windows that `share` chose before."""

    def find_examples(
        self, windows: Sequence[Window], relations: Sequence[Relation], evidence: pd.DataFrame,
        *, seed: int, progress: ProgressOf = lambda done, total: None,
    ) -> list[Example]:  # fmt: skip
        """Examples of the tagged heads; see `headscope.examples.find_examples`."""


class InProcess:
    """Reads the model in this process. A model that is asked for again is not loaded again."""

    resumes = True

    def __init__(self) -> None:
        self.again = 0
        self._kept: list[Prepared] = []
        self._model: Model | None = None
        self._asked: tuple[str, dict[str, Any]] | None = None

    @property
    def model(self) -> Model:
        """The loaded model."""
        if self._model is None:
            raise RuntimeError("load comes first")
        return self._model

    def load(self, name: str, **how: Any) -> Model:
        """The model; see `headscope.models.load_model`."""
        from headscope.models import load_model

        if self._model is None or self._asked != (name, how):
            self._model, self._kept = None, []  # two models need not fit into memory
            self._model = load_model(name, **how)
            self._asked = (name, how)
        return self._model

    def check_twin(self) -> None:
        """Refuse a loaded model that can have no twin; see `headscope.twin.check_twin`."""
        from headscope.twin import check_twin

        check_twin(self.model.engine)

    def measure(
        self, text: Iterable[Window], synthetic: Sequence[Window], relations: Sequence[Relation],
        *, seed: int, share: Choose, progress: Progress, so_far: Pass, keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of the loaded model; see `headscope.measure.measure`."""
        from headscope.measure import measure

        tally, self._kept = measure(
            self.model, text, synthetic, relations, seed=seed,
            batch_tokens=batch_tokens_on(self.model.device), share=share, progress=progress,
            so_far=so_far, keep=keep,
        )  # fmt: skip
        self.again = sum(len(window) for each in self._kept for window in each.batch.windows)
        return tally

    def measure_twin(
        self, relations: Sequence[Relation], *, seed: int, progress: Progress, so_far: Pass,
        keep: Keep,
    ) -> Tally:  # fmt: skip
        """The sums of its twin on the windows that `share` chose before."""
        from headscope.measure import measure_again
        from headscope.twin import shuffled

        with shuffled(self.model.engine, seed=seed):
            tally = measure_again(
                self.model, self._kept, relations, seed=seed, progress=progress, so_far=so_far,
                keep=keep,
            )  # fmt: skip
        self._kept = []
        return tally

    def find_examples(
        self, windows: Sequence[Window], relations: Sequence[Relation], evidence: pd.DataFrame,
        *, seed: int, progress: ProgressOf = lambda done, total: None,
    ) -> list[Example]:  # fmt: skip
        """Examples of the tagged heads; see `headscope.examples.find_examples`."""
        from headscope.examples import find_examples

        return find_examples(
            self.model, windows, relations, evidence, seed=seed, progress=progress,
            batch_tokens=batch_tokens_on(self.model.device),
        )  # fmt: skip
