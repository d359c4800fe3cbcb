"""Settings of a run: each option with its default, its bounds and its help.

`classify`, the command line, a sweep's file, `run.json` and the checkpoint take them from here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from headscope.corpus.language import language_code
from headscope.options import Name, Names, NonNegative, Options, Positive, Seed, not_allowed

MAX_TOKENS = 40_000
"""Tokens of text that a run reads by default."""
QUICK_TOKENS = 8_000
"""Default tokens of text of a quick run."""
AUTO = "auto"
ON_REQUEST = "types on request"
"""Words in a description that the command line replaces by the names of these head types."""
_TEXT, _RESULTS, _MODEL = "Text", "Results", "Model"
LanguageCode = Annotated[Name, AfterValidator(language_code)]
LEAST_HAYSTACK = 1_024
"""Tokens of the shortest haystack; needles and questions are up to 500 of them."""
LOADING = ("bos", "chat", "revision", "device", "device_map", "dtype", "engine")
"""Settings of loading the model."""


def _by_quick(full: Any, quick: Any) -> Callable[[dict[str, Any]], Any]:
    """Default of a setting that differs in a quick run."""
    return lambda settings: quick if settings.get("quick") else full


def _option(default: Any, description: str, panel: str) -> Any:
    """A field with the heading of its option in `--help`."""
    extra: JsonDict = {"panel": panel}
    key = "default_factory" if callable(default) else "default"
    return Field(**{key: default}, description=description, json_schema_extra=extra)


def check_haystack(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Lengths of haystacks, or one file.

    Raises:
        ValueError: neither.
    """
    names = names or None
    is_file = names is not None and len(names) == 1 and names[0].endswith(".jsonl")
    if names is None or is_file or all(n.isdigit() and int(n) >= LEAST_HAYSTACK for n in names):
        return names
    raise not_allowed(f"be lengths of at least {LEAST_HAYSTACK} tokens, or one .jsonl file")


