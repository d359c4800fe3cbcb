"""The random tokens on which published scores were measured, drawn as their notebooks draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    import torch

    from headscope.models.load import Model

GPT2_TOKENS = 50_257
"""The size of the vocabulary whose ids the notebooks draw."""


@dataclass(frozen=True)
class PublishedStimulus:
    """Windows of random tokens, each followed by its copy, without a beginning-of-text token."""

    windows: int
    length: int
    """Tokens that are repeated once."""
    lowest: int
    """The lowest token id, of GPT-2's vocabulary."""
    end: int
    """One more than the highest."""
    seed: int
    seeded: bool
    """Whether the notebook sets this seed; else its draw cannot be had again, only its like."""

    def tokens(self) -> Int[ndarray, "window position"]:
        """The token ids, the same on every machine."""
        import torch

        # the notebook seeds torch's own generator; another one with this seed draws the same
        generator = torch.Generator().manual_seed(self.seed)
        size = (self.windows, self.length)
        tokens = torch.randint(self.lowest, self.end, size, generator=generator)
        return tokens.repeat(1, 2).numpy()

    def check(self, model: Model) -> None:
        """Refuse a model that cannot read it, or to which these ids mean other tokens.

        Raises:
            HeadscopeError: its vocabulary is not GPT-2's, or its context too short.
        """
        if model.vocabulary_size != GPT2_TOKENS:
            raise HeadscopeError(
                f"the published stimulus consists of GPT-2's token ids {self.lowest:,} to "
                f"{self.end - 1:,}, and {model.name} has a vocabulary of "
                f"{model.vocabulary_size:,} tokens, not GPT-2's {GPT2_TOKENS:,}"
            )
        if model.context < 2 * self.length:
            raise HeadscopeError(
                f"the published stimulus has {2 * self.length} tokens, and {model.name} reads "
                f"{model.context} at most"
            )


EXPLORATORY = PublishedStimulus(2, 100, 100, 20_000, seed=0, seeded=True)
"""TransformerLens' Exploratory_Analysis_Demo, cell 96: `torch.manual_seed(0)`, then
`torch.randint(100, 20000, size=(2, 100))`."""
MAIN = PublishedStimulus(10, 50, 1_000, 10_000, seed=0, seeded=False)
"""TransformerLens' Main_Demo, cells 46 and 53: `torch.randint(1000, 10000, (10, 50))`."""


@dataclass(frozen=True)
class Metric:
    """A published score matrix: which diagonal of which stimulus, and what to compare it with."""

    stimulus: PublishedStimulus
    offset: int
    """How far below the main diagonal the scored one lies."""
    relation: str
    """The run's own relation, where the model cannot be run again."""
    accepted: float
    """Accepted largest difference on the published stimulus. On the very same tokens only rounding
    is left; where the notebook sets no seed, two draws differ by up to this much."""
    accepted_elsewhere: float
    """The same for the run's own stimulus, which is another."""
    strong: float
    """Heads above it are published as clear cases."""


MATRICES = {
    "induction_random_repeat_len100": Metric(EXPLORATORY, 99, "induction/repeat", 0.01, 0.07, 0.8),
    "induction_random_repeat_len50": Metric(MAIN, 49, "induction/repeat", 0.07, 0.07, 0.8),
    "duplicate_token_random_repeat": Metric(
        EXPLORATORY, 100, "induction/duplicate", 0.01, 0.03, 0.5
    ),
    "prev_token_random_repeat": Metric(
        EXPLORATORY, 1, "positional/offset-1-random", 0.01, 0.03, 0.9
    ),
}


def diagonal_scores(
    model: Model, tokens: Int[ndarray, "window position"], offsets: Sequence[int]
) -> dict[int, Float[ndarray, "layer head"]]:
    """Means of diagonals of every head's patterns, by how far below the main one they lie.

    As in TransformerLens' notebooks, and unlike headscope's masses, they average over all places
    of the diagonal, for the previous token those in the first copy too.
    """
    import torch

    from headscope.models.engines.engine import stream_patterns

    scores = {offset: np.zeros((model.layers, model.heads)) for offset in offsets}

    def take(layer: int, pattern: torch.Tensor) -> None:
        for offset in offsets:
            diagonal = pattern.float().diagonal(-offset, -2, -1)
            scores[offset][layer] = diagonal.mean((0, -1)).cpu().numpy()

    stream_patterns(model.engine, torch.from_numpy(tokens).to(model.device), take)
    return scores
