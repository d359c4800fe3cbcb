"""Stimuli: kinds of windows that a run reads.

A head type names the stimuli that its relations read (`HeadType.stimuli`); `COMMON` lists those
that belong to no type. `headscope.relations.all_stimuli` has both. A stimulus of one type alone
stands in the file of that type.
"""

from __future__ import annotations

from headscope.stimuli import challenge, natural_text, prompts
from headscope.stimuli.stimulus import Stimulus

COMMON: dict[str, Stimulus] = {
    row.name: row for row in (natural_text.TEXT, challenge.CHALLENGE, prompts.PROMPTS)
}
"""Natural text, which any relation may read, and stimuli that no relation names."""
