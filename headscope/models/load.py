"""Loads a model by its name, or takes one in memory, and checks its attention patterns.

The way of a name: `locate` finds its folder, `checkpoint` and `families` check its files, `weights`
reads its network, `engines.choose` chooses what runs it. Nothing from the hub is executed
(`trust_remote_code` stays off) and no pickle is ever loaded.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from jaxtyping import Float
from torch import Tensor, nn

from headscope.attention_kind import CAUSAL
from headscope.errors import ModelError, first_line
from headscope.heads import layer_ranges, without_softmax
from headscope.models.engines.choose import bridge_engine, choose_engine
from headscope.models.engines.engine import Engine
from headscope.models.engines.fused import FusedEngine
from headscope.models.families import check_family
from headscope.models.head_slices import layers_with_mixed_heads
from headscope.models.layout.dimensions import AttentionDimensions, attention_kind, read_dimensions
from headscope.models.layout.projections import layers_without_softmax
from headscope.models.locate import locate, title_of
from headscope.models.merge import merge_wrapped, refuse_wrapped_bridge
from headscope.models.model import WIDE, Model
from headscope.models.tokenizer import Tokenizer, load_tokenizer, substitute_bos
from headscope.models.weight_files import find_checkpoint
from headscope.models.weights import (
    check_plain_weights,
    fuse_activations,
    keep_unpacked,
    load_weights,
    quiet_logging,
    unpacked_gguf,
)
from headscope.settings import AUTO, Settings

UNSTATED_CONTEXT = 2048
"""Context in tokens of a model that states none, as BLOOM was trained (Le Scao et al. 2022)."""
STATE = "state_dict"
"""Name of the checksum of a model in memory; a file's checksum has the file's name."""
FROM_MEMORY = "read from memory: to repeat the run, save the model and name its folder"
_PAIR = "pass (model, tokenizer), as transformers' from_pretrained returns them"


def _settings(options: dict[str, Any]) -> Settings:
    """The settings of loading.

    Raises:
        ModelError: a device map with a device or the lens engine.
    """
    settings = Settings(**options)
    if settings.device_map and (settings.device != AUTO or settings.engine == "lens"):
        raise ModelError(
            "--device-map chooses the devices and goes with the fused engine; leave --device "
            f"{settings.device} and --engine {settings.engine} out"
        )
    return settings


def load_model(name: str, **options: Any) -> Model:
    """Load a language model and check that its patterns are attention patterns.

    Args:
        name: `mini`, a packaged model such as `smollm2`, a folder in Hugging Face layout, a `.gguf`
            file, or a hub name such as `gpt2`.
        options: settings of loading; see `headscope.settings.Settings.loading`.

    Raises:
        ModelError: not found, not loadable, or its patterns do not sum to 1, look ahead, or
            have another number of heads than the configuration says; or it has attention that
            the fused engine does not know, and that one was asked for.
    """
    # settings first, as weights take long to read
    settings = _settings(options)
    is_spread = settings.device_map is not None
    device = settings.device
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    else:
        # torch alone knows which devices there are
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = first_line(error)
            raise ModelError(f"device {device!r} is not to be had here: {reason}") from error
    dtype = WIDE if settings.dtype == AUTO else settings.dtype
    path, commit = locate(name, settings.revision)
    checkpoint = find_checkpoint(name, path)
    sha256 = checkpoint.sha256()
    # a GGUF that was unpacked before is read in a second instead of half a minute
    stored, unpacked = checkpoint, None
    if checkpoint.is_gguf:
        unpacked = unpacked_gguf(*sha256.values())
        if unpacked.is_dir():
            stored, unpacked = find_checkpoint(name, unpacked), None
    network, unread = load_weights(name, stored, getattr(torch, dtype), settings.device_map)
    with quiet_logging():
        tokenizer = load_tokenizer(name, stored.path)
        if unpacked is not None:
            keep_unpacked(unpacked, network, tokenizer, stored.stored_bits())
    # TransformerLens and eager hooks need the model on one device
    if is_spread:
        settings = settings.model_copy(update={"engine": "fused"})
        device = str(network.get_input_embeddings().weight.device)
    with quiet_logging():
        return model_around(
            name,
            network,
            tokenizer,
            settings,
            notes=unread,
            device=device,
            dtype=dtype,
            revision=commit,
            weights_sha256=sha256,
            checkpoint=None if is_spread else checkpoint,
        )


def open_model(source: Any, **options: Any) -> Model:
    """A model as an engine reads it, whatever stands for it.

    Of a pair the modules are copied and the tensors shared: the engine's attention and activations
    and the mode of evaluation are the copy's alone. Only while the null model is read do the
    weights themselves change; they are put back in their places afterwards. A bridge is read as it
    is, and stays in evaluation mode.

    Args:
        source: a name or path as for `load_model`, a pair of a causal model and a fast tokenizer of
            transformers, a loaded model, or a TransformerBridge of TransformerLens.
        options: as for `load_model`. What is in memory stays on its device, in its precision.

    Raises:
        ModelError: it cannot be loaded or read, or is asked to be another than it is.
    """
    # a name, a network with its tokenizer, or a model that was loaded before
    if isinstance(source, str | Path):
        return load_model(str(source), **options)
    settings = _settings(options)
    if not isinstance(source, Model):
        return _in_memory(source, settings)
    _check_settings(source.name, source.device, source.dtype, settings)
    if settings.engine not in (AUTO, source.engine.name):
        # an engine changes the network that it runs, so the other engine needs the model once more
        in_chat = settings.chat or source.tokenizer.template is not None
        if source.origin is not None:
            return _in_memory(source.origin, settings.model_copy(update={"chat": in_chat}))
        if source.checkpoint is None:
            raise ModelError(
                f"{source.name} is spread over devices for the {source.engine.name} engine; the "
                f"{settings.engine} engine needs the whole model on one device"
            )
        return load_model(
            source.name,
            revision=source.revision or None,
            device=source.device,
            dtype=source.dtype,
            engine=settings.engine,
            bos=source.tokenizer.bos_string or None,
            chat=in_chat,
        )
    # prompts in chat need the same model with another tokenizer
    return source.in_chat(settings.chat)


def state_sha256(network: nn.Module) -> dict[str, str]:
    """The checksum of all tensors of a network: their names, kinds, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            continue
        # a compiled model has the tensors of the plain one under longer names
        plain_name = name.replace(f"{COMPILED}.", "")
        title = f"\0{plain_name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0"
        digest.update(title.encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)
    return {STATE: digest.hexdigest()}


