"""A model that is in memory already, as an engine reads it."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.errors import ModelError, first_line
from headscope.models.families import check_family
from headscope.models.layout.dimensions import attention_kind, read_dimensions
from headscope.models.load import Model, load_model, model_around
from headscope.models.load_options import DTYPES, LoadOptions
from headscope.models.locate import title_of
from headscope.models.quantised import check_plain_weights
from headscope.models.tokenizer import Tokenizer
from headscope.models.weights import quiet_logging

STATE = "state_dict"
"""Name of the checksum of a model in memory; a file's checksum has the file's name."""
FROM_MEMORY = "read from memory: to repeat the run, save the model and name its folder"
_PAIR = "give (model, tokenizer), as transformers' from_pretrained returns them"


def open_model(source: Any, **options: Any) -> Model:
    """A model as an engine reads it, whatever stands for it.

    Of a pair the modules are copied and the tensors shared: the engine's attention and activations
    and the mode of evaluation are the copy's alone. Only while a shuffled twin is read do the
    weights themselves change; they are put back in their places afterwards. A bridge is read as it
    is, and stays in evaluation mode.

    Args:
        source: a name or path as for `load_model`, a pair of a causal model and a fast tokenizer of
            transformers, a loaded model, or a TransformerBridge of TransformerLens.
        options: fields of `LoadOptions`. What is in memory stays on its device, in its precision.

    Raises:
        ModelError: it cannot be loaded or read, or is asked to be another than it is.
    """
    if isinstance(source, str | Path):
        return load_model(str(source), **options)
    load_options = LoadOptions(**options)
    if isinstance(source, Model):
        if load_options.engine not in ("auto", source.engine.name) and source.origin is not None:
            return open_model(source.origin, **options)
        return _loaded(source, load_options)
    if isinstance(source, tuple):
        return _from_pair(source, load_options)
    if isinstance(source, PreTrainedModel):
        raise ModelError(f"a {type(source).__name__} came without its tokenizer; {_PAIR}")
    return _from_bridge(source, load_options)


def state_sha256(network: nn.Module) -> dict[str, str]:
    """The checksum of all tensors of a network: their names, kinds, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
            flat = tensor.detach().cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().data)
    return {STATE: digest.hexdigest()}


def _loaded(model: Model, options: LoadOptions) -> Model:
    if options.engine not in ("auto", model.engine.name):
        raise ModelError(
            f"{model.name} is loaded for the {model.engine.name} engine, and {options.engine} is "
            "asked; give its name instead"
        )
    _check_as_it_is(model.name, model.dtype, options)
    if options.chat and model.tokenizer.template is None:
        return replace(model, tokenizer=model.tokenizer.in_chat())
    return model


def _from_pair(pair: tuple[Any, ...], options: LoadOptions) -> Model:
    network, tokenizer = _checked(pair)
    name = _name(network)
    dtype = str(network.dtype).removeprefix("torch.")
    _check_causal(name, network)
    if dtype not in DTYPES:
        raise ModelError(f"{name}: its weights are {dtype}; headscope reads {', '.join(DTYPES)}")
    _check_as_it_is(name, dtype, options)
    try:
        copied = _sharing(network).eval()
        copied.set_attn_implementation("eager")
    except Exception as error:  # a model's own code may fail in any way
        reason = first_line(error)
        raise ModelError(f"{name}: its modules cannot be copied: {reason:.200}") from error
    with quiet_logging():
        return model_around(
            name,
            copied,
            tokenizer,
            options,
            notes=(FROM_MEMORY,),
            device=str(network.get_input_embeddings().weight.device),
            dtype=dtype,
            revision="",
            weights_sha256=state_sha256(network),
            origin=pair,
        )


def _checked(pair: tuple[Any, ...]) -> tuple[Any, Any]:
    match pair:
        case (PreTrainedModel() as network, PreTrainedTokenizerBase() as tokenizer):
            return network, tokenizer
    kinds = ", ".join(type(item).__name__ for item in pair)
    raise ModelError(f"({kinds}) is no model and its tokenizer; {_PAIR}")


