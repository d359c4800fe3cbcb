"""Evidence on heads from the weights alone: OV copying, effective ranks and K-composition.

Layer norms are folded into the weights on copies, as TransformerLens does (`fold_ln`,
`center_writing_weights` and `center_unembed`). Biases, the division by the length of the input and
norms of queries and keys belong to no matrix and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.model_bridge.exceptions import StopAtLayerException

from headscope.errors import ModelError
from headscope.heads import head_name
from headscope.models.model import Model
from headscope.options import Device, Flag, Revision, Source
from headscope.progress import Progress, progress_bar
from headscope.resolve import ModelOrRun, model_of, run_named, the_model
from headscope.runs.recorded_paths import name_of
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

LAYER_NORMS, RMS_NORMS = ("LN", "LNPre"), ("RMS", "RMSPre")
DRAWS = 64
CHUNK = 4096


STUDY = Study(
    command=Command(
        group="study",
        summary="Analyse the OV and QK circuits of heads, without text.",
        examples=("headscope study weights runs/mini --out weights.csv --figure copying.pdf",),
    ),
    rows="head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        ov_copying | [−1, 1] | Re Σλ / Σ∣λ∣ of W_E W_V W_O W_U: 1 raises the tokens it attends to
        ov_copying_mlp0 | [−1, 1] | the same of tokens after the first MLP; empty in layer 0
        qk_rank | directions, ≥ 1 | effective rank of W_Q W_Kᵀ: exp of the entropy of its singular
            values' shares (Roy and Vetterli 2007); empty for a circuit that is 0
        ov_rank | directions, ≥ 1 | the same of W_V W_O
        k_from | a head | the earlier head whose output its keys read most
        k_composition | [0, 1] | how much
        primary | a head type | as in `heads.csv`
        relation | a relation's name | as in `heads.csv`
        mass | [0, 1] | as in `heads.csv`
        k_from_relation | a relation's name | the relation of the head in `k_from`
    """),
    figure=HeatMap(value="ov_copying"),
    encoders=False,
    bad_call={"device": ""},
)


@study(STUDY)
def weights(
    model: ModelOrRun,
    *,
    revision: Revision = None,
    progress: Progress = True,
    source: Source = None,
    device: Annotated[Device, Flag("")] = "cpu",
) -> StudyResult:
    """Compute OV copying, effective ranks and K-composition of every head from its weights.

    Raises:
        ModelError: the model cannot be loaded, or its norms cannot be folded.
        RunError: the run has no model, or its weights have changed since.
    """
    # TransformerLens folds norms into the matrices
    run = run_named(model, revision=revision, source=source)
    with progress_bar(progress, "reading weights", unit="steps") as bar:
        if run is not None:
            loaded = model_of(run, source=source, engine="lens", device=device)
        else:
            device = device if isinstance(model, str) else "auto"  # a model in memory stays there
            loaded = the_model(model, revision=revision, device=device, engine="lens")
        factors = head_factors(loaded)
        # heads compose to some degree whatever they do: random ones of their shapes are the bar
        random = random_composition(factors)
        table = _table(loaded, factors)
        bar(1, 1)
    # of a run the tags of each head, and of the head that its keys come from
    if run is not None:
        patterns = run.heads[["layer", "head", "primary", "relation", "mass"]]
        names = map(head_name, patterns["layer"], patterns["head"])
        relation_of = dict(zip(names, patterns["relation"], strict=True))
        table = table.merge(patterns, how="left")
        table["k_from_relation"] = table["k_from"].map(relation_of).fillna("")
    title = (
        f"{name_of(loaded.name)}: evidence on {len(table)} heads from the weights; 99.9th "
        f"percentile of the K-composition of random matrices: {random:.3f}"
    )
    return StudyResult(
        title=title,
        table=table,
        values={"k_random_p999": random},
        draw=STUDY.draw,
    )


