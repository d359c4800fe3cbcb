"""The gated feed-forward block: one hidden layer decides how much of another goes through."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import silu

from headscope.studies.anatomy.reference.shapes import check_width


class SwiGLU(nn.Module):
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
        super().__init__()
        self.d_model = d_model
        self.W_gate = nn.Linear(d_model, d_hidden, bias=bias)
        self.W_in = nn.Linear(d_model, d_hidden, bias=bias)
        self.W_out = nn.Linear(d_hidden, d_model, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What the block adds to the residual stream x.

        Raises:
            ShapeError: x is of another width than d_model.
        """
        check_width("x", x, self.d_model)
        output: Tensor = self.W_out(silu(self.W_gate(x)) * self.W_in(x))
        return output
