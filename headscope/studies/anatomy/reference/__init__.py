"""Attention from its parts, one idea per file, to be read and to be checked against.

In this order it reads as a lesson:

    masks                which keys a query may look at
    scaled_dot_product   softmax(q kᵀ / √d) v, written out
    fast_path            the same numbers from torch's fused kernel
    split                one projection, many heads; key/value heads that several heads share
    multi_head           many heads side by side, for self-attention and cross-attention
    heads_output         what each head alone adds to the residual stream
    rotary               positions as rotations of queries and keys
    relative_positions   positions as learned vectors, one per distance
    feed_forward         the block between two attention layers
    swiglu               its gated successor
    hugging_face         all of it with the weights of a pretrained layer

Nothing here knows of the rest of headscope, but for its errors; `shapes` holds the checks.
There is no dropout and no cache: these modules compute what a model computes when it reads.
"""

from headscope.studies.anatomy.reference.fast_path import attend_fast
from headscope.studies.anatomy.reference.feed_forward import FeedForward
from headscope.studies.anatomy.reference.heads_output import heads_output
from headscope.studies.anatomy.reference.hugging_face import attention_like, feed_forward_like
from headscope.studies.anatomy.reference.masks import causal_mask
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention
from headscope.studies.anatomy.reference.relative_positions import RelativePositions
from headscope.studies.anatomy.reference.rotary import Rotary
from headscope.studies.anatomy.reference.scaled_dot_product import Attended, attend
from headscope.studies.anatomy.reference.swiglu import SwiGLU

__all__ = [
    "Attended",
    "FeedForward",
    "MultiHeadAttention",
    "RelativePositions",
    "Rotary",
    "SwiGLU",
    "attend",
    "attend_fast",
    "attention_like",
    "causal_mask",
    "feed_forward_like",
    "heads_output",
]
