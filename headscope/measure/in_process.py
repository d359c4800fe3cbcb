"""The backend that reads the model in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.accumulate import Prepared
from headscope.measure.backend import ProgressOf, batch_tokens_on
from headscope.measure.example import Example, Wanted
from headscope.measure.examples import find_examples
from headscope.measure.measure import Setting
from headscope.measure.plan import Part, Plan, read_plan
from headscope.measure.prefetch import prefetched
from headscope.measure.sanity import Targets, token_losses
from headscope.measure.schedule import Step
from headscope.models.load import Model
from headscope.models.shuffled import check_twin, shuffled
from headscope.models.sources import open_model
from headscope.relations.relation import Relation


class InProcess:
    """Reads the model in this process. A model that is asked for again is not loaded again."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._asked: tuple[Any, dict[str, Any]] | None = None

    @property
    def model(self) -> Model:
        """The opened model."""
        if self._model is None:
            raise RuntimeError("open comes first")
        return self._model

    def open(self, model: Any, **how: Any) -> Model:
        """The model; see `headscope.models.sources.open_model`."""
        # what is in memory may have changed since it was opened
        if self._model is None or not isinstance(model, str) or self._asked != (model, how):
            self.close()  # two models need not fit into memory
            self._model = open_model(model, **how)
            self._asked = (model, how)
        return self._model

    def close(self) -> None:
        """Let go of the model."""
        self._model, self._asked = None, None

    def read(self, plan: Plan) -> None:
        """Read a plan by the opened model; see `headscope.measure.plan.read_plan`."""
        model, kept = self.model, dict[int, Prepared]()
        if plan.twin is not None:
            check_twin(model.engine)
        setting = Setting(model, plan.relations, plan.seed, plan.effects)

        def read(steps: Iterable[Step], twin: bool) -> Iterator[Part]:
            with shuffled(model.engine, seed=plan.seed) if twin else nullcontext():
                coming = _prepare(setting, steps, kept, twin)
                # on a processor's cores the model and its next batch would be in each other's way
                for step, prepared in coming if model.device == "cpu" else prefetched(coming):
                    yield setting.read(step, prepared)

        read_plan(plan, read, batch_tokens=batch_tokens_on(model.device))

    def token_losses(self, targets: Sequence[Targets]) -> Float[ndarray, " target"]:
        """The opened model's loss of some tokens; see `headscope.measure.sanity.token_losses`."""
        return token_losses(self.model, targets)

    def find_examples(
        self,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        wanted: Sequence[Wanted],
        *,
        seed: int,
        progress: ProgressOf = lambda done, total: None,
    ) -> list[Example]:
        """Examples of some heads; see `headscope.measure.examples.find_examples`."""
        return find_examples(
            self.model,
            windows,
            relations,
            wanted,
            seed=seed,
            progress=progress,
            batch_tokens=batch_tokens_on(self.model.device),
        )


def _prepare(
    setting: Setting, steps: Iterable[Step], kept: dict[int, Prepared], twin: bool
) -> Iterator[tuple[Step, Prepared]]:
    """Each batch with its cells; those of batches that the twin reads too are searched once."""
    for step in steps:
        prepared = kept.pop(id(step.batch), None) or setting.prepare(step.batch)
        if step.shared and not twin:
            kept[id(step.batch)] = prepared
        yield step, prepared
