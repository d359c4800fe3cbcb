"""Results of reading a run's text: the sums so far, and what of the text is needed again.

`KeptSums` is what a checkpoint keeps, `Sums` all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.example_reader import Sample
from headscope.measure.layer_reader import LayerReader
from headscope.measure.loss_check import TokenCounts
from headscope.measure.tally import Tally
from headscope.models.model import Model
from headscope.relations.effects import sum_names
from headscope.relations.parts import PARTS, is_compared, part_name
from headscope.relations.relation import Relation
from headscope.stimuli.natural_text import TEXT


class StoppedEarly(NamedTuple):
    """The round after which a stimulus was read no further, though there was more of it."""

    rounds: int
    """So many of it were read."""
    expected_changes: float
    """Tags that the rest was expected to add or to take."""


@dataclass(frozen=True, eq=False)
class BatchSums:
    """A batch, and the readers that have summed it up."""

    batch: Batch
    readers: Sequence[LayerReader]
    was_halved: bool = False
    """True if it did not fit into memory as it was."""


@dataclass
class KeptSums:
    """The part of a reading's sums that a checkpoint keeps."""

    tally: Tally
    batches: int = 0
    tokens: int = 0
    """Padding left out."""
    halved: int = 0
    """Batches that did not fit into memory as they were."""
    stopped: dict[str, StoppedEarly] = field(default_factory=dict)
    """Stimuli that are read no further."""

    def kept_columns(self) -> dict[str, Any]:
        """Counts that are kept beside the tally, as JSON holds it; see `take_over`."""
        values = {column.name: getattr(self, column.name) for column in fields(KeptSums)}
        del values["tally"]
        return values

    def take_over(self, tally: Tally, columns: dict[str, Any]) -> None:
        """Replace what is kept by what another process has kept."""
        stopped = {name: StoppedEarly(*values) for name, values in columns["stopped"].items()}
        state = KeptSums(**{**columns, "tally": tally, "stopped": stopped})
        for column in fields(KeptSums):
            setattr(self, column.name, getattr(state, column.name))


@dataclass
class Sums(KeptSums):
    """The sums of a reading, and how much is in them.

    A resumed run makes the fields below those of `KeptSums` again: all windows pass once more,
    although the model does not read those that are in the sums. Patterns of sampled windows are not
    kept; examples read these windows again.
    """

    beside_text: frozenset[str] = frozenset()
    """Names of the sums that are of other stimuli alone, whose blocks are never merged."""
    compared: frozenset[str] = frozenset()
    """Names of the sums of hard and easy queries, which lie in the challenge set too."""
    sample: Sample = field(default_factory=lambda: Sample(0, seed=0))
    """Some windows of text, and their patterns for examples."""
    token_counts: TokenCounts = field(default_factory=TokenCounts)
    """Counts of the text's tokens."""
    stimulus_tokens: Counter[str] = field(default_factory=Counter)
    """Tokens that the model has read of each stimulus."""

    @classmethod
    def empty(cls, model: Model, relations: Sequence[Relation]) -> Sums:
        """The sums of a reading that has not begun."""
        tally = Tally.zeros(sum_names(relations), model.attention_layers, model.heads)
        return cls(
            tally,
            beside_text=names_beside_text(relations),
            compared=frozenset(relation.id for relation in relations if is_compared(relation)),
        )

    @property
    def text_blocks(self) -> int:
        """Number of blocks in which queries of text lie."""
        not_of_text = self.beside_text | self.compared
        of_text = [name not in not_of_text for name in self.tally.relations]
        return int((self.tally.queries[:, of_text] > 0).any(1).sum())

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results on how the text was read."""
        note = f"{self.halved} batches did not fit into memory and were read in smaller ones"
        return [note] if self.halved else []

    def see(self, text: Sequence[Window]) -> None:
        """Draw the sample from windows that are about to be read, and count their tokens."""
        for window in text:
            self.sample.add(window)
            self.token_counts.add(window)

    def add(self, done: BatchSums) -> None:
        """Add what the readers of a batch have summed up."""
        if done.batch.merge is not None:
            self.tally.merge(done.batch.merge, self.beside_text)
        for reader in done.readers:
            reader.add_to(self.tally)
        self.batches += 1
        self.tokens += done.batch.token_count
        self.halved += done.was_halved
        self.count(done.batch)

    def count(self, batch: Batch) -> None:
        """Count the tokens of a batch by stimulus; of one whose sums are here already too."""
        for window in batch.windows:
            self.stimulus_tokens[window.stimulus] += len(window)


def names_beside_text(relations: Sequence[Relation]) -> frozenset[str]:
    """Names of relations that are not of text, and of all their parts."""
    relation_ids = [relation.id for relation in relations if TEXT.name not in relation.stimuli]
    parts = [part_name(name, part) for name in relation_ids for part in PARTS]
    return frozenset([*relation_ids, *parts])
