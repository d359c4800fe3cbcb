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
    explicit_only: bool = False,
    help_texts: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting, in place of its parameter `settings`.

    Args:
        without: settings that are no options of this command.
        explicit_only: hand on a dict of what was said, instead of `Settings` with all defaults.
        help_texts: other help for some settings, where the command has another default.
    """
    settings_fields = [setting for setting in fields(Settings) if setting.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {setting.name: arguments.pop(setting.name) for setting in settings_fields}
            explicit = {name: value for name, value in values.items() if value is not None}
            command(**arguments, settings=explicit if explicit_only else Settings(**explicit))

        parameters = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "settings":
                parameters += [
                    _parameter(setting, explicit_only=explicit_only, help_texts=help_texts)
                    for setting in settings_fields
                ]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__
        return run

    return decorate


def _parameter(
    setting: Field[Any], *, explicit_only: bool, help_texts: Mapping[str, str]
) -> inspect.Parameter:
    """The option of one setting; without a default of its own where only what is said counts."""
    option, default = OPTIONS[setting.name], None if setting.default is MISSING else setting.default
    kind = _KINDS.get(str(setting.type).partition(" ")[0], str)
    empty = explicit_only or default is None
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if explicit_only else default,
        annotation=Annotated[
            kind | None if empty else kind,
            typer.Option(
                help=help_texts.get(setting.name, option.help),
                rich_help_panel=option.panel,
                show_default=not empty,
                autocompletion=_COMPLETE.get(setting.name),
            ),
        ],
    )