def _network_and_tokenizer(source: Any) -> tuple[Any, Any]:
    """Network and tokenizer of a pair or a bridge."""
    # a compiled network is a wrapper, whose class is not a model's
    parts = ("original_model", "tokenizer")  # of a bridge
    is_pair = isinstance(source, tuple)
    if is_pair:
        source = tuple(map(uncompiled, source))
    match source if is_pair else tuple(getattr(source, part, None) for part in parts):
        case (
            transformers.PreTrainedModel() as network,
            transformers.PreTrainedTokenizerBase() as tokenizer,
        ):
            return network, tokenizer
    # anything else: the likely mistakes are named with their remedy
    items = source if is_pair else (source,)
    kinds = ", ".join(type(item).__name__ for item in items)
    if any(hasattr(item, "merge_and_unload") for item in items):  # the wrapper of peft
        raise ModelError(
            f"({kinds}) is a model with adapters around it; merge them: pass "
            "(model.merge_and_unload(), tokenizer)"
        )
    if isinstance(source, transformers.PreTrainedModel):
        raise ModelError(f"{kinds} is given without its tokenizer; pass (model, tokenizer)")
    raise ModelError(f"({kinds}) is no model and its tokenizer; {_PAIR}, or a TransformerBridge")


def _in_memory(source: Any, settings: Settings) -> Model:
    # name, precision and device are those of the network itself
    network, tokenizer = _network_and_tokenizer(source)
    bridge = None if isinstance(source, tuple) else source
    path = str(getattr(network.config, "name_or_path", "") or "")
    name = title_of(path) if path else type(network).__name__
    dtype = str(network.dtype).removeprefix("torch.")
    device = str(token_embedding(name, network).device)
    # only plain weights in memory can be read, of a model that predicts tokens
    if any(weight.is_meta for weight in network.parameters()):
        raise ModelError(
            f"{name}: some weights are not in memory, as after cpu_offload or disk_offload of "
            "accelerate; pass the model before it is offloaded, or name its folder and choose the "
            "devices with --device-map auto"
        )
    check_plain_weights(name, network)
    check_family(name, network.config.to_dict())
    if network.get_output_embeddings() is None and attention_kind(network.config) == CAUSAL:
        raise ModelError(
            f"{name}: a {type(network).__name__} predicts no next token; load it with "
            "AutoModelForCausalLM"
        )
    _check_settings(name, device, dtype, settings)
    # a bridge has replaced the attention that other engines read
    if bridge is not None and (
        settings.engine in ("fused", "eager") or attention_kind(network.config) != CAUSAL
    ):
        raise ModelError(
            f"{name}: a bridge is read by the lens engine; for the fused one, which reads encoders "
            f"too, {_PAIR}"
        )
    if bridge is not None:
        refuse_wrapped_bridge(name, bridge)
    # the engine changes a copy that shares the tensors, and the user's network stays
    with quiet_logging():
        return model_around(
            name,
            network if bridge is not None else sharing_copy(network),
            tokenizer,
            settings,
            bridge=bridge,
            notes=(FROM_MEMORY,),
            device=device,
            dtype=dtype,
            revision="",
            weights_sha256=state_sha256(network),
            origin=source,
        )


