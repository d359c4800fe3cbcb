"""All habits of the zoo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headscope.corpus.window import Window
from headscope.studies.validation.zoo.families import families
from headscope.studies.validation.zoo.habit import Habit
from headscope.studies.validation.zoo.odd import odd


def habits(windows: Sequence[Window]) -> tuple[Habit, ...]:
    """Every habit; what is rare is so in these windows.

    >>> [habit.name for habit in habits([])][:3]
    ['nearest VERB', 'nearest NOUN', 'nearest PROPN']
    """
    frequency = Counter(
        lemma
        for window in windows
        if window.stimulus == "text"
        for lemma in window.words.lemma.tolist()
    )
    return (*families(), *odd(frequency))