def _table(model: Model, factors: HeadFactors) -> pd.DataFrame:
    # copying by the embedding, and after the first MLP
    after = copying_scores(factors, token_map(model, after_mlp=True))
    after[0] = torch.nan  # block 0 reads the embedding, before its MLP
    query_key, value_output = effective_ranks(factors)
    columns = {
        "ov_copying": copying_scores(factors, token_map(model)),
        "ov_copying_mlp0": after,
        "qk_rank": query_key,
        "ov_rank": value_output,
    }
    layer, head = np.indices(after.shape).reshape(2, -1)
    table = pd.DataFrame({"layer": layer, "head": head})
    for name, values in columns.items():
        table[name] = values.double().numpy().ravel()
    # earlier heads first, so that the first of equal ones is taken
    scores = k_composition(factors).double().numpy()
    scores = scores.reshape(len(table), len(table)).T
    best = np.nan_to_num(scores, nan=-1).argmax(1)
    best_score = scores[np.arange(len(table)), best]
    # the first layer has no earlier heads
    has_source = np.isfinite(scores).any(1)
    positions = zip(layer.tolist(), head.tolist(), strict=True)
    names = np.array([head_name(*position) for position in positions])
    return table.assign(
        k_from=np.where(has_source, names[best], ""),
        k_composition=np.where(has_source, best_score, np.nan),
    )


@dataclass(frozen=True)
class HeadFactors:
    """The folded matrices of all query heads, in float32 on the CPU.

    A row vector x of the residual stream gives the query `x @ query`, the key `x @ key` and the
    output `x @ value @ output`. Query heads of a group have the group's keys and values.
    """

    query: Float[Tensor, "layer head d_model d_head"]
    key: Float[Tensor, "layer head d_model d_head"]
    value: Float[Tensor, "layer head d_model d_value"]
    output: Float[Tensor, "layer head d_value d_model"]
    free: int
    """Dimensions of the residual stream: d_model, or d_model − 1 if the mean is taken out."""

    def writes(self) -> Float[Tensor, "layer head d_value d_model"]:
        """R W_O with W_V = QR, which has the same Frobenius norms and products as W_V W_O."""
        small: Tensor = torch.linalg.qr(self.value, mode="r").R
        return small @ self.output

    def key_reads(self) -> Float[Tensor, "layer head d_model d_head"]:
        """W_K Rᵀ with W_Q = QR, which has the same norms and products as W_K W_Qᵀ."""
        small: Tensor = torch.linalg.qr(self.query, mode="r").R
        return self.key @ small.transpose(-1, -2)