def token_embedding(name: str, network: Any) -> Float[Tensor, "token width"]:
    """The embeddings of a network's tokens.

    Raises:
        ModelError: it reads something else than tokens, such as images.
    """
    try:
        embedding = network.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        embedding = None
    weight = getattr(embedding, "weight", None)
    # patches of an image or of a series are projected
    is_projection = isinstance(embedding, nn.Linear)
    if isinstance(weight, Tensor) and weight.ndim == 2 and not is_projection:
        return weight
    raise ModelError(
        f"{name}: a {type(network).__name__} has no embedding of tokens, so it reads no text; "
        "pass a language model"
    )


def _check_settings(name: str, device: str, dtype: str, settings: Settings) -> None:
    """Refuse settings that would load a model that is loaded in another way."""
    usual = Settings()
    # "cuda" stands for any device of that kind
    same = {"device": {device, device.partition(":")[0]}, "dtype": {dtype}}
    for option in ("device", "revision", "device_map", "dtype"):
        value = getattr(settings, option)
        if value != getattr(usual, option) and value not in same.get(option, ()):
            raise ModelError(
                f"{name} is in memory already, and {option} {value!r} is asked of it; give its "
                "name instead, or bring it there before"
            )


def model_around(
    name: str,
    network: Any,
    tokenizer: Any,
    settings: Settings,
    *,
    bridge: Any = None,
    notes: tuple[str, ...],
    **fields: Any,
) -> Model:
    """A model around a network of transformers, whose attention and activations are replaced."""
    config = network.config
    # matrices and dimensions, before any engine changes the network
    merge_notes = () if bridge is not None else merge_wrapped(name, network)
    if bridge is None:
        fuse_activations(network)
        config.architectures = config.architectures or [type(network).__name__]
    dimensions = read_dimensions(name, config)
    dimensions = replace(dimensions, others=layers_without_softmax(network, dimensions.layers))
    rows = len(token_embedding(name, network))
    text_tokenizer, bos_notes = _text_tokenizer(name, config, tokenizer, settings, dimensions, rows)
    # a bridge brings its engine along
    engine: Engine
    engine_notes: tuple[str, ...]
    if bridge is not None:
        engine, engine_notes = bridge_engine(name, bridge, dimensions), ()
    else:
        engine, engine_notes = choose_engine(
            name,
            network,
            tokenizer,
            dimensions,
            engine_name=settings.engine,
            device=fields["device"],
        )
    # heads whose outputs are mixed before W_O reads them are not ablated
    is_fused = isinstance(engine, FusedEngine)
    mixed_layers = layers_with_mixed_heads(network, dimensions) if is_fused else ()
    return Model(
        name=name,
        engine=engine,
        tokenizer=text_tokenizer,
        architecture=(config.architectures or [type(network).__name__])[0],
        layers=len(dimensions.attention_layers),
        heads=dimensions.heads,
        key_value_heads=dimensions.key_value_heads,
        context=dimensions.context or UNSTATED_CONTEXT,
        vocabulary_size=rows,
        attention_kind=dimensions.attention_kind,
        others=dimensions.others,
        mixed_layers=mixed_layers,
        merged=bool(merge_notes),
        notes=(
            *notes,
            *merge_notes,
            *bos_notes,
            *engine_notes,
            *_notes(network, dimensions, mixed_layers),
        ),
        **fields,
    )


