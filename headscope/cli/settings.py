"""The settings of a run as options of a command: derived, so that they are written down once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any

import typer

from headscope.cli import complete
from headscope.settings import OPTIONS, Settings

_KINDS: dict[str, Any] = {"int": int, "bool": bool, "float": float}
_COMPLETE = {"types": complete.types}
"""What the command line reads; what else a setting must be is checked by `Settings`."""


def takes_settings(
    *,
    without: tuple[str, ...] = (),
    said: bool = False,
    told: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting, in place of its parameter `settings`.

    Args:
        without: settings that are no options of this command.
        said: hand on a dict of what was said, instead of `Settings` with all defaults.
        told: other help for some settings, where the command has another default.
    """
    chosen = [each for each in fields(Settings) if each.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            values = {each.name: given.pop(each.name) for each in chosen}
            asked = {name: value for name, value in values.items() if value is not None}
            command(**given, settings=asked if said else Settings(**asked))

        parameters = []
        for each in inspect.signature(command, eval_str=True).parameters.values():
            if each.name == "settings":
                parameters += [_parameter(own, said=said, told=told) for own in chosen]
            else:
                parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        del run.__wrapped__
        return run

    return decorate


def _parameter(each: Field[Any], *, said: bool, told: Mapping[str, str]) -> inspect.Parameter:
    """The option of one setting; without a default of its own where only what is said counts."""
    option, default = OPTIONS[each.name], None if each.default is MISSING else each.default
    kind = _KINDS.get(str(each.type).partition(" ")[0], str)
    empty = said or default is None
    return inspect.Parameter(
        each.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if said else default,
        annotation=Annotated[
            kind | None if empty else kind,
            typer.Option(
                help=told.get(each.name, option.help),
                rich_help_panel=option.panel,
                show_default=not empty,
                autocompletion=_COMPLETE.get(each.name),
            ),
        ],
    )
