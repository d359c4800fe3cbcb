"""The backend that answers for some heads: it reads their layers, and cuts out their examples."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headscope.corpus.window import Window
from headscope.measure.example import Example, ExampleRequest
from headscope.measure.in_process import InProcess
from headscope.measure.progress import OnProgress
from headscope.models.load import Model
from headscope.models.some_layers import with_some_layers
from headscope.relations.relation import Relation


class SomeHeads(InProcess):
    """Reads the layers of some heads in this process, and runs none after the last of them."""

    heads: Collection[tuple[int, int]] = ()
    """Layer and number of each; all are read before any are named."""

    def _read_part(self, model: Model) -> Model:
        if not self.heads:
            return model
        return with_some_layers(model, {layer for layer, _ in self.heads})

    def find_examples(
        self,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        requests: Sequence[ExampleRequest],
        *,
        seed: int,
        progress: OnProgress = lambda done, total: None,
    ) -> list[Example]:
        """Examples of these heads alone; see `headscope.measure.examples.find_examples`."""
        is_whole = self.model is self._whole_model
        own_requests = [
            want for want in requests if is_whole or (want.layer, want.head) in self.heads
        ]
        return super().find_examples(windows, relations, own_requests, seed=seed, progress=progress)
