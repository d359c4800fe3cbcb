"""Public Python functions with arguments of every wrong kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.errors import HeadscopeError
from headscope.studies.study_table import STUDIES, StudyRow
from tests.fuzz.desk import Desk, Fault, odd_message
from tests.helpers.studies import arguments, call_with
from tests.limits import Hang

PATTERN = np.tril(np.ones((1, 1, 3, 3))) / np.arange(1, 4)[:, None]
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None, "True": lambda: True, "-1": lambda: -1, "0": lambda: 0, "5": lambda: 5,
    "2.5": lambda: 2.5, "nan": lambda: float("nan"), "inf": lambda: float("inf"),
    "huge number": lambda: 10**5000, "1j": lambda: 1j, "decimal": lambda: Decimal(5),
    "no text": lambda: "", "text": lambda: "a", "blank": lambda: " ", "bytes": lambda: b"x",
    "escapes": lambda: "\x1b[31mred", "NUL": lambda: "a\0b", "half": lambda: "\ud800",
    "huge text": lambda: "x y " * 50_000, "no list": list, "list": lambda: [None], "ids": lambda: [1, 2, 3],
    "texts": lambda: ["a", "b"], "deep list": lambda: [[[["a"]]]], "tuple": lambda: (1, "a"), "dict": dict,
    "mapping": lambda: {"a": 1}, "set": lambda: {1.5}, "object": object, "class": lambda: int,
    "ragged": lambda: [[[[1.0], [1.0, 2.0]]]], "layers of words": lambda: (np.full((1, 1, 3, 3), "a"),),
    "function": lambda: len, "generator": lambda: (x for x in [3]),
    "tensor": lambda: torch.zeros(2, 3), "number tensor": lambda: torch.tensor(5),
    "complex tensor": lambda: torch.zeros(1, 1, 3, 3, dtype=torch.complex64),
    "empty array": lambda: np.zeros((0, 0, 3, 3)), "words array": lambda: np.array(["a"]),
    "nan array": lambda: np.full((1, 1, 3, 3), np.nan), "ones": lambda: np.ones((1, 1, 3, 3)),
    "missing": lambda: Path("missing"), "folder": lambda: Path("folder"), "file": lambda: "notes.rst",
    "pipe": lambda: "pipe", "loop": lambda: "loop", "up": lambda: "..", "long": lambda: "x" * 5000,
    "wide": lambda: "wide.txt", "run of nothing": lambda: "runs", "relation": lambda: "positional/none",
}  # fmt: skip
"""Bad values, each made anew."""

WORDS = {"text", "escapes", "missing", "folder", "file", "pipe", "loop", "up", "wide", "relation",
         "run of nothing"}  # fmt: skip
NAMED = WORDS | {"0", "5", "ids", "texts", "tuple", "huge text", "long"}
"""Names of missing models: the table of a sweep states them."""
SOUND: dict[str, set[str]] = {
    "seed": {"0", "5"}, "max_tokens": {"5"}, "settings": {"None"},
    "device_map": {"None"}, "windows": {"5"}, "queries": {"5"}, "sequences": {"5"},
    "context": {"None", "5"}, "revision": {"None"}, "types": {"None"}, "relations": {"None"},
    "languages": {"None"}, "documents": {"None", "5"}, "corpus": {"None", "no list", "up"}, "pairs": {"no list"}, "windows of score_patterns": {"None", "list"}, "patterns": {"class"}, "run of prune": {"None"}, "source": {"None"}, "file of sweep": {"None"}, "address": {"None"},
    "answer": {"None", "text", "blank"}, "wrong": {"None", "text", "blank"},
    "edges": {"0", "5"}, "clean": WORDS | {"NUL"}, "corrupt": WORDS | {"NUL"},
    "bridge": {"None"}, "corpus of hooks": {"None"}, "corpus of why": {"None"}, "workers": {"None", "0", "5"}, "models of sweep": NAMED, "revisions of sweep": NAMED | {"None", "no list"},
    "max_tokens of sweep": {"None", "5"}, "seed of sweep": {"None", "0", "5"},
    "corpora of sweep": NAMED - {"0", "5", "ids", "tuple"} | {"None", "no list"},
    "document": {"None"}, "tokens of window_of_tokens": {"texts"},
    "query": {"ids"}, "key": {"ids"}, "owner": {"None", "ids"}, "type of relation": WORDS | {"half", "huge text", "long"},
    "threshold": {"tuple"}, "name of relation": WORDS | {"half", "huge text", "long"}, "control": {"function", "class"},
    "with_tally": {"True"}, "overwrite": {"True"}, "light": {"True"}, "mixing": {"True"}, "check": {"True"},
    "measure": {"True"}, "null_model": {"True"}, "examples": {"True"}, "on_message": {"function", "class"}, "progress": {"function", "class", "True"}, "bos": {"None", "text"}, "model of verify": {"None"},
    "text": WORDS - {"missing", "folder"} | {"NUL", "blank"},
    "name": WORDS - {"missing", "folder"} | {"half", "huge text", "long"},
    "folder of save": {"text", "missing", "escapes", "half", "relation", "generator"},
}  # fmt: skip
"""Sound values of an argument of that name; every other value must be refused."""


@dataclass(frozen=True)
class Call:
    """A function with arguments that are sound."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    more: tuple[str, ...] = ()
    """Arguments that are left out of the sound call, and tried as well."""

    def parameters(self) -> tuple[str, ...]:
        return (*self.arguments, *self.more)


