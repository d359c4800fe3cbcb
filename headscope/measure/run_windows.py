"""The windows of a run: text, other stimuli, and the challenge set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.corpus.languages import foreign_languages
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.fit_baselines import FittedBaselines, fit_baselines
from headscope.measure.plan import round_of, was_read
from headscope.measure.precision_check import TOKENS
from headscope.measure.tally import StoppedEarly
from headscope.models.generate import continue_window
from headscope.relations import all_stimuli
from headscope.relations.effects import Effect, prompt_kinds
from headscope.relations.head_type import ALL
from headscope.relations.relation import Relation
from headscope.settings import Settings
from headscope.stimuli.challenge import challenge_windows
from headscope.stimuli.natural_text import TEXT, TextWindows
from headscope.stimuli.prompts import Prompts, prompt_windows
from headscope.stimuli.stimulus import LEAST_TEXT, StimulusConfig, documents_beside

if TYPE_CHECKING:
    from headscope.models.model import Model

BASELINE_TOKENS = 200_000
"""Tokens of a run's text by which baselines are fitted; they are in memory at once."""
CHALLENGE_SHARE = 2
"""The challenge set is read up to the run's tokens divided by this number."""


@dataclass(frozen=True, eq=False)
class RunWindows:
    """All windows of a run, and the baselines that were fitted on them."""

    text: TextWindows
    stream: Iterator[Window]
    """The windows of text, none of them read by the model yet."""
    first: Sequence[Window]
    """The first windows of text, `BASELINE_TOKENS` or all."""
    synthetic: Sequence[Window]
    """Windows of the other stimuli."""
    prompts: Prompts
    """Windows of the prompts by which effects are measured; they are among the synthetic ones."""
    baselines: FittedBaselines

    @property
    def beginning(self) -> list[Window]:
        """Windows that are read in both precisions."""
        return list(_up_to(iter(self.first or self.synthetic), TOKENS))

    @property
    def others(self) -> list[Window]:
        """All windows but those of text: synthetic ones, and those of the challenge set."""
        return [*self.synthetic, *self.baselines.challenge]

    @property
    def expected_tokens(self) -> int:
        """Tokens of the text, as far as they are known before the model reads it."""
        return self.text.tokens if self.text.tokens < BASELINE_TOKENS else self.text.max_tokens

    def most_tokens(self, stopped: Mapping[str, StoppedEarly]) -> int:
        """Tokens that a reading takes at most."""
        text = self.expected_tokens
        others = sum(len(window) for window in self.others if was_read(window, stopped))
        return text + others


def run_windows(
    model: Model,
    relations: Sequence[Relation],
    effects: Sequence[Effect],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> RunWindows:
    """Plan a run's windows, and fit the baselines on their beginning.

    Raises:
        CorpusError: a corpus does not exist or is invalid.
    """
    text, synthetic = windows_of(model, relations, corpora, settings)
    length, seed = settings.max_length, settings.seed
    prompts = prompt_windows(model.tokenizer, prompt_kinds(effects), length, seed=seed)
    synthetic += prompts.windows
    # what may be left out of a reading must not be counted on, but where no head comes near a tag
    first = [window for window in synthetic if settings.all or round_of(window) <= 1]
    read, stream, baselines = _fit_baselines(text, first, relations, model, settings)
    return RunWindows(text, chain(read, stream), read, synthetic, prompts, baselines)


def windows_of(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> tuple[TextWindows, list[Window]]:
    """The windows of text that a run reads, and those of the stimuli that relations ask for.

    Raises:
        CorpusError: a corpus does not exist or is invalid.
    """
    stimuli = {stimulus for relation in relations for stimulus in relation.stimuli}
    length, seed = min(settings.max_length, model.longest_window), settings.seed
    generated = settings.generate
    if generated and (settings.chat or length - generated < LEAST_TEXT):
        raise CorpusError(
            f"--generate {generated} takes no --chat, and needs a --max-length of at least "
            f"{generated + LEAST_TEXT} (here {length})"
        )
    text = TextWindows(
        corpora if TEXT.name in stimuli else (),
        model.tokenizer,
        max_tokens=settings.max_tokens,
        max_length=length - generated,
        seed=seed,
        max_documents=settings.documents,
        continue_window=partial(continue_window, model, count=generated) if generated else None,
    )
    count = documents_beside(settings.max_tokens)
    config = StimulusConfig(model.tokenizer, model.vocabulary_size, length, seed, count, corpora)
    others: list[Window] = []
    for row in all_stimuli().values():
        windows = row.windows(config) if row.name in stimuli else []
        if row.needs and row.name in stimuli and not windows and ALL not in (settings.types or ()):
            raise CorpusError(row.needs)
        others += windows
    return text, others


def _fit_baselines(
    text: TextWindows,
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    model: Model,
    settings: Settings,
) -> tuple[list[Window], Iterator[Window], FittedBaselines]:
    stream, tokens = iter(text), settings.max_tokens
    first = list(_up_to(stream, BASELINE_TOKENS))
    challenge = []
    if settings.challenge and not foreign_languages(text.paths.values()):
        challenge = challenge_windows(
            model.tokenizer, settings.max_length, tokens // CHALLENGE_SHARE
        )
    baselines = fit_baselines([*first, *synthetic], relations, challenge)
    return first, stream, baselines


def _up_to(windows: Iterator[Window], tokens: int) -> Iterator[Window]:
    while tokens > 0 and (window := next(windows, None)) is not None:
        tokens -= len(window)
        yield window
