"""An adapter of PEFT, merged into the weights of its model: the heads are then those of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from headscope.corpus.read import file_sha256
from headscope.errors import HeadscopeError, ModelError
from headscope.models.adapter_config import check_adapter_config
from headscope.models.packages import check_packages, optional_package
from headscope.models.weights import quiet_logging

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

DEADLINE = 5
"""Seconds in which all names of a model's modules must be matched. An expression that PEFT's users
write takes thousandths of one; PEFT itself then matches it a few times."""
_USES = (r"{}", r"(.*\.)?({})$", r"(^|.*\.){}($|\..*)", r"(?:^|.*?\.){}\.(?P<idx>\d+)\.")
"""How PEFT's tuners and utilities match names of modules with what a configuration says."""
_MATCH = """
import json, re, sys
expressions, names = json.load(sys.stdin)
for expression in expressions:
    try:
        compiled = re.compile(expression)
    except (re.error, OverflowError, RecursionError):  # PEFT says what is wrong with it
        continue
    for name in names:
        compiled.fullmatch(name)
        compiled.match(name)
"""


def find_adapter(path: str) -> Path:
    """The folder of an adapter, if its files are there; nothing of them is read.

    Raises:
        ModelError: it is no such folder, or PEFT is not installed.
    """
    try:
        folder = Path(path).expanduser()
        missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    except (OSError, RuntimeError, ValueError) as error:  # a home that nobody has, a name too long
        raise ModelError(f"adapter {path!r:.100} is no folder: {error!s:.200}") from error
    if missing:
        raise ModelError(
            f"adapter {path}: there is no {missing[0]}; an adapter is a folder as PEFT's "
            f"save_pretrained writes it, with {CONFIG} and {WEIGHTS}"
        )
    check_packages(f"adapter {path}", ["peft"])
    return folder


def adapter_sha256(folder: Path) -> dict[str, str]:
    """The sha256 of both files, by their names within the adapter's own folder."""
    return {f"{folder.name}/{name}": file_sha256(folder / name) for name in (CONFIG, WEIGHTS)}


def merge_adapter(name: str, network: Any, folder: Path) -> Any:
    """The network with the adapter in its weights.

    Args:
        name: of the model, for messages.
        network: a causal model of transformers on the processor; it is changed.
        folder: from `find_adapter`.

    Raises:
        ModelError: the adapter is of another model, has tensors that fit nowhere or lacks some,
            holds no numbers, or is of a kind that changes no weights.
    """
    subject = f"{name}: adapter {folder.name}"
    peft = optional_package(subject, "peft")
    check_adapter_config(subject, folder / CONFIG, peft.mapping.PEFT_TYPE_TO_CONFIG_MAPPING)
    weights = _weights(subject, folder / WEIGHTS)
    try:
        with quiet_logging():
            config = peft.PeftConfig.from_pretrained(str(folder))
            if config.is_prompt_learning:
                raise ModelError(
                    f"{subject}: {config.peft_type.value} adds tokens and changes no weights; what "
                    "can be merged is read, such as LORA"
                )
            config.inference_mode = True
            _check_expressions(subject, config, [key for key, _ in network.named_modules()])
            adapted = peft.PeftModel(network, config)
            loaded = peft.set_peft_model_state_dict(adapted, weights)
            # transformers' own parameters are "missing" too: only those of the adapter count
            fresh = {
                key for key, _ in adapted.named_parameters() if f".{adapted.active_adapter}" in key
            }
            _check_tensors(subject, sorted(loaded.unexpected_keys), fresh & {*loaded.missing_keys})
            return adapted.merge_and_unload(safe_merge=True).eval()
    except HeadscopeError:
        raise
    except Exception as error:  # PEFT raises many kinds for what does not fit
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{subject} cannot be merged into this model: {reason.rstrip('.'):.300}; its files "
            "should be those that PEFT saved for this model"
        ) from error


def _check_expressions(subject: str, config: Any, names: Sequence[str]) -> None:
    """Refuse a configuration whose regular expressions would hold the process, perhaps for ever.

    Nothing can end a match that has begun within this process: Python's own matcher lets no other
    thread run meanwhile. So all of it is tried in another process first, which has a deadline.

    Raises:
        ModelError: the names take too long to be matched.
    """
    expressions = dict.fromkeys(_expressions(config))
    if not expressions:
        return
    uses = [use.replace("{}", expression) for expression in expressions for use in _USES]
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MATCH],
            input=json.dumps([uses, names]),
            capture_output=True,
            check=False,
            text=True,
            timeout=DEADLINE,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{subject}: a regular expression in its {CONFIG} takes more than {DEADLINE} seconds "
            f"to be matched with the names of {len(names):,} modules "
            f"({next(iter(expressions))!r:.80}"
            "); write it without repeats inside repeats, or list the names of the modules"
        ) from error


def _expressions(config: Any) -> Iterator[str]:
    """Regular expressions that PEFT finds in a configuration, where anything is repeated."""
    for name, value in vars(config).items():
        if not name.endswith(("modules", "modules_to_save", "pattern")):
            continue
        # names in a list of target modules are compared letter by letter
        listed = () if name.endswith("modules") else value
        several = listed if isinstance(listed, list | tuple | set | dict) else ()
        for expression in (value,) if isinstance(value, str) else several:
            if isinstance(expression, str) and any(mark in expression for mark in "*+?{"):
                yield expression


def _weights(subject: str, path: Path) -> dict[str, Any]:
    try:
        return dict(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{subject}: {path.name} is no safetensors file, or not whole: {error!s:.200}; copy it "
            "again"
        ) from error


def _check_tensors(subject: str, unexpected: Sequence[str], missing: Collection[str]) -> None:
    """Refuse an adapter that holds what the model has no part for, or lacks what it should hold."""
    if unexpected:
        raise ModelError(
            f"{subject} holds {unexpected[0]}, and the model has no such part; is it an adapter of "
            "another model?"
        )
    if missing:
        raise ModelError(
            f"{subject} lacks {min(missing)}, which its {CONFIG} asks for; copy it again, or save "
            "it with PEFT's save_pretrained"
        )
