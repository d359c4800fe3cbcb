"""Key/value heads that may stream, in the two files from which other programs read them.

DuoAttention (Xiao et al. 2024; mit-han-lab/duo-attention, `load_attn_pattern`) and kvpress'
`DuoAttentionPress` (NVIDIA/kvpress 8bb29b9) read a folder with `full_attention_heads.tsv`, a row
per layer with a number in [0, 1] of each key/value head, and `config.json` with `sink_size` and
`recent_size`. Both let the share of heads stream that they are asked for, the lowest numbers first.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.runs.folder import encoded
from headscope.runs.site import Site, new_site
from headscope.runs.write import write_file
from headscope.studies.streaming.streaming_result import Streaming

DUO_ATTENTION = Site("DuoAttention export", "headscope.json")


def full_attention_scores(streaming: Streaming) -> Float[ndarray, "layer key_value"]:
    """A number in [0, 1] of each key/value head, in the order of change: below 0.5 of those that
    may stream within the tolerance, from 0.5 on of the others.

    Rows are the layers of the model, from 0: one without softmax attention holds 1, which streams
    last.
    """
    heads = streaming.table
    count, streams = len(heads), int(heads["streams"].sum())
    rank = heads["place"].to_numpy() - 1
    below = rank / (2 * max(streams, 1))
    above = 0.5 + (rank - streams) / (2 * max(count - streams, 1))
    scores = np.ones((heads["layer"].max() + 1, heads["head"].max() + 1))
    scores[heads["layer"], heads["head"]] = np.where(rank < streams, below, above)
    return scores


def export_duo_attention(
    streaming: Streaming, folder: str | Path, *, overwrite: bool = False
) -> Path:
    """Write `full_attention_heads.tsv` and `config.json`.

    The `head_compression_ratio` in the latter, as kvpress calls it, or `sparsity`, as DuoAttention
    does, is the share at which just those heads stream that may within the tolerance.

    Args:
        streaming: what the study measured.
        folder: new, empty, or of an older export.
        overwrite: replace that.

    Raises:
        WriteError: the folder holds something else, or nothing can be written there.
    """
    scores = full_attention_scores(streaming)
    config = {
        "sink_size": streaming.window.sinks,
        "recent_size": streaming.window.recent,
        "head_compression_ratio": int(streaming.table["streams"].sum()) / scores.size,
        "model_name": streaming.model,
        "tolerance": streaming.tolerance,
        "rise": float(streaming.best["rise"]),
    }
    rows = ["\t".join(f"{score:.6f}" for score in row) for row in scores]
    with new_site(Path(folder), overwrite=overwrite, site=DUO_ATTENTION) as new:
        write_file(new / "full_attention_heads.tsv", encoded("\n".join(rows) + "\n"))
        write_file(new / "config.json", encoded(json.dumps(config, indent=1) + "\n"))
    return Path(folder)
