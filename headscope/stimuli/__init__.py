"""The table of stimuli. A new one is a file with its row, imported and named here."""

from __future__ import annotations

from collections.abc import Collection

from headscope.corpus.window import Window
from headscope.stimuli import built, facts, prompts, repeat, text, word_pairs, words
from headscope.stimuli.stimulus import Stimulus, StimulusConfig

STIMULI: dict[str, Stimulus] = {
    row.name: row
    for row in (
        text.TEXT,
        repeat.REPEAT,
        word_pairs.PAIRS,
        facts.FACTS,
        words.WORDS,
        text.CONTESTED_TEXT,
        text.EXCERPT,
        built.BUILT,
        prompts.PROMPTS,
    )
}
"""All stimuli by name, in the order in which they are read."""

FOR_RELATIONS = tuple(row.name for row in STIMULI.values() if row.for_relations)
"""Names of the stimuli that any relation may ask for."""


def build_stimuli(names: Collection[str], config: StimulusConfig) -> list[Window]:
    """The windows of these stimuli, natural text left out, one stimulus after the other."""
    windows: list[Window] = []
    for row in STIMULI.values():
        if row.name in names and row.build is not None:
            windows += row.build(config)
    return windows
