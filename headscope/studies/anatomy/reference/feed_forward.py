"""The feed-forward block: every position by itself, through a wider hidden layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from headscope.errors import ChoiceError
from headscope.studies.anatomy.reference.shapes import check_width

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


class FeedForward(nn.Module):
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
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ChoiceError("activation", activation, ACTIVATIONS)
        self.d_model, self.activation = d_model, activation
        self.W_in = nn.Linear(d_model, d_hidden, bias=bias)
        self.W_out = nn.Linear(d_hidden, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What the block adds to the residual stream x.

        Raises:
            ShapeError: x is of another width than d_model.
        """
        check_width("x", x, self.d_model)
        output: Tensor = self.W_out(ACTIVATIONS[self.activation](self.W_in(x)))
        return output
