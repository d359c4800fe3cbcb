"""The windows of a run: text, other stimuli, and the challenge set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.corpus.language import Language
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.fit_baselines import FittedBaselines
from headscope.measure.precision_check import TOKENS
from headscope.measure.rounds import Stopped, round_of, was_read
from headscope.models.generate import continue_window
from headscope.relations import all_stimuli
from headscope.relations.effects import effects_among, of_attention, prompt_kinds
from headscope.relations.head_type import ALL
from headscope.relations.reference_baselines import ReferenceBaseline, reference_baselines
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
CHALLENGE_SHARE = 0.75
"""The challenge set is read up to this share of the run's tokens."""
CHALLENGE_BESIDE = 8_000
"""Tokens of the challenge set beside the text; further ones are read in the place of text. Verdicts
need hard queries, which text has few of, and masses need few queries."""


@dataclass(frozen=True, eq=False)
class Text:
    """All windows of a run.

    ========= ============================================================================
    field     consumer, in the order of a run
    ========= ============================================================================
    first     baselines, the choice of precision; later surrogates
    stream    `headscope.measure.reading.read`, once: `first` again, then the rest of text
    natural   is the source of `stream`: its counts and notes are complete when that ends
    language  the record of the run, with a note if English baselines are not used
    synthetic baselines, the choice of precision, `read`; later surrogates and examples
    challenge baselines, `read`; later surrogates
    prompts   notes; its windows are among the synthetic ones
    ========= ============================================================================
    """

    natural: TextWindows
    """Natural text, with notes on it."""
    language: Language | None
    """The language that the user states, or that of `first`; None if no text is read."""
    stream: Iterator[Window]
    """The windows of text, none of them read by the model yet."""
    first: Sequence[Window]
    """The first windows of text, `BASELINE_TOKENS` or all."""
    synthetic: Sequence[Window]
    """Windows of the other stimuli."""
    prompts: Prompts
    """Windows of the prompts by which effects are measured; they are among the synthetic ones."""
    challenge: Sequence[Window]
    """Windows of the challenge set."""
    fixed_baselines: Mapping[str, ReferenceBaseline] | None
    """Fixed baselines by relation; None for text that is not known to be English."""
    reads_all: bool
    """True if no stimulus is stopped early."""

    @property
    def beginning(self) -> list[Window]:
        """Windows that are read in both precisions."""
        return list(_up_to(iter(self.first or self.synthetic), TOKENS))

    @property
    def surveyed(self) -> list[Window]:
        """Windows on which baselines are chosen.

        Early stopping may end a stimulus before its third round. Baselines are therefore chosen on
        windows of its first two rounds, which every run reads unless no head comes near a tag.
        """
        synthetic = [w for w in self.synthetic if self.reads_all or round_of(w) <= 1]
        return [*self.first, *synthetic]

    @property
    def others(self) -> list[Window]:
        """All windows but those of text: synthetic ones, and those of the challenge set."""
        return [*self.synthetic, *self.challenge]

    @property
    def expected_tokens(self) -> int:
        """Tokens of the text, as far as they are known before the model reads it."""
        tokens = self.natural.tokens
        return tokens if tokens < BASELINE_TOKENS else self.natural.max_tokens

    def most_tokens(self, stopped: Stopped) -> int:
        """Tokens that a reading takes at most."""
        others = sum(len(window) for window in self.others if was_read(window, stopped))
        return self.expected_tokens + others

    def needed_by(self, baselines: FittedBaselines) -> Text:
        """The windows to read: without a baseline nothing is compared on the challenge set."""
        return self if baselines.choices else replace(self, challenge=())


def prepare_text(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> Text:
    """Cut a run's texts into windows, and make those of the other stimuli.

    Raises:
        CorpusError: a corpus does not exist or is invalid.
    """
    # prompts of direct effects, and the challenge set, which takes the place of some text
    attention = of_attention(relations)
    length = settings.max_length
    kinds = prompt_kinds(effects_among(relations))
    prompts = prompt_windows(model.tokenizer, kinds, length, seed=settings.seed)
    challenge: list[Window] = []
    fixed_baselines: Mapping[str, ReferenceBaseline] | None = None
    if settings.challenge:
        most_tokens = int(settings.max_tokens * CHALLENGE_SHARE)
        challenge = challenge_windows(model.tokenizer, length, most_tokens)
    in_place_of_text = max(0, sum(map(len, challenge)) - CHALLENGE_BESIDE)
    max_tokens = settings.max_tokens - in_place_of_text
    # corpora are read only if a relation is measured on text
    is_read = any(TEXT.name in relation.stimuli for relation in attention)
    text_corpora = corpora if is_read else ()
    natural = natural_text(model, text_corpora, settings, max_tokens)
    synthetic = _stimulus_windows(model, attention, corpora, settings)
    # the beginning is kept, as baselines are fitted on it before the run reads it
    windows = iter(natural)
    first = list(_up_to(windows, BASELINE_TOKENS))

    # the text decides whether it is English; other text is read in place of the challenge set
    language = copy(natural.language)
    if text_corpora and not language.is_english:
        challenge, natural.max_tokens = [], settings.max_tokens
        windows = iter(natural)
        first += _up_to(windows, BASELINE_TOKENS - sum(map(len, first)))
    else:
        fixed_baselines = reference_baselines(model.attention_kind)
    return Text(
        natural=natural,
        language=language if text_corpora else None,
        stream=chain(first, windows),
        first=first,
        synthetic=[*synthetic, *prompts.windows],
        prompts=prompts,
        challenge=challenge,
        fixed_baselines=fixed_baselines,
        reads_all=settings.all,
    )


def _stimulus_windows(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> list[Window]:
    """The windows of the stimuli beside text that relations ask for.

    Raises:
        CorpusError: a stimulus that a named type needs has no windows.
    """
    config = StimulusConfig(
        model.tokenizer,
        model.vocabulary_size,
        min(settings.max_length, model.longest_window),
        settings.seed,
        documents_beside(settings.max_tokens),
        corpora,
        settings.haystack or (),
        model.longest_window,
    )
    # `--types all` includes types whose data the user may not have; a named type must not be lost
    # without a word
    names = {stimulus for relation in relations for stimulus in relation.stimuli}
    may_lack = ALL in (settings.types or ())
    windows: list[Window] = []
    for stimulus in all_stimuli().values():
        if stimulus.name not in names:
            continue
        of_stimulus = stimulus.windows(config)
        if stimulus.needs and not of_stimulus and not may_lack:
            raise CorpusError(stimulus.needs)
        windows += of_stimulus
    return windows


def natural_text(
    model: Model, corpora: Sequence[str | Path], settings: Settings, max_tokens: int
) -> TextWindows:
    """The windows of natural text; some tokens of the settings may be of the challenge set.

    Raises:
        CorpusError: a corpus does not exist or is invalid.
    """
    length = min(settings.max_length, model.longest_window)
    # generated text needs room within a window
    generated = settings.generate
    if generated and (settings.chat or length - generated < LEAST_TEXT):
        raise CorpusError(
            f"--generate {generated} takes no --chat, and needs a --max-length of at least "
            f"{generated + LEAST_TEXT} (here {length})"
        )
    return TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=max_tokens,
        max_length=length - generated,
        seed=settings.seed,
        max_documents=settings.documents,
        continue_window=partial(continue_window, model, count=generated) if generated else None,
        language=settings.language,
    )


def _up_to(windows: Iterator[Window], tokens: int) -> Iterator[Window]:
    while tokens > 0 and (window := next(windows, None)) is not None:
        tokens -= len(window)
        yield window
