"""A model with masked heads as a folder in Hugging Face layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxtyping import Int
from numpy import ndarray

from headscope.models.layout.projections import output_matrix, outputs_by_layer
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.weights import quiet_logging
from headscope.runs.write import check_absent, check_writable, writing


def check_new_folder(folder: Path) -> Path:
    """Refuse a folder that exists or cannot be made.

    Raises:
        WriteError: it is there already, or its parent takes no files.
    """
    check_absent(folder, "name a new folder for the pruned model")
    check_writable(folder)
    return folder


def save_pruned(model: Model, heads: Int[ndarray, " ranked_head"], folder: Path) -> None:
    """Write a model and its tokenizer, with the rows of W_O of some heads set to 0.

    Args:
        model: of the fused engine; its weights are afterwards what they were.
        heads: masked heads, numbered through all layers with attention.
        folder: a new one; it is written whole or not at all.

    Raises:
        WriteError: the folder cannot be written.
    """
    network = plain_network_of(model)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".headscope-", dir=folder.parent) as temporary:
            unfinished = Path(temporary) / folder.name  # a temporary folder has other rights
            with masked_outputs(model, heads), quiet_logging():
                network.save_pretrained(unfinished)
                model.tokenizer.save(unfinished)
            unfinished.rename(folder)


@contextmanager
def masked_outputs(model: Model, heads: Int[ndarray, " ranked_head"]) -> Iterator[None]:
    """Rows of W_O of these heads are 0 within this context; afterwards they are copied back."""
    outputs = outputs_by_layer(plain_network_of(model))
    matrices = {layer: output_matrix(outputs[layer]) for layer in model.attention_layers}
    originals = {layer: matrix.clone() for layer, matrix in matrices.items()}
    try:
        for row, head in (divmod(int(number), model.heads) for number in heads):
            matrix = matrices[model.attention_layers[row]]
            width = len(matrix) // model.heads
            matrix[head * width : (head + 1) * width] = 0
        yield
    finally:
        for layer, matrix in matrices.items():
            matrix.copy_(originals[layer])
