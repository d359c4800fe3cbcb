"""Pairs of prompts that differ in the person of the last pronoun: `I work, you work, he`.

After "he" or "she" the verb needs the ending -s, after "they" or "we" it does not. The verb stands
twice in each prompt without it, so that a head which copies the verb does not help.
"""

from __future__ import annotations

from dataclasses import dataclass

VERBS = (
    *("work", "play", "read", "write", "run", "walk", "talk", "sing", "eat", "sleep"),
    *("drive", "cook", "dance", "laugh", "listen", "wait", "live", "smile", "learn", "speak"),
)
"""Verbs whose third person singular has the ending -s."""
PRONOUNS = (("he", "they"), ("she", "we"))
"""A pronoun of the third person singular, and one of another person or number."""


@dataclass(frozen=True, kw_only=True)
class ContrastPair:
    """A clean and a corrupt prompt with the words that fit after each."""

    clean: str
    corrupt: str
    answer: str
    """The word after the clean prompt, with its space."""
    wrong: str
    """The word after the corrupt prompt, with its space."""


def person_pairs() -> list[ContrastPair]:
    """A pair for each verb; the pronouns alternate.

    >>> pair = person_pairs()[0]
    >>> pair.clean, pair.answer
    ('I work, you work, he', ' works')
    >>> pair.corrupt, pair.wrong
    ('I work, you work, they', ' work')
    """
    pairs = []
    for number, verb in enumerate(VERBS):
        singular, other = PRONOUNS[number % len(PRONOUNS)]
        start = f"I {verb}, you {verb}, "
        pair = ContrastPair(
            clean=start + singular, corrupt=start + other, answer=f" {verb}s", wrong=f" {verb}"
        )
        pairs.append(pair)
    return pairs
