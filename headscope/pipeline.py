"""The main job, from a model's name to tagged heads, on one screen."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.corpus.plan import TextWindows, plan_pairs, plan_repeats
from headscope.corpus.window import Window
from headscope.data import shipped_corpora
from headscope.errors import HeadscopeError
from headscope.judge import judge
from headscope.measurer import InProcess, Measurer
from headscope.relations import TYPES, check_relations, relations_of
from headscope.relations.relation import Relation
from headscope.run import Run
from headscope.store import check_free

if TYPE_CHECKING:
    from headscope.models import Model

MAX_TOKENS = 40_000
MAX_LENGTH = 256
"""Longest window in tokens: long enough for sentences and their antecedents, short enough for
the quadratic part of attention to stay small."""

Progress = Callable[[int, int], None]


def classify(
    model: str,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    types: Sequence[str] | None = None,
    relations: Sequence[Relation] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    max_tokens: int = MAX_TOKENS,
    max_length: int = MAX_LENGTH,
    twin: bool = True,
    examples: bool = True,
    seed: int = 0,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    bos: str | None = None,
    engine: str = "auto",
    progress: Progress = lambda done, total: None,
    measurer: Measurer | None = None,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    Args:
        model: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name like `gpt2`.
        corpus: files or folders of CoNLL-U or plain text; what ships with headscope when empty.
        types: head types to score, all when None.
        relations: the relations to score instead of the table's, for types of one's own.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already.
        max_tokens: tokens of text to read, to the end of a window; synthetic stimuli come on top.
        max_length: longest window in tokens, at most the model's context.
        twin: also run the model with its attention matrices shuffled, on a quarter of the text, and
            ask of each tag that it beats what that shows by chance.
        examples: read a sample of the text again, and keep the patterns of the tagged heads' best
            and ordinary queries.
        seed: seeds the choice of files, the shuffling, random tokens, controls and the bootstrap.
        revision: branch, tag or commit on the hub, e.g. Pythia's `step1000`.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.
        dtype: `float32`, `bfloat16` or `float16`.
        bos: the token to put before each document; the tokenizer's own when None.
        engine: `fused` never builds a pattern; `lens` hooks TransformerLens' patterns; `auto` is
            fused where the model allows it. Both give the same sums.
        progress: called with the tokens done and the tokens in all.
        measurer: what loads and reads the model; this process when None.

    Raises:
        HeadscopeError: the model, the corpus, the types or the folder are not usable; each kind
            has its own subclass in `headscope.errors`.
    """
    # importing a model library takes seconds: not before it is needed
    from headscope.examples import Sample
    from headscope.twin import Share

    measurer = measurer or InProcess()
    relations = relations_of(types) if relations is None else check_relations(relations)
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus) or shipped_corpora()
    _check_numbers(max_tokens, max_length, seed)
    if out is not None:
        check_free(Path(out), overwrite=overwrite)
    clock = _Clock()
    loaded = measurer.load(
        model, revision=revision, device=device, dtype=dtype, bos=bos, engine=engine
    )
    length = min(max_length, loaded.context)
    clock.lap("load")
    text, synthetic = windows_of(
        loaded, relations, corpora, max_tokens=max_tokens, max_length=length, seed=seed
    )
    sample = Sample(seed=seed)
    advance = _Count(progress, text, sum(map(len, synthetic)))
    tally = measurer.measure(
        sample.watch(text), synthetic, relations, seed=seed,
        share=Share(seed=seed) if twin else lambda windows: set(), progress=advance.of_model,
    )  # fmt: skip
    clock.lap("measure")
    chance = None
    if twin:
        advance.again = measurer.again
        chance = measurer.measure_twin(relations, seed=seed, progress=advance.of_twin)
        clock.lap("twin")
    settings = {
        "max_tokens": max_tokens,
        "max_length": length,
        "seed": seed,
        "twin": twin,
        "bos": bos,
        "engine": engine,
    }
    info = _info(loaded, relations, corpora, text, settings)
    group = loaded.heads // loaded.key_value_heads
    run = judge(tally, relations, seed=seed, info=info, kv_group_size=group, twin=chance)
    clock.lap("judge")
    if examples:
        windows = [*sample.windows, *synthetic]
        found = measurer.find_examples(
            windows, relations, run.evidence, seed=seed, progress=advance.of_examples
        )
        run = replace(run, examples=tuple(found))
        clock.lap("examples")
    run.info["provenance"] |= {
        "tokens": text.tokens + sum(map(len, synthetic)),
        "seconds": clock.laps,
    }
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def windows_of(
    model: Model, relations: Sequence[Relation], corpora: Sequence[str | Path], *,
    max_tokens: int, max_length: int, seed: int,
) -> tuple[TextWindows, list[Window]]:  # fmt: skip
    """The windows of text that a run reads, and those of the other stimuli.

    Raises:
        CorpusError: a corpus does not exist, or is none.
    """
    stimuli = {stimulus for relation in relations for stimulus in relation.stimuli}
    text = TextWindows(
        corpora if "text" in stimuli else (), model.tokenizer,
        max_tokens=max_tokens, max_length=max_length, seed=seed,
    )  # fmt: skip
    synthetic: list[Window] = []
    if "repeat" in stimuli:
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        synthetic += plan_repeats(vocabulary, model.tokenizer, max_length=max_length, seed=seed)
    if "pairs" in stimuli:
        synthetic += plan_pairs(model.tokenizer, max_length=max_length, seed=seed)
    return text, synthetic