def calls(desk: Desk) -> list[Call]:
    """Every public function; what is read is small."""
    run, text = hs.load(desk.run, with_tally=True), {"corpus": "keys.conllu", "max_tokens": 50}
    on_model = {"model": "mini", **text}
    patterns = {"patterns": [PATTERN], "windows": None, "tokens": [["<s>", "a", "b"]]}
    shared = ("seed", "progress", "device", "revision")
    calls = [
        Call("read_corpus", hs.read_corpus, {"path": "keys.conllu"}),
        Call("load", hs.load, {"folder": desk.run}, ("with_tally",)),
        Call("show", hs.show, {"model": "mini", "head": "0.0", "text": "a"}, ("device", "revision")),
        Call("compare", lambda first: hs.compare(first, desk.run), {"first": desk.given}),
        Call("anatomy", hs.anatomy, {"model": "mini"}, ("context", "revision")),
        Call("classify", hs.classify, on_model,
             ("settings", "relations", "out", "overwrite", "progress", "on_message", "types", "max_length", "bos",
              "null_model", "examples", "engine", "dtype", "device_map", "colour", *shared)),
        Call("sweep", hs.sweep, {"models": ["mini"], "out": "sweep", "corpora": ["keys.conllu"], "max_tokens": 50},
             ("file", "workers", "address", "progress", "on_message", "revisions", "colour", "seed", "types")),
        Call("languages", hs.languages, {"model": "mini", "corpus": ["de_keys-ud-test.conllu", "en_keys-ud-test.conllu"], "out": "spoken", "max_tokens": 50},
             ("languages", "progress", "on_message", "colour", "seed", "types", "revision", "documents")),
        Call("gallery", lambda first, **how: hs.gallery(first, **how), {"first": desk.given, "out": "new"}, ("light", "overwrite", "progress")),
        Call("headvis", hs.headvis, {"run": run, "out": "new", "corpus": "keys.conllu", "sequences": 9},
             ("heads", "max_length", "overwrite", "progress", "device", "source")),
        Call("emergence", hs.emergence, {"sweep": "folder"}),
        Call("explain", hs.explain, {"model": "mini", "corpus": "keys.conllu", "windows": 8},
             ("features", "seed", "progress", "device", "revision")),
        Call("function_vectors", hs.function_vectors, {"model": "mini", "tasks": "past", "prompts": 6},
             ("shots", *shared)),
        Call("verify", hs.verify, {"run": run, "model": "distilgpt2"}),
        Call("score_patterns", hs.score_patterns, patterns,
             ("types", "relations", "name", "seed", "out", "overwrite")),
        Call("windows", hs.windows, {"corpus": "keys.conllu", "tokenizer": AutoTokenizer.from_pretrained(mini_folder())},
             ("max_length", "max_tokens", "seed")),
        Call("window_of_tokens", hs.window_of_tokens, {"tokens": ["<s>", "a"]}, ("document",)),
        Call("pairs", hs.pairs, {"query": [1, 2, 3], "key": [0, 1, 1]}, ("owner",)),
        Call("register", hs.register, {}, ("head_type",)),
        Call("relation", hs.relation, {"type": "a", "name": "b"}, ("control", "threshold", "stimuli")),
        Call("why", hs.why, {"model": run, "heads": ["0.0"]}, ("corpus", "progress")),
        Call("patch", hs.patch, {"run": run, "clean": "x1z", "corrupt": "x2z", "heads": "L0H0", "edges": 0},
             ("answer", "wrong", "progress", "device", "source")),
        Call("Run.hooks", run.hooks, {"heads": "L0H0"}, ("corpus", "bridge")),
        Call("Run.why", run.why, {"head": "0.0"}),
        Call("Run.unsure", run.unsure, {"relation": "positional/offset-1"}),
        Call("Run.show", run.show, {"head": "0.0", "text": "a"}, ("device",)),
        Call("Run.ablate", run.ablate, {}, ("heads", "how", "seed", "device")),
        Call("Run.save", run.save, {"folder": "new"}, ("overwrite",)),
    ]  # fmt: skip
    values = {"model": "mini", "run": run, "head": "0.0", "windows": 8, **text}
    named = {call.name for call in calls}
    return calls + [
        _call_of(study, call_with(study, values)) for study in STUDIES if study.name not in named
    ]


