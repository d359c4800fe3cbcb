"""The main job, from a model's name to tagged heads, on one screen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.corpus.plan import TextWindows, plan_pairs, plan_repeats
from headscope.corpus.window import Window
from headscope.data import shipped_corpora
from headscope.errors import HeadscopeError
from headscope.facts import describe_input
from headscope.judge import judge, versions
from headscope.measurer import InProcess, Measurer, batch_tokens_on
from headscope.relations import check_relations, relations_of
from headscope.relations.relation import Relation
from headscope.resume import resume, run_facts
from headscope.run import Run
from headscope.state import EVERY, State
from headscope.store import check_free, save_by
from headscope.tally import Pass, Tally
from headscope.workplace import STATE, workplace

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
    device_map: str | None = None,
    keep_every: float = EVERY,
    progress: Progress = lambda done, total: None,
    tell: Callable[[str], None] = lambda line: None,
    measurer: Measurer | None = None,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    With `out` the sums so far are kept beside that folder, and a run that was broken off goes on
    from there when it is called again in the same way; it ends with the same numbers.

    Args:
        model: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name like `gpt2`.
        corpus: files or folders of CoNLL-U or plain text; what ships with headscope when empty.
        types: head types to score, all when None.
        relations: the relations to score instead of the table's, for types of one's own.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already, and start anew where sums of another run
            were kept.
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
        device_map: `auto` spreads a model that is too large for one device over all of them.
        keep_every: seconds between two writings of the sums so far.
        progress: called with the tokens done and the tokens in all.
        tell: called with a line for the user, e.g. that a run goes on.
        measurer: what loads and reads the model; this process when None.

    Raises:
        RunStoppedError: a KeyboardInterrupt, when sums were kept.
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
    with _place(out) as work:
        if out is not None and work is not None:
            check_free(Path(out), overwrite=overwrite or (work / STATE).is_file())
        clock = _Clock()
        loaded = measurer.load(
            model, revision=revision, device=device, dtype=dtype, bos=bos, engine=engine,
            device_map=device_map,
        )  # fmt: skip
        if twin:
            measurer.check_twin()
        length = min(max_length, loaded.context)
        clock.lap("load")
        text, synthetic = windows_of(
            loaded, relations, corpora, max_tokens=max_tokens, max_length=length, seed=seed
        )
        settings = {
            "max_tokens": max_tokens,
            "max_length": length,
            "batch_tokens": batch_tokens_on(loaded.device),
            "seed": seed,
            "twin": twin,
            "bos": bos,
            "engine": engine,
            "device_map": device_map,
        }
        info = describe_input(loaded, relations, corpora, settings)
        state = _state(work, loaded, relations, info, text)
        state.every = keep_every if measurer.resumes else math.inf
        if out is not None and measurer.resumes:
            overwrite = resume(state, Path(out), overwrite=overwrite, tell=tell)
        sample = Sample(seed=seed)
        advance = _Count(progress, text, sum(map(len, synthetic)))
        tally = measurer.measure(
            sample.watch(text), synthetic, relations, seed=seed,
            share=Share(seed=seed) if twin else lambda windows: set(),
            progress=advance.of_model, so_far=state.model, keep=state.keep,
        )  # fmt: skip
        clock.lap("measure")
        chance = None
        if twin:
            advance.again = measurer.again
            chance = measurer.measure_twin(
                relations, seed=seed, progress=advance.of_twin, so_far=state.twin, keep=state.keep
            )
            clock.lap("twin")
        info["corpora"]["files"] = text.files
        info["notes"] = [*loaded.notes, *text.notes, *_halved(state)]
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
        if out is not None and work is not None:
            save_by(work, run, Path(out), overwrite=overwrite)
            state.remove()
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


def _place(out: str | Path | None) -> AbstractContextManager[Path | None]:
    """Where the run's unfinished files lie; nowhere when it is not written."""
    return nullcontext() if out is None else workplace(Path(out))


def _state(
    work: Path | None,
    model: Model,
    relations: Sequence[Relation],
    info: dict[str, Any],
    text: TextWindows,
) -> State:
    """A run of which nothing is done yet."""
    rules = {relation.id: relation.rule for relation in relations}
    model_pass, twin_pass = (
        Pass(Tally.zeros(tuple(rules), model.layers, model.heads)) for _ in range(2)
    )
    return State(work, run_facts(info, rules, versions()), text, model_pass, twin_pass)


def _halved(state: State) -> list[str]:
    count = state.model.halved + state.twin.halved
    note = f"{count} batches did not fit into memory and were read in smaller ones"
    return [note] if count else []


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