class Settings(Options):
    """Settings of a run other than its model and corpus.

    Raises:
        ArgumentError: a value is invalid; the message states the allowed values.

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
        f"Head types to score: names separated by commas, or all. Default: all but {ON_REQUEST}.",
        _TEXT,
    )
    quick: bool = _option(
        False,
        "Preliminary tags in a fraction of the time: fewer relations, less text, no challenge set.",
        _TEXT,
    )
    max_tokens: Positive = _option(
        _by_quick(MAX_TOKENS, QUICK_TOKENS),
        "Budget of tokens; the first 8,000 of the challenge set are free. Default: "
        f"{MAX_TOKENS:,}, with --quick {QUICK_TOKENS:,}.",
        _TEXT,
    )
    all: bool = _option(False, "Read all tokens, without early stopping.", _TEXT)
    documents: Positive | None = _option(None, "Maximum documents of text. Default: all.", _TEXT)
    challenge: bool = _option(
        _by_quick(True, False),
        "Also read the challenge set: English sentences in which baselines are wrong. Default: on, "
        "with --quick off.",
        _TEXT,
    )
    language: LanguageCode | None = _option(
        None,
        "Language of the text, such as en or de. Default: the text shows whether it is English. "
        "Baselines and the challenge set that ship are for English only.",
        _TEXT,
    )
    haystack: Annotated[Names | None, AfterValidator(check_haystack)] = _option(
        None,
        "With --types retrieval: also read facts in long text, at lengths such as 2048,8192, or "
        "those of a .jsonl file with context, question and answer.",
        _TEXT,
    )
    max_length: Annotated[int, Field(ge=8, le=2**63 - 1)] = _option(
        256, "Maximum length of a window in tokens.", _TEXT
    )
    bos: Name | None = _option(
        None, "Token before each document. Default: the tokenizer's BOS.", _TEXT
    )
    chat: bool = _option(
        False,
        "Put each document into the model's chat template, as a user message.",
        _TEXT,
    )
    generate: NonNegative = _option(
        0,
        "Tokens that the model generates greedily after each window; annotation is then not used.",
        _TEXT,
    )
    null_model: bool = _option(
        False,
        "Classify the null model instead: attention weights are shuffled, so every tag is false.",
        _RESULTS,
    )
    direct_effects: bool = _option(False, "Also measure direct effects on the logits.", _RESULTS)
    examples: bool = _option(True, "Store example patterns of tagged heads.", _RESULTS)
    keep_sums: bool = _option(
        False,
        "Store the sums behind all numbers, for hs.load(…, with_tally=True).",
        _RESULTS,
    )
    seed: Seed = _option(0, "Random seed.", _RESULTS)
    revision: Name | None = _option(
        None, "Branch, tag or commit on the hub, such as step1000.", _MODEL
    )
    device: Name = _option(
        AUTO, "Device, such as cpu or cuda; auto uses a GPU if there is one.", _MODEL
    )
    device_map: Literal["auto", "balanced", "sequential"] | None = _option(
        None, "Spread the model over all devices, with accelerate.", _MODEL
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _option(
        AUTO,
        "Precision; auto uses bfloat16 if the checkpoint has at most 16 bits, the processor "
        "supports it and masses stay close, otherwise float32.",
        _MODEL,
    )
    engine: Literal["auto", "fused", "eager", "lens"] = _option(
        AUTO,
        "fused uses the framework's attention kernels, eager the model's own code, lens "
        "TransformerLens; auto uses fused, or eager if fused does not fit.",
        _MODEL,
    )

    def to_json(self) -> dict[str, Any]:
        """The settings as `run.json` states them.

        >>> Settings(seed=3).to_json()["seed"]
        3
        """
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Settings:
        """The settings of a run from its `run.json`; a missing one has its default.

        >>> Settings.from_json({"seed": 3, "batch_tokens": 1024}).seed
        3
        """
        return cls(**{name: value for name, value in values.items() if name in cls.model_fields})

    def loading(self) -> dict[str, Any]:
        """Settings of loading the model, as `headscope.models.load.open_model` takes them."""
        return {name: getattr(self, name) for name in LOADING}

    def words(self) -> Iterator[str]:
        """The options of the command line that differ from their defaults.

        >>> list(Settings(max_tokens=500, challenge=False).words())
        ['--max-tokens', '500', '--no-challenge']
        """
        for name, field in type(self).model_fields.items():
            value, flag = getattr(self, name), name.replace("_", "-")
            # some defaults are others in a quick run
            default = field.get_default(
                call_default_factory=True, validated_data={"quick": self.quick}
            )
            if value == default:
                continue
            if isinstance(value, bool):
                yield f"--{flag}" if value else f"--no-{flag}"
            else:
                yield from (
                    f"--{flag}",
                    ",".join(value) if isinstance(value, tuple) else str(value),
                )


def panel(name: str) -> str:
    """The heading of a setting in `--help`."""
    extra: dict[str, Any] = Settings.model_fields[name].json_schema_extra  # type: ignore[assignment]
    return str(extra["panel"])


def not_default(values: dict[str, Any]) -> str:
    """The options of the command line for the settings in a `run.json` that are not the default.

    >>> not_default(Settings(all=True, seed=3).to_json())
    '--all --seed 3'
    """
    return shlex.join(Settings.from_json(values).words())


def settings_of(settings: Settings | None, changes: dict[str, Any]) -> Settings:
    """Settings with some of them changed.

    >>> settings_of(None, {"seed": 4}).seed
    4
    >>> quick = settings_of(Settings(seed=4), {"quick": True})
    >>> quick.max_tokens, quick.challenge, list(quick.words())
    (8000, False, ['--quick', '--seed', '4'])
    """
    explicit = () if settings is None else settings.model_fields_set
    return Settings(**{**{name: getattr(settings, name) for name in explicit}, **changes})