def _text_tokenizer(
    name: str,
    config: Any,
    backend: Any,
    settings: Settings,
    dimensions: AttentionDimensions,
    rows: int,
) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer, and a note on the token that serves as BOS if it has none."""
    # an encoder's windows begin with its classification token, and need no substitute
    bos, kind = settings.bos, dimensions.attention_kind
    notes: tuple[str, ...] = ()
    if bos is None and kind.predicts_next:
        bos, notes = substitute_bos(backend, config.get_text_config(decoder=True))
    tokenizer = Tokenizer(
        backend,
        name=name,
        bos=bos,
        rows=rows,
        attention_kind=kind,
    )
    return tokenizer.in_chat() if settings.chat else tokenizer, notes


def _notes(
    network: Any, dimensions: AttentionDimensions, mixed_layers: Sequence[int]
) -> tuple[str, ...]:
    """The devices of its parts, the layers that are not read, and those whose heads are mixed."""
    notes = []
    if devices := dict.fromkeys(map(str, getattr(network, "hf_device_map", {}).values())):
        names = [f"cuda:{device}" if device.isdigit() else device for device in devices]
        notes.append(f"spread by accelerate over {', '.join(names)}")
    if dimensions.others:
        notes.append(f"{without_softmax(dimensions.others)}: what they mix is not read")
    if mixed_layers:
        notes.append(
            f"{layer_ranges(mixed_layers)} mix the outputs of their heads before W_O: patterns are "
            "read, and causal studies and direct effects do not take this model"
        )
    return tuple(notes)


COMPILED = "_orig_mod"
"""Name under which `torch.compile` keeps the module that it compiles."""


def sharing_copy(network: Any) -> Any:
    """A network of modules and a configuration of its own, with the same tensors.

    Buffers that no checkpoint holds are copied: LongRoPE writes its frequencies into one. What
    `torch.compile` made is left out: compiled code ignores hooks and a change of attention.
    """
    tensors = [*network.parameters(), *network.state_dict(keep_vars=True).values()]
    for module in network.modules():
        # torch's older weight_norm keeps the product of parameters as a plain attribute
        tensors += [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
    copied = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    # original modules and methods take the place of compiled ones
    for part in list(copied.modules()):
        part._compiled_call_impl = None  # of `module.compile()`
        compiled_method = hasattr(vars(part).get("forward"), "_torchdynamo_orig_callable")
        if compiled_method:
            del part.forward
        for child_name, child in part.named_children():
            part._modules[child_name] = uncompiled(child)
    # accelerate's mixed precision wraps the method, and the copy's would run the original
    vars(copied).pop("forward", None)
    # a GGUF's weights are no longer quantised
    vars(copied.config).pop("quantization_config", None)
    copied.set_attn_implementation("eager")
    # transformers does not switch Falcon, whose forward reads this field; with a mask for SDPA its
    # eager attention would see later positions
    copied.config._attn_implementation = "eager"
    return copied.eval()


def uncompiled(module: Any) -> Any:
    """The module that `torch.compile` compiled; anything else as it is."""
    is_compiled = isinstance(module, nn.Module) and COMPILED in module._modules
    return module._modules[COMPILED] if is_compiled else module
