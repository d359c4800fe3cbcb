"""Settings of a run: the one home of every option, with its default, check and help.

`classify`, the command line, a sweep's file, `run.json` and the checkpoint derive from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, no_type_check

from headscope.arguments import FLAG, HEAD_TYPES, NAME, Kind, check, described, number, whole
from headscope.errors import ArgumentError


class Option(NamedTuple):
    """Allowed values and purpose of a setting."""

    help: str
    kind: Kind
    """What it may hold."""
    panel: str
    counts: bool
    """Whether a run's numbers or files depend on it, so that `run.json` states it."""
    loads: bool
    """Whether it says how a model is loaded."""


_READ, _JUDGED, _LOADED = "What is read", "How it is judged and kept", "How the model is loaded"
MAX_TOKENS = 40_000
"""Tokens of text that a run reads by default."""
AUTO = "auto"
QUICK_TOKENS = 8_000
"""The same of a quick run."""
BY_QUICK: dict[str, tuple[Any, Any]] = {
    "max_tokens": (MAX_TOKENS, QUICK_TOKENS),
    "twin": (True, False),
    "built": (True, False),
}
"""Settings whose default is another in a quick run: that of a full run, and that of a quick one."""


def _option(
    default: Any,
    kind: Kind,
    help: str,
    panel: str,
    *,
    counts: bool = True,
    loads: bool = False,
) -> Any:
    return field(default=default, metadata={"option": Option(help, kind, panel, counts, loads)})


@no_type_check  # what it is given is checked below, so that the message says what would do
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that a run is asked for beside its model and its corpus.

    Raises:
        ArgumentError: a value that its field cannot hold; the message says what would do.

    >>> Settings(max_tokens=500).max_tokens
    500
    >>> Settings(types="induction, positional").types
    ('induction', 'positional')
    >>> Settings(max_tokens=0)
    Traceback (most recent call last):
    headscope.errors.ArgumentError: max_tokens is 0, expected a whole number from 1
    """

    types: Sequence[str] | None = _option(
        None,
        HEAD_TYPES,
        "Head types to score, separated by commas, or all. The default leaves out semantic, code, "
        "retrieval and concept-induction.",
        _READ,
    )
    quick: bool = _option(
        False,
        FLAG,
        "Preliminary tags in a fraction of the time: position, sinks, delimiters, induction, "
        "duplicates, syntax and coreference, without the twin and built sentences.",
        _READ,
    )
    """Intervals and controls are those of any run; see `headscope.relations.QUICK`."""
    max_tokens: int = _option(
        None,
        whole(1),
        f"Tokens of text to read, about; {MAX_TOKENS:,}, or {QUICK_TOKENS:,} with --quick.",
        _READ,
    )
    """To the end of a window; synthetic stimuli come on top."""
    all: bool = _option(
        False, FLAG, "Read all that text, even when the rest will hardly change a tag.", _READ
    )
    """Else reading ends when it is expected to change at most one tag of fifty; see
    `headscope.statistics.early_stopping`."""
    documents: int | None = _option(
        None, whole(1), "Documents of text to read at most; as many as there are by default.", _READ
    )
    built: bool = _option(
        None,
        FLAG,
        "Ask sentences made for it too where a text hardly tells a relation from a simple rule; "
        "they are English. On; off with --quick.",
        _READ,
    )
    """Of Universal Dependencies' files in other languages they are never asked."""
    max_length: int = _option(256, whole(8), "Longest window in tokens.", _READ)
    """Long enough for sentences and their antecedents, short enough for the quadratic part of
    attention to stay small; at most the model's context."""
    bos: str | None = _option(
        None,
        Kind("the text of a token", NAME.plain),
        "Token to put before each document, if not the tokenizer's own BOS.",
        _READ,
        loads=True,
    )
    chat: bool = _option(
        False,
        FLAG,
        "Put each document into the model's own chat template, as a user's message.",
        _READ,
        loads=True,
    )
    """What the template adds is asked about by relations of its own; see
    `headscope.corpus.window.ChatTemplate`."""
    twin: bool = _option(
        None,
        FLAG,
        "Compare with the model's shuffled twin, which learned nothing. On; off with --quick.",
        _JUDGED,
    )
    """On an eighth of the text; each tag must beat what the twin shows by chance."""
    writes: bool = _option(
        False,
        FLAG,
        "Measure what heads write into the logits, beside where they look.",
        _JUDGED,
    )
    """In the same forward passes, which take a fifth longer, and some 5,000 tokens of prompts more;
    see `headscope.relations.effects`. Off by itself."""
    examples: bool = _option(
        True, FLAG, "Keep patterns of the tagged heads' best and ordinary queries.", _JUDGED
    )
    keep_sums: bool = _option(
        False,
        FLAG,
        "Keep the sums as a whole, the twin's too, uncompressed; 20 to 45 times as large.",
        _JUDGED,
    )
    """Else those that merging, halves and the bootstrap need; see `headscope.runs.sums`."""
    seed: int = _option(0, whole(0), "Seeds every draw.", _JUDGED)
    """The choice of files, the shuffling, random tokens, controls and the bootstrap."""
    revision: str | None = _option(
        None, NAME, "Branch, tag or commit on the hub, e.g. step1000.", _LOADED, loads=True
    )
    device: str = _option(
        "auto", NAME, "cpu, cuda, …; auto takes a GPU if there is one.", _LOADED, loads=True
    )
    device_map: str | None = _option(
        None,
        NAME,
        "auto spreads a large model over all devices, with accelerate.",
        _LOADED,
        loads=True,
    )
    dtype: str = _option(
        AUTO,
        NAME,
        "float32, bfloat16 or float16; auto is bfloat16 where the checkpoint holds no more, the "
        "processor multiplies it, and masses hardly differ.",
        _LOADED,
        loads=True,
    )
    engine: str = _option(
        "auto",
        NAME,
        "fused or lens; auto is fused where the model allows it.",
        _LOADED,
        loads=True,
    )
    keep_every: float = _option(
        60.0,
        number(0.0),
        "Seconds between two writings of the sums so far.",
        _JUDGED,
        counts=False,
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value is None and setting.default is None:
                continue
            object.__setattr__(self, setting.name, read_value(setting.name, value, setting.name))
        for name in BY_QUICK:
            if getattr(self, name) is None:
                object.__setattr__(self, name, _default(name, self.quick))

    def to_json(self) -> dict[str, Any]:
        """The settings as `run.json` states them: all on which a run's numbers or files depend.

        >>> Settings(seed=3).to_json()["seed"]
        3
        """
        counted = {name: value for name, value in asdict(self).items() if OPTIONS[name].counts}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in counted.items()}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Settings:
        """The settings of a run from its `run.json`; what that does not say is the default.

        >>> Settings.from_json({"seed": 3, "batch_tokens": 1024}).seed
        3
        """
        return cls(**{name: value for name, value in facts.items() if name in OPTIONS})

    def loading(self) -> dict[str, Any]:
        """Options for loading the model: fields of `headscope.models.load_options.LoadOptions`."""
        options = {name: getattr(self, name) for name, option in OPTIONS.items() if option.loads}
        # what a run then reads is chosen when it is loaded; see `headscope.measure.precision_check`
        dtype = "float32" if self.dtype == AUTO else self.dtype
        return options | {"dtype": dtype, "longest": self.max_length}

    def words(self) -> Iterator[str]:
        """The words of the command line that differ from its defaults.

        >>> list(Settings(max_tokens=500, twin=False).words())
        ['--max-tokens', '500', '--no-twin']
        """
        for setting in fields(self):
            value, flag = getattr(self, setting.name), setting.name.replace("_", "-")
            default = _default(setting.name, self.quick)
            if value == default or not OPTIONS[setting.name].counts:
                continue
            if isinstance(value, bool):
                yield f"--{flag}" if value else f"--no-{flag}"
            else:
                yield from (f"--{flag}", ",".join(value) if setting.name == "types" else str(value))


