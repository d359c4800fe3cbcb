"""Reading a model for a run, in this process or in others; the run's own steps are the same.

`headscope.classification.classify` opens a model, hands over a plan to be read, asks for examples,
and never runs a model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.plan import Plan
from headscope.measure.progress import OnProgress
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.measure.example import Example, ExampleRequest
    from headscope.measure.loss_check import Targets
    from headscope.measure.shadow import ShadowRequest, ShadowScore
    from headscope.models.load import Model


@runtime_checkable
class Backend(Protocol):
    """Opens one model after the other, and reads of each what a plan asks for."""

    def open(self, model: Any, **options: Any) -> Model:
        """The model and its facts.

        Args:
            model: a name, a folder or a file.
            options: fields of `headscope.models.load_options.LoadOptions`.

        Raises:
            ModelError: see there.
        """

    def read(self, plan: Plan) -> None:
        """Read a plan by the opened model, and add to the plan's sums.

        Raises:
            ModelError: a window does not fit into memory, or the model can have no twin.
        """

    def token_losses(self, targets: Sequence[Targets]) -> Float[ndarray, " target"]:
        """The opened model's loss of tokens; see `headscope.measure.loss_check.token_losses`."""

    def score_shadows(
        self,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        requests: Sequence[ShadowRequest],
        *,
        tokens: int,
        seed: int,
        progress: OnProgress = lambda done, total: None,
    ) -> list[ShadowScore]:
        """Shadows of some heads; see `headscope.measure.shadow.score_shadows`."""

    def find_examples(
        self,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        requests: Sequence[ExampleRequest],
        *,
        seed: int,
        progress: OnProgress = lambda done, total: None,
    ) -> list[Example]:
        """Examples of some heads; see `headscope.measure.examples.find_examples`."""

    def close(self) -> None:
        """Let go of the model."""
