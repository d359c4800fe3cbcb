"""An adapter of PEFT, merged into the weights of its model: the heads are then those of both."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from headscope.corpus.read import file_sha256
from headscope.errors import HeadscopeError, ModelError
from headscope.models.quiet import quiet

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
INSTALL = "pip install 'headscope[adapters]'"


def find_adapter(path: str) -> Path:
    """The folder of an adapter, if its files are there; nothing of them is read.

    Raises:
        ModelError: it is no such folder, or PEFT is not installed.
    """
    try:
        folder = Path(path).expanduser()
        lacks = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    except (OSError, RuntimeError, ValueError) as error:  # a home that nobody has, a name too long
        raise ModelError(f"adapter {path!r:.100} is no folder: {error!s:.200}") from error
    if lacks:
        raise ModelError(
            f"adapter {path}: there is no {lacks[0]}; an adapter is a folder as PEFT's "
            f"save_pretrained writes it, with {CONFIG} and {WEIGHTS}"
        )
    if find_spec("peft") is None:
        raise ModelError(f"adapter {path}: needs PEFT, which is not installed: {INSTALL}")
    return folder


def adapter_sha256(folder: Path) -> dict[str, str]:
    """The sha256 of both files, by their names within the adapter's own folder."""
    return {f"{folder.name}/{name}": file_sha256(folder / name) for name in (CONFIG, WEIGHTS)}


def merged(name: str, network: Any, folder: Path) -> Any:
    """The network with the adapter in its weights.

    Args:
        name: of the model, for messages.
        network: a causal model of transformers on the processor; it is changed.
        folder: from `find_adapter`.

    Raises:
        ModelError: the adapter is of another model, has tensors that fit nowhere or lacks some,
            holds no numbers, or is of a kind that changes no weights.
    """
    from peft import PeftConfig, PeftModel, set_peft_model_state_dict

    told = f"{name}: adapter {folder.name}"
    try:
        with quiet():
            config = PeftConfig.from_pretrained(str(folder))
            if config.is_prompt_learning:
                raise ModelError(
                    f"{told}: {config.peft_type.value} adds tokens and changes no weights; what "
                    "can be merged is read, such as LORA"
                )
            config.inference_mode = True
            own = PeftModel(network, config)
            found = set_peft_model_state_dict(own, load_file(folder / WEIGHTS))
            # transformers' own parameters are "missing" too: only those of the adapter count
            fresh = {key for key, _ in own.named_parameters() if f".{own.active_adapter}" in key}
            odd = sorted(found.unexpected_keys) + sorted(fresh & {*found.missing_keys})
            if odd:
                raise ModelError(f"{told}: {odd[0]} is not in both it and the model")
            return own.merge_and_unload(safe_merge=True).eval()
    except HeadscopeError:
        raise
    except Exception as error:  # PEFT raises many kinds for what does not fit
        reason = " ".join(str(error).split())
        raise ModelError(f"{told} does not fit this model: {reason:.300}") from error
