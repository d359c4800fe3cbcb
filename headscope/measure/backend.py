"""What reads a model for a run: this process, or others; the run's own steps are the same.

`headscope.pipeline.classify` opens a model, hands a plan to be read, asks for examples, and never
runs a model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.plan import Plan
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.measure.example import Example, Wanted
    from headscope.measure.sanity import Targets
    from headscope.models.load import Model

BATCH_TOKENS = 1_024
"""Tokens of one forward pass on a processor; bounds memory. With twice as many, glibc hands GPT-2
small's temporaries back to the system and asks for new pages each time, a tenth of all time."""
ACCELERATOR_BATCH_TOKENS = 8_192
"""Tokens of one forward pass elsewhere."""
ProgressOf = Callable[[int, int], None]


def batch_tokens_on(device: str) -> int:
    """Tokens of one forward pass on a device."""
    return BATCH_TOKENS if device == "cpu" else ACCELERATOR_BATCH_TOKENS


@runtime_checkable
class Backend(Protocol):
    """Opens one model after the other, and reads of each what a plan asks for."""

    def open(self, model: Any, **how: Any) -> Model:
        """The model and its facts; `how` are fields of `headscope.models.loading.Loading`.

        Raises:
            ModelError: see there.
        """

    def read(self, plan: Plan) -> None:
        """Read a plan by the opened model, and add to the plan's sums.

        Raises:
            ModelError: a window does not fit into memory, or the model can have no twin.
        """

    def token_losses(self, targets: Sequence[Targets]) -> Float[ndarray, " target"]:
        """The opened model's loss of some tokens; see `headscope.measure.sanity.token_losses`."""

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

    def close(self) -> None:
        """Let go of the model."""
