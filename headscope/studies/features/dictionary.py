"""A dictionary of features: a sparse autoencoder or transcoder of somebody else, from its files.

SAELens' folders hold `cfg.json` and `sae_weights.safetensors`; what their encoders do is as its
classes StandardSAE, TopKSAE, JumpReLUSAE, GatedSAE and Transcoder do it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headscope.errors import HeadscopeError
from headscope.paths import exists
from headscope.runs.user_file import given_file

CONFIG, WEIGHTS, NAMES = "cfg.json", "sae_weights.safetensors", "names.json"
WOULD_DO = (
    f"a folder of SAELens ({CONFIG} and {WEIGHTS}), or a .safetensors file with W_dec [feature "
    "d_model]"
)
KINDS: Mapping[str, tuple[str, ...]] = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
    "transcoder": ("b_enc",),
    "jumprelu_transcoder": ("b_enc", "threshold"),
}
"""Architectures that are known, and the tensors of each beside W_enc and W_dec."""
NORMS = ("none", "expected_average_only_in", "layer_norm", "constant_norm_rescale")
"""Of the input. The second is folded into the weights of dictionaries that are shared."""
_HOOK = re.compile(r"blocks\.(\d+)\.hook_resid_(pre|post)")
_EPSILON = 1e-5
"""SAELens' own, of the standard deviation."""


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Features of a residual stream: stream = activations @ decoder + constant + remainder."""

    path: Path
    tensors: Mapping[str, Tensor]
    kind: str
    names: tuple[str, ...]
    """Of the features; empty where they have none."""
    layer: int | None
    """The layer whose input it reads; None: the input of the head's own layer."""
    options: Mapping[str, Any]
    """Of `cfg.json`."""

    @property
    def decoder(self) -> Float[Tensor, "feature d_model"]:
        """Each feature's direction."""
        return self.tensors["W_dec"]

    @property
    def is_sparse(self) -> bool:
        """Whether an encoder says at which positions a feature is active at all."""
        return "W_enc" in self.tensors

    def read(
        self, stream: Float[Tensor, "position d_model"]
    ) -> tuple[Float[Tensor, "position feature"], Float[Tensor, "position d_model"]]:
        """Activations at each position, and the constant that belongs to the reconstruction."""
        inputs, size = self._normed(stream)
        bias = self.tensors.get("b_dec", torch.zeros(self.decoder.shape[1]))
        is_transcoder = "transcoder" in self.kind
        # left out of a configuration it is true, as in SAELens
        if self.options.get("apply_b_dec_to_input", bool(self.options)) and not is_transcoder:
            inputs = inputs - bias
        if is_transcoder:  # what it writes has a size of its own
            size = torch.ones_like(size)
        return self._activations(inputs) * size, bias * size

    def _normed(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder reads, and by what its reconstruction is multiplied."""
        stream = stream.float()
        if (self.options.get("model_from_pretrained_kwargs") or {}).get("center_writing_weights"):
            stream = stream - stream.mean(-1, keepdim=True)
        norm = self.options.get("normalize_activations", "none")
        if norm == "layer_norm":
            centred = stream - stream.mean(-1, keepdim=True)
            size = centred.std(-1, keepdim=True) + _EPSILON
            return centred / size, size
        if norm == "constant_norm_rescale":
            size = stream.norm(dim=-1, keepdim=True) / stream.shape[-1] ** 0.5
            return stream / size, size
        return stream, torch.ones_like(stream[:, :1])

    def _activations(self, inputs: Tensor) -> Tensor:
        tensors = self.tensors
        if not self.is_sparse:
            inverse: Tensor = torch.linalg.pinv(self.decoder)
            return inputs @ inverse
        before = inputs @ tensors["W_enc"]
        if self.kind == "gated":
            magnitude = before * tensors["r_mag"].exp() + tensors["b_mag"]
            return magnitude.relu() * torch.gt(before + tensors["b_gate"], 0.0)
        before = before + tensors.get("b_enc", 0.0)
        if "threshold" in tensors:
            return before.relu() * (before > tensors["threshold"])
        if self.kind != "topk":
            return before.relu()
        sizes = torch.ones(len(self.decoder))
        if self.options.get("rescale_acts_by_decoder_norm"):
            sizes = self.decoder.norm(dim=-1)
        largest = (before * sizes).topk(min(int(self.options["k"]), len(sizes)), dim=-1).indices
        return torch.zeros_like(before).scatter(-1, largest, before.relu().gather(-1, largest))

    def name_of(self, feature: int) -> str:
        """Its name, or else nothing; the biases stand behind the features."""
        if feature == len(self.decoder):
            return "biases"
        return self.names[feature] if self.names else ""


def load_dictionary(path: str | Path, *, d_model: int, layer: int) -> Dictionary:
    """The dictionary in a folder or a file, for a head of some layer.

    Args:
        path: `WOULD_DO`.
        d_model: width of the model's residual stream.
        layer: of the head.

    Raises:
        HeadscopeError: it cannot be read, is of a kind that is not known, is of another width, or
            reads something else than the residual stream before the head.
    """
    path = Path(path)
    if not exists(path):
        raise HeadscopeError(f"{str(path)!r:.200}: no such file or folder; give {WOULD_DO}")
    folder = path if path.is_dir() else path.parent
    weights = path / WEIGHTS if path.is_dir() else path
    in_layout = path.is_dir() or path.name == WEIGHTS
    options = _options(folder / CONFIG) if in_layout else {}
    tensors, stored_names = _tensors(weights)
    kind = str(options.get("architecture") or "standard")
    if "topk" in (options.get("activation_fn"), options.get("activation_fn_str")):
        kind = "topk"
        options["k"] = (options.get("activation_fn_kwargs") or {}).get("k")
    dictionary = Dictionary(
        path,
        tensors,
        kind,
        _names(folder / NAMES, stored_names) if in_layout else stored_names,
        _layer_of(path, options, layer),
        options,
    )
    _check(dictionary, d_model)
    return dictionary


def _options(path: Path) -> dict[str, Any]:
    """The configuration; what newer SAELens keeps under `metadata` beside the rest."""
    try:
        options = json.loads(given_file(path, WOULD_DO))
    except ValueError as error:
        raise HeadscopeError(f"{path}: no JSON ({error}); give {WOULD_DO}") from error
    if not isinstance(options, dict):
        raise HeadscopeError(f"{path}: no JSON object; give {WOULD_DO}")
    metadata = options.get("metadata")
    return {**metadata, **options} if isinstance(metadata, dict) else options


def _tensors(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    if not path.is_file():
        raise HeadscopeError(f"{path}: no such file; give {WOULD_DO}")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
            names = (file.metadata() or {}).get("names")
    except (OSError, SafetensorError) as error:
        raise HeadscopeError(f"{path}: no safetensors file ({error}); give {WOULD_DO}") from error
    return tensors, _name_list(names, path) if names is not None else ()


def _names(path: Path, stored: tuple[str, ...]) -> tuple[str, ...]:
    return _name_list(given_file(path, "a list of names"), path) if path.is_file() else stored


def _name_list(text: str | bytes, path: Path) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError as error:
        raise HeadscopeError(f"{path}: its names are no JSON list ({error})") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise HeadscopeError(f"{path}: its names are no JSON list of texts")
    return tuple(names)


def _layer_of(path: Path, options: Mapping[str, Any], layer: int) -> int | None:
    """The layer whose input the dictionary reads."""
    hook = options.get("hook_name") or options.get("hook_point")
    if hook is None:
        return None
    match = _HOOK.fullmatch(str(hook))
    if match is None:
        raise HeadscopeError(
            f"{path}: it reads {hook}; a dictionary of the residual stream that the head reads is "
            f"of blocks.{layer}.hook_resid_pre, or of an earlier layer"
        )
    read_layer = int(match[1]) + (match[2] == "post")
    if read_layer > layer:
        raise HeadscopeError(
            f"{path}: it reads {hook}, which comes after the attention of layer {layer}; give one "
            f"of blocks.{layer}.hook_resid_pre, or of an earlier layer"
        )
    return read_layer


def _check(dictionary: Dictionary, d_model: int) -> None:
    path, tensors = dictionary.path, dictionary.tensors
    if dictionary.kind not in KINDS:
        raise HeadscopeError(
            f"{path}: a dictionary of the architecture {dictionary.kind!r:.40}; known are "
            f"{', '.join(KINDS)}"
        )
    norm = dictionary.options.get("normalize_activations", "none")
    if norm not in NORMS or dictionary.options.get("finetuning_scaling_factor"):
        raise HeadscopeError(
            f"{path}: its activations are normed as {norm!r:.40} or scaled anew, which headscope "
            f"does not know; known are {', '.join(NORMS)}"
        )
    if dictionary.kind == "topk" and not isinstance(dictionary.options.get("k"), int):
        raise HeadscopeError(f"{path}: {CONFIG} does not say the k of its top-k activations")
    decoder = tensors.get("W_dec")
    if decoder is None or decoder.ndim != 2 or decoder.shape[1] != d_model:
        shape = "no W_dec" if decoder is None else f"a W_dec of {[*decoder.shape]}"
        raise HeadscopeError(f"{path}: {shape}; the model's stream takes [feature {d_model}]")
    count = len(decoder)
    expected: dict[str, tuple[int, ...]] = {"W_enc": (d_model, count), "b_dec": (d_model,)}
    expected |= dict.fromkeys(KINDS[dictionary.kind], (count,))
    needed = KINDS[dictionary.kind] if "W_enc" in tensors and dictionary.options else ()
    for name, size in expected.items():
        if name not in tensors and name not in needed:
            continue
        if name not in tensors or tuple(tensors[name].shape) != size:
            stored = [*tensors[name].shape] if name in tensors else "nothing"
            raise HeadscopeError(f"{path}: {name} is {stored}; W_dec takes {[*size]}")
    if "W_enc" not in tensors and (
        count > d_model or int(torch.linalg.matrix_rank(decoder)) < count
    ):
        raise HeadscopeError(
            f"{path}: {count} directions without W_enc, which depend on each other; how active "
            f"each is takes W_enc, or at most {d_model} independent directions"
        )
    if dictionary.names and len(dictionary.names) != count:
        raise HeadscopeError(f"{path}: {len(dictionary.names)} names for {count} features")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise HeadscopeError(f"{path}: some of its numbers are not finite")