def _check_causal(name: str, network: Any) -> None:
    """Refuse what has no weights here or predicts no next token."""
    kind = type(network).__name__
    if any(tensor.is_meta for tensor in chain(network.parameters(), network.buffers())):
        raise ModelError(
            f"{name}: some of its weights are on the meta device, which holds none; load it whole"
        )
    check_plain_weights(name, network)
    check_family(name, network.config.to_dict())
    if network.get_output_embeddings() is None and attention_kind(network.config) == CAUSAL:
        raise ModelError(
            f"{name}: a {kind} predicts no next token; load it with AutoModelForCausalLM"
        )


def _check_as_it_is(name: str, dtype: str, options: LoadOptions) -> None:
    """Refuse what is asked of the loading of a model that is loaded."""
    fixed = [
        "device",
        "revision",
        "device_map",
        *(["dtype"] if options.dtype != dtype else []),
    ]
    if odd := [name_of for name_of in fixed if name_of in options.changed()]:
        raise ModelError(
            f"{name} is in memory already, and {odd[0]} {getattr(options, odd[0])!r} is asked of "
            "it; give its name instead, or bring it there before"
        )


def _from_bridge(bridge: Any, options: LoadOptions) -> Model:
    # TransformerLens takes a second to import
    from transformer_lens.model_bridge import TransformerBridge

    from headscope.models.engines.lens import LensEngine
    from headscope.models.engines.probe import check_patterns, probe_tokens

    kind = type(bridge).__name__
    if not isinstance(bridge, TransformerBridge):
        raise ModelError(
            f"a {kind} is no model that headscope reads; {_PAIR}, or a TransformerBridge"
        )
    network: Any = bridge.original_model
    name = _name(network)
    if options.engine == "fused":
        raise ModelError(f"{name}: a {kind} is read by the lens engine; for the fused one {_PAIR}")
    _check_causal(name, network)
    if attention_kind(network.config) == BIDIRECTIONAL:
        raise ModelError(f"{name}: encoders are read by the fused engine; {_PAIR}")
    weight = network.get_input_embeddings().weight
    dtype = str(weight.dtype).removeprefix("torch.")
    _check_as_it_is(name, dtype, options)
    dimensions, rows = read_dimensions(name, network.config), int(weight.shape[0])
    model = Model(
        name=name,
        engine=LensEngine(bridge.eval(), dimensions),
        tokenizer=Tokenizer(
            bridge.tokenizer,
            name=name,
            bos=options.bos,
            rows=rows,
            short_rope=dimensions.short_rope,
            chat=options.chat,
        ),
        architecture=(network.config.architectures or [type(network).__name__])[0],
        layers=dimensions.layers,
        heads=dimensions.heads,
        key_value_heads=dimensions.key_value_heads,
        context=dimensions.longest_input(name, options.longest),
        vocabulary_size=rows,
        device=str(weight.device),
        dtype=dtype,
        revision="",
        weights_sha256=state_sha256(network),
        notes=(FROM_MEMORY,),
        origin=bridge,
    )
    tokens = probe_tokens(dimensions, rows).to(weight.device)
    check_patterns(model.engine, name, dimensions, tokens)
    return model


def _name(network: Any) -> str:
    """The name of a model in memory: of what it was loaded from, or of its class."""
    path = str(getattr(network.config, "name_or_path", "") or "")
    return title_of(path) if path else type(network).__name__


def _sharing(network: Any) -> Any:
    """A network of modules and a configuration of its own, with the same tensors.

    Buffers that no checkpoint holds are copied: LongRoPE writes its frequencies into one.
    """
    tensors = [*network.parameters(), *network.state_dict(keep_vars=True).values()]
    copied = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    # accelerate's mixed precision wraps the method, and the copy's would run the original
    vars(copied).pop("forward", None)
    return copied