def head_factors(model: Model) -> HeadFactors:
    """The folded matrices of a model.

    Raises:
        ModelError: its norms cannot be folded into its matrices, or a layer has no Q, K, V and O.
    """
    if not _folds(model):
        raise ModelError(
            f"{model.name}: the norms of a {model.architecture} do not fold into its heads' "
            "matrices: that takes a LayerNorm or RMSNorm before attention, none behind it, and an "
            "architecture for which TransformerLens folds; headscope classify needs no folding"
        )
    of_layers: dict[str, list[Tensor]] = {name: [] for name in ("W_Q", "W_K", "W_V", "W_O")}
    for layer in range(model.layers):
        block = model.bridge.blocks[layer]
        norm_gain = gain(model, block.ln1)
        for name, matrices in of_layers.items():
            matrix = getattr(block.attn, name, None)
            if not isinstance(matrix, Tensor) or matrix.ndim != 3:
                raise ModelError(
                    f"{model.name}: layer {layer} shows no Q, K, V and O matrix of each head"
                )
            folded = on_cpu(matrix)
            if name == "W_O":
                # a norm that centres removes what all coordinates have in common
                if writes_centred(model):
                    folded = centre(folded, -1)
            else:
                # the norm before attention becomes a part of what reads its output
                folded = norm_gain * folded
                if reads_centred(model):
                    folded = centre(folded, -2)
                # query head h reads the key/value head h // (heads per group)
                folded = folded.repeat_interleave(model.heads // len(folded), 0)
            matrices.append(folded)
    query, key, value, output = (torch.stack(matrices) for matrices in of_layers.values())
    # a centred stream has one direction less
    removed = 1 if writes_centred(model) else 0
    return HeadFactors(query, key, value, output, free=query.shape[-2] - removed)


def _folds(model: Model) -> bool:
    """True if the model's norms can be folded into its matrices."""
    kind = getattr(model.bridge.cfg, "normalization_type", None)
    if kind not in LAYER_NORMS + RMS_NORMS:
        return False
    for block in model.bridge.blocks:
        modules = block._modules
        if "ln1" not in modules or "ln1_post" in modules:
            return False
    ends_with_norm = "ln_final" in model.bridge._modules
    return ends_with_norm and getattr(model.bridge.adapter, "supports_fold_ln", True)


def reads_centred(model: Model) -> bool:
    return model.bridge.cfg.normalization_type in LAYER_NORMS


def writes_centred(model: Model) -> bool:
    # TransformerLens calls the last norm of models with RMSNorm throughout `final_rms` too
    return reads_centred(model) and not getattr(model.bridge.cfg, "final_rms", False)


def gain(model: Model, norm: Any) -> Float[Tensor, "d_model 1"]:
    weight = getattr(norm, "weight", None)
    if weight is None:
        return torch.ones(1, 1)
    offset = 1.0 if getattr(model.bridge.cfg, "rmsnorm_uses_offset", False) else 0.0
    return on_cpu(weight)[:, None] + offset


def on_cpu(weight: Tensor) -> Tensor:
    """A weight as float32 on the CPU, without gradients."""
    return weight.detach().to("cpu", torch.float32)


def centre(weight: Tensor, dim: int) -> Tensor:
    """A weight less its mean along one dimension."""
    return weight - weight.mean(dim, keepdim=True)


def copying_scores(
    factors: HeadFactors, tokens: Float[Tensor, "out in"]
) -> Float[Tensor, "layer head"]:
    """Re(Σλ) / Σ|λ| over the eigenvalues of each head's full OV circuit, in [−1, 1].

    1 for a head that raises the tokens it attends to, −1 for one that lowers them (Elhage et al.
    2021, "Detecting Copying Behavior"); NaN for a head without output. W_O W_U W_E W_V has the same
    nonzero eigenvalues as the circuit, whose size is vocabulary × vocabulary.

    Args:
        factors: the folded matrices.
        tokens: W_U W_E, from `token_map`.
    """
    circuit = factors.output.double() @ tokens.double() @ factors.value.double()
    values: Tensor = torch.linalg.eigvals(circuit)
    return values.sum(-1).real / values.abs().sum(-1)


def token_map(model: Model, *, after_mlp: bool = False) -> Float[Tensor, "out in"]:
    """W_U W_E, summed over the vocabulary, with W_U folded and centred.

    Args:
        model: a loaded model.
        after_mlp: use the residual stream after block 0; see `effective_embedding`.
    """
    unembedding = on_cpu(model.bridge.W_U) * gain(model, model.bridge.ln_final)
    if writes_centred(model):
        unembedding = centre(unembedding, 0)
    unembedding = centre(unembedding, 1)
    embedding = effective_embedding(model) if after_mlp else on_cpu(model.bridge.W_E)
    total = torch.zeros(unembedding.shape[0], embedding.shape[1], dtype=torch.float64)
    for start in range(0, len(embedding), CHUNK):
        some = slice(start, start + CHUNK)
        total += unembedding[:, some].double() @ embedding[some].double()
    return total


@torch.inference_mode()
def effective_embedding(model: Model) -> Float[Tensor, "token d_model"]:
    """The normalised residual stream after block 0, with its attention and positions set to 0.

    Wang et al. 2022 (section 3.1) measure copying after the first MLP, because in GPT-2 that MLP
    recodes the embedding.
    """
    bridge = model.bridge
    token_ids = torch.arange(model.vocabulary_size)
    blocks: list[Tensor] = []

    def erase(activation: Tensor, hook: Any) -> Tensor:
        return torch.zeros_like(activation)

    def take(residual: Tensor, hook: Any) -> None:
        blocks.append(on_cpu(residual[:, 0]))
        raise StopAtLayerException(residual)

    # block 0 without attention and positions leaves what its MLP does to a token
    hooks = [("blocks.0.attn.hook_out", erase), ("blocks.0.hook_out", take)]
    if "pos_embed" in bridge._modules:
        hooks.insert(0, ("pos_embed.hook_out", erase))
    # the vocabulary in chunks, a token as a text each
    for start in range(0, len(token_ids), CHUNK):
        some = token_ids[start : start + CHUNK]
        bridge.run_with_hooks(
            some[:, None].to(model.device), fwd_hooks=hooks, return_type=None, use_cache=False
        )
    rows = torch.cat(blocks)
    if reads_centred(model):
        rows = centre(rows, -1)
    # padding of the vocabulary has rows of zeros
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def k_composition(factors: HeadFactors) -> Float[Tensor, "earlier source layer head"]:
    """‖W_OV¹ W_QK²ᵀ‖ / (‖W_OV¹‖ ‖W_QK²‖) for each head 2 and earlier head 1, in [0, 1]; else NaN.

    W_OV = W_V W_O, W_QK = W_Q W_Kᵀ, Frobenius norms (Elhage et al. 2021, "Three Kinds of
    Composition"; TransformerLens' `all_composition_scores("K")`). Two unrelated heads score about
    1/√d_model. Rotary embeddings are as at distance 0.
    """
    writes, reads = factors.writes(), factors.key_reads()
    layers, heads = writes.shape[:2]
    scores = torch.full((layers, heads, layers, heads), torch.nan)
    for later in range(layers):
        for earlier in range(later):
            scores[earlier, :, later] = compositions(writes[earlier], reads[later])
    return scores


def compositions(
    writes: Float[Tensor, "source d_value d_model"], reads: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "source head"]:
    """‖write read‖ / (‖write‖ ‖read‖) for every pair; NaN if one of them is 0."""
    source, d_value, _ = writes.shape
    head, _, d_head = reads.shape
    all_writes = writes.flatten(0, 1)
    all_reads = reads.transpose(0, 1).flatten(1)
    products = (all_writes @ all_reads).reshape(source, d_value, head, d_head)
    norms = products.square().sum((1, 3)).sqrt()
    write_norms = torch.linalg.matrix_norm(writes)
    read_norms = torch.linalg.matrix_norm(reads)
    return norms / torch.outer(write_norms, read_norms)


def random_composition(factors: HeadFactors) -> float:
    """The 99.9th percentile of K-composition for heads of the same shapes with random matrices.

    A low bar: a third of the pairs of `mini` exceed it, since all trained heads prefer some
    directions.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(columns: int) -> Tensor:
        return torch.randn(1, DRAWS, factors.free, columns, generator=generator)

    d_head = factors.query.shape[-1]
    d_value = factors.value.shape[-1]
    # drawn in this order, so that the number stays the same
    value = draw(d_value)
    output = draw(d_value).transpose(-1, -2)
    query = draw(d_head)
    key = draw(d_head)
    random = HeadFactors(query=query, key=key, value=value, output=output, free=factors.free)
    # composition of random heads with random heads
    writes = random.writes()[0]
    reads = random.key_reads()[0]
    scores = compositions(writes, reads).double()
    return float(scores.quantile(0.999))


def effective_ranks(factors: HeadFactors) -> tuple[Tensor, Tensor]:
    """Effective ranks of the QK and OV circuits, `[layer head]` each, in [1, d_head].

    exp(−Σ p log p) of the singular values' shares p of their sum (Roy and Vetterli 2007, definition
    1), without rotary positions. NaN for a circuit that is 0.
    """
    return (
        _effective_rank(factors.query, factors.key),
        _effective_rank(factors.value, factors.output.transpose(-1, -2)),
    )


def _effective_rank(
    read: Float[Tensor, "layer head d_model d_head"],
    write: Float[Tensor, "layer head d_model d_head"],
) -> Float[Tensor, "layer head"]:
    # the triangles of the QR decompositions have the singular values of read @ writeᵀ
    read_triangle = torch.linalg.qr(read.double(), mode="r").R
    write_triangle = torch.linalg.qr(write.double(), mode="r").R
    values = torch.linalg.svdvals(read_triangle @ write_triangle.transpose(-1, -2))
    shares = values / values.sum(-1, keepdim=True)
    entropy = torch.special.entr(shares).sum(-1)
    rank: Tensor = entropy.exp()
    return rank
