"""Every type of language model that transformers maps, built tiny and compared with its own eager
attention.

`python -m tests.models.walk` writes what comes out, of some types only if they are named; the page
of layouts is made from it.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto as auto

from headscope.attention_kind import CAUSAL
from headscope.errors import ModelError
from headscope.models.families import check_family
from headscope.models.layout.dimensions import attention_kind
from headscope.models.load import load_model
from tests.models.every_layout import attention_of, check_batches, own_network, patterns, save_tiny
from tests.models.tiny import tiny_config

OUTCOMES = Path(__file__).parents[2] / "docs" / "reference" / "layouts.csv"
TYPES = tuple(
    sorted({*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES})
)
CLOSE = 1e-5
TIMES_ROUNDING = 4
"""Differences above `CLOSE` are rounding up to so many times the model's own."""
LARGEST = 30_000_000
"""Parameters of a model that counts as tiny."""
SHORTEST = 40
"""Tokens of the text on which patterns are compared."""
REFUSED, NOT_BUILT, WRONG = "refused", "not built", "wrong"


@dataclass(frozen=True)
class Outcome:
    """What headscope does with a tiny model of a type."""

    model_type: str
    result: str
    """The engine that reads it, or `refused`, `not built` or `wrong`."""
    kind: str = ""
    """Causal or bidirectional."""
    reason: str = ""
    """Why it is refused, or not built."""


def outcome_of(model_type: str, folder: Path) -> Outcome:
    """Build a tiny model of a type, load it, and compare it with its own eager attention."""
    try:
        config = tiny_config(model_type)
        check_family("", config.to_dict())
        _check_size(config)
        save_tiny(model_type, byte_tokenizer(), folder)
    except ModelError as error:
        return Outcome(model_type, REFUSED, reason=_plain(error, folder))
    except Exception as error:  # a tiny configuration may fit no model
        line = (str(error).strip() or "no message").splitlines()[0]
        return Outcome(model_type, NOT_BUILT, reason=f"{type(error).__name__}: {line}"[:160])
    try:
        model = load_model(str(folder))
    except ModelError as error:
        return Outcome(model_type, REFUSED, reason=_plain(error, folder))
    except Exception as error:  # no sentence for the user
        return Outcome(model_type, WRONG, reason=f"{type(error).__name__}: {error}"[:160])
    kind = model.attention_kind.name
    try:
        difference = _difference(model, own_network(folder, model_type), model_type)
        check_batches(model)
    except Exception as error:  # whatever a model's code raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Outcome(model_type, WRONG, kind, reason[:160])
    # large scores round more, and on each processor otherwise
    if difference >= CLOSE and difference >= TIMES_ROUNDING * _rounding(model, folder, model_type):
        return Outcome(model_type, WRONG, kind, f"differs by {difference:.2g}")
    return Outcome(model_type, model.engine.name, kind)


def _check_size(config: Any) -> None:
    kind = auto.AutoModelForCausalLM
    if attention_kind(config) != CAUSAL:
        kind = auto.AutoModelForMaskedLM
    with torch.device("meta"):
        network = kind.from_config(config, trust_remote_code=False)
    size = sum(weight.numel() for weight in network.parameters())
    if size > LARGEST:
        raise ValueError(f"the tiny model has {size:,} parameters")


def _difference(model: Any, network: Any, model_type: str) -> float:
    """The largest difference of a probability from the model's own."""
    tokens = _tokens(model)
    seen, own = patterns(model, tokens), attention_of(network, tokens, model_type)
    own = own or attention_of(network, tokens, model_type)  # BigBird returns none at first
    if [each.shape for each in seen] != [each.shape for each in own]:
        raise AssertionError(f"{len(seen)} patterns, and {len(own)} of its own")
    return max(float((a - b).abs().max()) for a, b in zip(seen, own, strict=True))


def _rounding(model: Any, folder: Path, model_type: str) -> float:
    """The largest difference of a probability of the model itself from that in double precision."""
    tokens = _tokens(model)
    single = attention_of(own_network(folder, model_type), tokens, model_type)
    double = attention_of(own_network(folder, model_type).double(), tokens, model_type)
    return max(float((a - b).abs().max()) for a, b in zip(single, double, strict=True))


def _tokens(model: Any) -> torch.Tensor:
    """Two texts of random tokens."""
    length = min(model.context, 96)
    if length < SHORTEST:
        raise AssertionError(f"context of {length} tokens")
    return torch.randint(1, 300, (2, length), generator=torch.Generator().manual_seed(1))


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with a token that begins and ends texts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<|endoftext|>", *alphabet]
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=words[0], eos_token=words[0])


def _plain(error: ModelError, folder: Path) -> str:
    """The sentence of an error without the model's name."""
    sentence = str(error).replace(str(folder), "").replace(folder.name, "")
    return " ".join(sentence.removeprefix(": ").split())


def walk(types: Iterable[str]) -> list[Outcome]:
    """The outcome of each type."""
    outcomes = []
    for model_type in types:
        with tempfile.TemporaryDirectory() as folder:
            outcome = outcome_of(model_type, Path(folder))
        outcomes.append(outcome)
        print(*asdict(outcome).values(), sep=" | ", file=sys.stderr, flush=True)
    return outcomes


def stored() -> Mapping[str, Outcome]:
    """The outcomes that were written, by type."""
    with OUTCOMES.open(encoding="utf-8", newline="") as lines:
        return {row["model_type"]: Outcome(**row) for row in csv.DictReader(lines)}


def store(outcomes: Iterable[Outcome]) -> None:
    """Write outcomes in the order of the types."""
    with OUTCOMES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(Outcome)], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted(outcomes, key=lambda row: row.model_type))


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}: {len(TYPES)} types", file=sys.stderr)
    asked = sys.argv[1:] or TYPES
    kept = [row for row in stored().values() if row.model_type in {*TYPES} - {*asked}]
    store([*kept, *walk(asked)])
