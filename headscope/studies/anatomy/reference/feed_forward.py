"""The feed-forward block: every position by itself, through a wider hidden layer; and its gated
successor, in which one hidden layer decides how much of another goes through.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from headscope.errors import ChoiceError
from headscope.studies.anatomy.reference.attention import check_width

_by_tanh = partial(functional.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _by_tanh,
    "gelu_fast": _by_tanh,
    "gelu_pytorch_tanh": _by_tanh,
    "relu": functional.relu,
}
"""Activations by the names in Hugging Face's configurations.

"gelu" is x Φ(x), as in GPT-NeoX; the others of its name approximate it by a tanh, as in GPT-2,
and differ from it by less than 0.001. Source: Hendrycks & Gimpel 2016, “Gaussian Error Linear
Units”, section 2; "relu": Vaswani et al. 2017.
"""


class _Block(nn.Module, ABC):
    """A block from the residual stream through a hidden layer and back, position by position."""

    def __init__(self, d_model: int, d_hidden: int, *, bias: bool) -> None:
        super().__init__()
        self.d_model = d_model
        self.W_in = nn.Linear(d_model, d_hidden, bias=bias)
        self.W_out = nn.Linear(d_hidden, d_model, bias=bias)

    @abstractmethod
    def hidden(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_hidden"]:
        """The hidden layer."""

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The block's addition to the residual stream x.

        Raises:
            ShapeError: x is of another width than d_model.
        """
        check_width("x", x, self.d_model)
        output: Tensor = self.W_out(self.hidden(x))
        return output


class FeedForward(_Block):
    """Two linear maps with an activation between them.

        output = activation(x W_in + b_in) W_out + b_out

    Args:
        d_model: width of the residual stream.
        d_hidden: width of the hidden layer, most often 4 · d_model.
        activation: one of `ACTIVATIONS`.
        bias: whether both maps have a bias.

    Raises:
        ChoiceError: there is no such activation.

    Source: Vaswani et al. 2017, “Attention Is All You Need”, section 3.3, equation 2.
    """

    def __init__(
        self, d_model: int, d_hidden: int, *, activation: str = "gelu", bias: bool = True
    ) -> None:
        super().__init__(d_model, d_hidden, bias=bias)
        if activation not in ACTIVATIONS:
            raise ChoiceError("activation", activation, ACTIVATIONS)
        self.activation = activation

    def hidden(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_hidden"]:
        """activation(x W_in + b_in)."""
        return ACTIVATIONS[self.activation](self.W_in(x))


class SwiGLU(_Block):
    """A feed-forward block whose hidden layer is multiplied by a gate.

        output = (silu(x W_gate) ⊙ x W_in) W_out,     silu(a) = a · sigmoid(a)

    A third matrix: with d_hidden = 8/3 · d_model it has as many weights as a feed-forward block
    with 4 · d_model.

    Args:
        d_model: width of the residual stream.
        d_hidden: width of the hidden layer.
        bias: whether the three maps have a bias; in the paper and in Llama they have none.

    Source: Shazeer 2020, “GLU Variants Improve Transformer”, equation 6.

    >>> sum(weight.numel() for weight in SwiGLU(6, 16).parameters()) == 2 * 6 * 4 * 6
    True
    """

    def __init__(self, d_model: int, d_hidden: int, *, bias: bool = False) -> None:
        super().__init__(d_model, d_hidden, bias=bias)
        self.W_gate = nn.Linear(d_model, d_hidden, bias=bias)

    def hidden(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_hidden"]:
        """silu(x W_gate) ⊙ x W_in."""
        gated: Tensor = functional.silu(self.W_gate(x)) * self.W_in(x)
        return gated
