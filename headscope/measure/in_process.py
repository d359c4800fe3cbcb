"""The model of a run, read in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headscope.measure.batch_reader import BatchReader
from headscope.measure.plan import BatchResult, Plan, Step, read_plan
from headscope.models.load import open_model
from headscope.models.model import NARROW, Model, narrowed
from headscope.models.stream import batch_tokens_on

T = TypeVar("T")
_END = object()


class InProcess:
    """Reads the model in this process. A model that is asked for again is not loaded again."""

    heads: Collection[tuple[int, int]] = ()
    """Layer and number of the only heads whose layers are read and that have examples, if any."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._opened: tuple[Any, dict[str, Any]] | None = None

    @property
    def model(self) -> Model:
        """The opened model, as far as it is read."""
        if self._model is None:
            raise RuntimeError("open comes first")
        if not self.heads:
            return self._model
        return self._model.with_layers({layer for layer, _ in self.heads})

    def open(self, model: Any, **options: Any) -> Model:
        """The model; see `headscope.models.load.open_model`."""
        # what is in memory may have changed since it was opened
        if self._model is None or not isinstance(model, str) or self._opened != (model, options):
            self._model = self._opened = None  # two models need not fit into memory
            self._model = open_model(model, **options)
            self._opened = (model, options)
        return self.model

    def narrow(self) -> Model:
        """The opened model in half precision, in place; see `precision.narrowed`."""
        if self._model is not None and self._opened is not None:
            self._model = narrowed(self._model)
            name, options = self._opened
            self._opened = name, {**options, "dtype": NARROW}
        return self.model

    def read(self, plan: Plan) -> None:
        """Read a plan by the opened model; see `headscope.measure.plan.read_plan`."""
        model = self.model
        reader = BatchReader(model, plan.relations, plan.seed)

        def read(steps: Iterable[Step]) -> Iterator[BatchResult]:
            prepared_steps = ((step, reader.prepare(step.batch)) for step in steps)
            # on a processor's cores the model and its next batch would be in each other's way
            for step, prepared in (
                prepared_steps if model.device == "cpu" else prefetched(prepared_steps)
            ):
                yield reader.read(step, prepared, plan.sample)

        read_plan(plan, read, batch_tokens=batch_tokens_on(model.device))


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made on another thread while the one before it is used.

    Errors come out in their order.
    """
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, items, _END)
        while (item := upcoming.result()) is not _END:
            upcoming = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]