def _default(name: str, quick: bool) -> Any:
    """A setting's default in a quick or a full run."""
    return BY_QUICK[name][quick] if name in BY_QUICK else _DEFAULTS[name]


def not_default(facts: dict[str, Any]) -> str:
    """The words of the command line for what a run's `settings` say that is not the default.

    Empty where all is.

    >>> not_default(Settings(all=True, seed=3).to_json())
    '--all --seed 3'
    """
    return shlex.join(Settings.from_json(facts).words())


OPTIONS: dict[str, Option] = {
    setting.name: setting.metadata["option"] for setting in fields(Settings)
}
"""Each setting's option by its name."""
_DEFAULTS = {setting.name: setting.default for setting in fields(Settings)}


def read_value(name: str, value: Any, where: str) -> Any:
    """A setting's value as it is used.

    Args:
        name: the setting.
        value: what was given for it.
        where: what an error calls it.

    Raises:
        ArgumentError: it cannot hold this.
    """
    return check(where, value, OPTIONS[name].kind)


def settings_of(settings: Settings | None, changes: dict[str, Any]) -> Settings:
    """Settings with some of them changed.

    Raises:
        ArgumentError: no such setting, or a value that it cannot hold.

    >>> settings_of(None, {"seed": 4}).seed
    4
    >>> quick = settings_of(Settings(seed=4), {"quick": True})
    >>> quick.max_tokens, quick.twin, list(quick.words())
    (8000, False, ['--quick', '--seed', '4'])
    """
    for name in changes:
        if name not in OPTIONS:
            raise ArgumentError(f"no setting named {name!r}; choose from: {', '.join(OPTIONS)}")
    if settings is not None and not isinstance(settings, Settings):
        raise ArgumentError(f"settings is {described(settings)}, expected hs.Settings(…)")
    if settings is None:
        return Settings(**changes)
    if "quick" in changes:
        implied = [n for n in BY_QUICK if getattr(settings, n) == _default(n, settings.quick)]
        changes = {**dict.fromkeys(implied), **changes}
    return replace(settings, **changes)
