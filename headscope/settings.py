"""Settings of a run: each option with its default, its bounds and its help.

`classify`, the command line, a sweep's file, `run.json` and the checkpoint take them from here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from headscope.errors import ArgumentError
from headscope.options import Name, Names, Options, Positive, Seed, described

MAX_TOKENS = 40_000
"""Tokens of text that a run reads by default."""
QUICK_TOKENS = 8_000
"""Default tokens of text of a quick run."""
AUTO = "auto"
_READ, _JUDGED, _LOADED = "What is read", "How it is judged and kept", "How the model is loaded"


def _by_quick(full: Any, quick: Any) -> Callable[[dict[str, Any]], Any]:
    """Default of a setting that differs in a quick run."""
    return lambda settings: quick if settings.get("quick") else full


def _option(
    default: Any, description: str, panel: str, *, loads: bool = False, counts: bool = True
) -> Any:
    """A field; `loads` marks options of the model, `counts` options that `run.json` records."""
    extra: JsonDict = {"panel": panel, "loads": loads, "counts": counts}
    key = "default_factory" if callable(default) else "default"
    return Field(**{key: default}, description=description, json_schema_extra=extra)


class Settings(Options):
    """Settings of a run, beside its model and its corpus.

    Raises:
        ArgumentError: a value is invalid; the message says what is allowed.

    >>> Settings(max_tokens=500).max_tokens
    500
    >>> Settings(types="induction, positional").types
    ('induction', 'positional')
    >>> Settings(max_tokens=0)
    Traceback (most recent call last):
    headscope.errors.ArgumentError: max_tokens is 0; it should be greater than or equal to 1
    """

    types: Names | None = _option(
        None,
        "Head types to score, separated by commas, or all. The default leaves out semantic, code, "
        "retrieval and concept-induction.",
        _READ,
    )
    quick: bool = _option(
        False,
        "Preliminary tags in a fraction of the time: position, sinks, delimiters, induction, "
        "duplicates, syntax and coreference, without the challenge set and surrogates.",
        _READ,
    )
    max_tokens: Positive = _option(
        _by_quick(MAX_TOKENS, QUICK_TOKENS),
        f"Approximate number of tokens of text; {MAX_TOKENS:,}, or {QUICK_TOKENS:,} with --quick.",
        _READ,
    )
    all: bool = _option(False, "Read the whole text, without early stopping.", _READ)
    documents: Positive | None = _option(
        None, "Maximum number of documents of text; all by default.", _READ
    )
    challenge: bool = _option(
        _by_quick(True, False),
        "Read the challenge set too: English sentences in which baselines are wrong. On; off with "
        "--quick.",
        _READ,
    )
    max_length: Annotated[int, Field(ge=8, le=2**63 - 1)] = _option(
        256, "Longest window in tokens.", _READ
    )
    bos: Name | None = _option(
        None,
        "Token to put before each document, if not the tokenizer's own BOS.",
        _READ,
        loads=True,
    )
    chat: bool = _option(
        False,
        "Put each document into the model's chat template, as a user message.",
        _READ,
        loads=True,
    )
    null_model: bool = _option(
        False,
        "Classify the null model instead: attention weights are shuffled, so every tag is false.",
        _JUDGED,
    )
    direct_effects: bool = _option(
        False, "Measure the direct effects of heads on the logits too.", _JUDGED
    )
    examples: bool = _option(
        True, "Keep patterns of the tagged heads' best and ordinary queries.", _JUDGED
    )
    keep_sums: bool = _option(
        False,
        "Keep the sums as a whole, uncompressed; 20 to 45 times as large.",
        _JUDGED,
    )
    seed: Seed = _option(0, "Seed of all random draws.", _JUDGED)
    revision: Name | None = _option(
        None, "Branch, tag or commit on the hub, e.g. step1000.", _LOADED, loads=True
    )
    device: Name = _option(
        AUTO, "cpu, cuda, …; auto takes a GPU if there is one.", _LOADED, loads=True
    )
    device_map: Literal["auto", "balanced", "sequential"] | None = _option(
        None,
        "Spread a large model over all devices, with accelerate.",
        _LOADED,
        loads=True,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _option(
        AUTO,
        "auto uses bfloat16 if the checkpoint has at most 16 bits, the processor supports it, and "
        "masses agree with float32; otherwise float32.",
        _LOADED,
        loads=True,
    )
    engine: Literal["auto", "fused", "lens"] = _option(
        AUTO, "auto uses fused if the model supports it.", _LOADED, loads=True
    )
    keep_every: Annotated[float, Field(ge=0)] = _option(
        60.0, "Checkpoint interval in seconds.", _JUDGED, counts=False
    )

    def to_json(self) -> dict[str, Any]:
        """The settings as `run.json` states them: those that numbers or files depend on.

        >>> Settings(seed=3).to_json()["seed"]
        3
        """
        facts = {name: getattr(self, name) for name in type(self).model_fields if counts(name)}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in facts.items()}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Settings:
        """The settings of a run from its `run.json`; a missing one has its default.

        >>> Settings.from_json({"seed": 3, "batch_tokens": 1024}).seed
        3
        """
        return cls(**{name: value for name, value in facts.items() if name in cls.model_fields})

    def loading(self) -> dict[str, Any]:
        """Options for loading the model: fields of `headscope.models.load.LoadOptions`."""
        options = {name: getattr(self, name) for name in type(self).model_fields if loads(name)}
        # auto is decided when the model is loaded; see `headscope.measure.precision_check`
        dtype = "float32" if self.dtype == AUTO else self.dtype
        return options | {"dtype": dtype, "longest": self.max_length}

    def words(self) -> Iterator[str]:
        """The options of the command line that differ from their defaults.

        >>> list(Settings(max_tokens=500, challenge=False).words())
        ['--max-tokens', '500', '--no-challenge']
        """
        for name, field in type(self).model_fields.items():
            value, flag = getattr(self, name), name.replace("_", "-")
            default = field.get_default(
                call_default_factory=True, validated_data={"quick": self.quick}
            )
            if value == default or not counts(name):
                continue
            if isinstance(value, bool):
                yield f"--{flag}" if value else f"--no-{flag}"
            else:
                yield from (f"--{flag}", ",".join(value) if name == "types" else str(value))


def panel(name: str) -> str:
    """The heading of a setting in `--help`."""
    return str(_extra(name)["panel"])


def counts(name: str) -> bool:
    """True if numbers or files of a run depend on the setting."""
    return bool(_extra(name)["counts"])


def loads(name: str) -> bool:
    """True for an option of loading the model."""
    return bool(_extra(name)["loads"])


def _extra(name: str) -> dict[str, Any]:
    return Settings.model_fields[name].json_schema_extra  # type: ignore[return-value]


def not_default(facts: dict[str, Any]) -> str:
    """The options of the command line for the settings in a `run.json` that are not the default.

    >>> not_default(Settings(all=True, seed=3).to_json())
    '--all --seed 3'
    """
    return shlex.join(Settings.from_json(facts).words())


def settings_of(settings: Settings | None, changes: dict[str, Any]) -> Settings:
    """Settings with some of them changed.

    Raises:
        ArgumentError: unknown setting, or an invalid value.

    >>> settings_of(None, {"seed": 4}).seed
    4
    >>> quick = settings_of(Settings(seed=4), {"quick": True})
    >>> quick.max_tokens, quick.challenge, list(quick.words())
    (8000, False, ['--quick', '--seed', '4'])
    """
    if settings is not None and not isinstance(settings, Settings):
        raise ArgumentError(f"settings is {described(settings)}; it should be hs.Settings(…)")
    explicit = () if settings is None else settings.model_fields_set
    return Settings(**{**{name: getattr(settings, name) for name in explicit}, **changes})