def _call_of(study: StudyRow, sound: dict[str, Any]) -> Call:
    """A call of a study as its row tells it, with all that its function takes besides."""
    more = tuple(name for name in arguments(study) if name not in sound)
    return Call(study.name, getattr(hs, study.name), sound, more)


def attempts(desk: Desk) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each argument of each function with each value that is none of its own."""
    for call in calls(desk):
        for parameter in call.parameters():
            own = f"{parameter} of {call.name.removeprefix('Run.')}"
            fits = SOUND.get(own, SOUND.get(parameter, set()))
            if parameter == "out":
                fits = SOUND["folder of save"] | {"None"}
            for label, make in VALUES.items():
                if label not in fits:
                    attempt = _bound(call, parameter, make)
                    attempt.is_default = label == "None" and _is_none(call.function, parameter)
                    yield f"{call.name}({parameter}={label})", attempt


def _is_none(function: Callable[..., Any], parameter: str) -> bool:
    """True if None is the default of an argument or of a setting of a run."""
    known = inspect.signature(function).parameters
    default = known[parameter].default if parameter in known else getattr(hs.Settings, parameter, 0)
    return default is None


def _bound(call: Call, parameter: str, make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: call.function(**{**call.arguments, parameter: make()})


def try_call(desk: Desk, name: str, attempt: Callable[[], Any]) -> Fault | None:
    """Fault of a bad call, which should be refused."""
    wrong = ""
    with desk.guarded() as changed:
        try:
            attempt()
            if getattr(attempt, "is_default", False):
                return None
            wrong = "was taken as if it were sound"
        except HeadscopeError as error:
            wrong = odd_message(str(error))
        except Hang as hang:
            wrong = str(hang)
        except BaseException as error:
            wrong = f"{type(error).__name__}: {error!s:.200}"
    wrong = "; ".join([wrong, *changed][not wrong :])
    return Fault(name, wrong) if wrong else None
