"""An adapter's configuration, checked by the types that PEFT states for its entries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from inspect import isclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headscope.errors import ModelError
from headscope.models.config_values import check_values, read_config_file

NEEDED = ("r", "lora_alpha", "alpha", "target_modules")
"""Entries for which PEFT would take numbers and names of its own, where the adapter's kind has
them: the heads would be those of another adapter."""
_AGAIN = "save the adapter again with PEFT's save_pretrained, or copy it again"

_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a group in braces",
    NoneType: "null",
}


def check_adapter_config(source: str, path: Path, kinds: Mapping[Any, Any]) -> None:
    """Refuse a configuration by which no adapter can be built, before PEFT reads it.

    Args:
        source: the adapter, as the beginning of a message.
        path: of its adapter_config.json.
        kinds: PEFT's class of configuration for each type of adapter.

    Raises:
        ModelError: it is not JSON, lacks an entry, or has one of the wrong type; the message names
            the entry and what it should be.
    """
    file = f"{source}: {path.name}"
    stated = read_config_file(path, file, advice=_AGAIN, writer="PEFT")
    names = {
        str(getattr(kind, "value", kind)): config_class for kind, config_class in kinds.items()
    }
    peft_type = stated.get("peft_type")
    if peft_type is None:
        raise ModelError(f"{file} has no peft_type, which names its kind, such as LORA; {_AGAIN}")
    if not isinstance(peft_type, str) or peft_type not in names:
        raise ModelError(
            f"{file} gives peft_type as {peft_type!r:.60}, which PEFT does not know; choose from: "
            f"{', '.join(sorted(names))}; or pip install --upgrade peft"
        )
    check_values(file, stated)
    hints = get_type_hints(names[peft_type])
    for name in NEEDED:
        if name in hints and name not in stated:
            raise ModelError(f"{file} has no {name}, and PEFT would take its own; {_AGAIN}")
    for name, value in stated.items():
        if name in hints and not _fits(value, hints[name], fraction="alpha" in name):
            raise ModelError(
                f"{file} gives {name} as {value!r:.60}; it should be {_words(hints[name])}"
            )
    _check_expression(file, stated.get("target_modules"))


def _check_expression(file: str, pattern: Any) -> None:
    """Refuse names of modules that are one text and no regular expression."""
    try:
        if isinstance(pattern, str):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ModelError(
            f"{file} gives target_modules as {pattern!r:.60}, which is no regular expression "
            f'({error!s:.100}); a list of names, such as ["q_proj", "v_proj"], would do'
        ) from error


def _fits(value: Any, hint: Any, *, fraction: bool = False) -> bool:
    """True for a value of JSON of an annotated type; of types beyond JSON's PEFT is the judge."""
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, item, fraction=fraction) for item in get_args(hint))
    if get_origin(hint) is Literal:
        # a name with a number in it, such as pissa_niter_16, is annotated with the number's place
        free = any("[" in str(item) for item in get_args(hint))
        return value in get_args(hint) or (free and isinstance(value, str))
    plain = get_origin(hint) or hint
    if plain is NoneType:
        return value is None
    if plain is bool:
        return value is None or isinstance(value, bool)
    if plain in (int, float):
        types = (int, float) if fraction or plain is float else (int,)
        return isinstance(value, types) and not isinstance(value, bool)
    if plain in (list, tuple, set):
        (inner, *_) = get_args(hint) or (Any,)
        return isinstance(value, list) and all(_fits(item, inner) for item in value)
    if plain in (str, dict):
        return isinstance(value, plain)
    return True


def _words(hint: Any) -> str:
    """An annotated type in words.

    >>> _words(list[str] | str | None), _words(Literal["none", "all"])
    ('a list of texts, a text or null', "'none' or 'all'")
    """
    if get_origin(hint) in (Union, UnionType, Literal):
        parts = [
            repr(option) if get_origin(hint) is Literal else _words(option)
            for option in get_args(hint)
        ]
        return " or ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    plain = get_origin(hint) or hint
    if plain in (list, tuple, set):
        (inner, *_) = get_args(hint) or (Any,)
        return f"a list of {_words(inner).removeprefix('a ')}s"
    if plain in _WORDS:
        return _WORDS[plain]
    return "a name" if isclass(plain) and issubclass(plain, Enum) else "what PEFT writes there"