def _info(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    text: TextWindows,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """What `run.json` says of the input."""
    return {
        "model": {name: getattr(model, name) for name in _MODEL_FACTS},
        "types": sorted({relation.type for relation in relations}),
        "bos": model.tokenizer.bos_string,
        "corpora": {"asked": [str(path) for path in corpora], "files": text.files},
        "engine": model.engine.name,
        "command": _command(model, relations, corpora, settings),
        "notes": [*model.notes, *text.notes],
        "settings": settings,
    }


def _command(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: dict[str, Any],
) -> str:
    """The command that repeats the run; relations of a user's own need their code too."""
    words = ["headscope", "classify", model.name]
    if list(corpora) != shipped_corpora():
        words += [word for path in corpora for word in ("--corpus", str(path))]
    types = list(dict.fromkeys(relation.type for relation in relations))
    if types != list(TYPES) and set(types) <= set(TYPES):
        words += ["--types", ",".join(types)]
    for name in ("max_tokens", "max_length", "seed"):
        words += [f"--{name.replace('_', '-')}", str(settings[name])]
    words += [] if settings["twin"] else ["--no-twin"]
    words += ["--revision", model.revision] if model.revision else []
    words += ["--dtype", model.dtype] if model.dtype != "float32" else []
    words += ["--bos", settings["bos"]] if settings["bos"] else []
    words += ["--engine", settings["engine"]] if settings["engine"] != "auto" else []
    return shlex.join(words)


_MODEL_FACTS = (
    "name",
    "revision",
    "architecture",
    "layers",
    "heads",
    "key_value_heads",
    "context",
    "device",
    "dtype",
    "weights_sha256",
)


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = round(now - self._last, 2), now


class _Count:
    """Turns "so many more tokens" into "so many of all"; how many come is known at the end."""

    def __init__(self, progress: Progress, text: TextWindows, synthetic: int) -> None:
        self.again = 0
        self._progress, self._text, self._synthetic, self._done = progress, text, synthetic, 0
        self.of_model(0)

    def of_model(self, tokens: int) -> None:
        self._done += tokens
        self._progress(self._done, self._text.max_tokens + self._synthetic)

    def of_twin(self, tokens: int) -> None:
        self._done += tokens
        self._progress(self._done, self._text.tokens + self._synthetic + self.again)

    def of_examples(self, done: int, total: int) -> None:
        self._progress(self._done + done, self._done + total)


def _check_numbers(max_tokens: int, max_length: int, seed: int) -> None:
    if max_tokens < 1:
        raise HeadscopeError(f"max_tokens is {max_tokens}, but a run reads at least 1 token")
    if seed < 0:
        raise HeadscopeError(f"seed is {seed}, but seeds are 0 or more")
    if max_length < 8:
        raise HeadscopeError(f"max_length is {max_length}; a window of 8 tokens is the shortest")
