"""Attention from its parts, one idea per file, to be read and to be checked against.

In this order it reads as a lesson:

    attention      softmax(q kᵀ / √d) v, written out, which keys a query may look at, and the same
                   numbers from torch's fused kernel
    multi_head     many heads side by side, for self-attention and cross-attention; key/value heads
                   that several heads share; what each head alone adds to the residual stream
    positions      rotations of queries and keys, or learned vectors, one per distance
    feed_forward   the block between two attention layers, and its gated successor
    hugging_face   all of it with the weights of a pretrained layer

Nothing here knows of the rest of headscope, but for its errors.
There is no dropout and no cache: these modules compute what a model computes when it reads.
"""

from headscope.studies.anatomy.reference.attention import Attended, attend, attend_fast, causal_mask
from headscope.studies.anatomy.reference.feed_forward import FeedForward, SwiGLU
from headscope.studies.anatomy.reference.hugging_face import attention_like, feed_forward_like
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention, heads_output
from headscope.studies.anatomy.reference.positions import RelativePositions, Rotary

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
