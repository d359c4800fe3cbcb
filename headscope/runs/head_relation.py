"""A head of a run with one relation that it is asked about, and the text to ask it on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.corpus.shipped import listed
from headscope.errors import ChoiceError, CorpusError, HeadscopeError
from headscope.heads import head_name, parse_head
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Relation
from headscope.runs.reopen_model import text_of
from headscope.statistics.columns import rows_of_head
from headscope.statistics.result import Result
from headscope.statistics.tags import is_sink


@dataclass(frozen=True)
class HeadRelation:
    """What a study reads of one head."""

    layer: int
    head: int
    relation: Relation
    corpora: Sequence[str | Path]
    """Of natural text; none where the relation is asked of made sequences alone."""

    @property
    def name(self) -> str:
        """The head's."""
        return head_name(self.layer, self.head)


def head_relation(
    run: Result,
    head: str,
    relation: str | None,
    corpus: str | Path | Sequence[str | Path] | None,
    *,
    seed: int,
) -> HeadRelation:
    """A head and the relation that it is asked about.

    Args:
        run: of the head.
        head: `L5H1` or `5.1`.
        relation: such as `induction/repeat`; the head's tag with the largest lift when None.
        corpus: files or folders of text; those of the run when None.
        seed: of what is drawn from the text.

    Raises:
        HeadscopeError: the run has no such head, or it has no tag and no relation is named.
        ChoiceError: no such relation.
        CorpusError: text cannot be read, or is named for a relation of made sequences alone.
    """
    layer, number = parse_head(head)
    name = head_name(layer, number)
    if name not in run.heads.index:
        raise HeadscopeError(f"no head {name} in this run")
    known = {relation.id: relation for relation in relations_of([*head_types()])}
    relation_id = relation or _strongest(run, layer, number)
    if relation_id not in known:
        raise ChoiceError("relation", relation_id, known)
    corpora: Sequence[str | Path] = listed(corpus)
    stimuli = known[relation_id].stimuli
    if corpora and "text" not in stimuli:
        raise CorpusError(f"{relation_id} is asked of made sequences, and no corpus is read for it")
    if "text" in stimuli:
        corpora = text_of(run, corpora, seed=seed)
    return HeadRelation(layer, number, known[relation_id], corpora)


def _strongest(run: Result, layer: int, head: int) -> str:
    """The head's tag with the largest lift."""
    evidence = rows_of_head(run.evidence, layer, head)
    ids = evidence["type"] + "/" + evidence["relation"]
    tagged = evidence[evidence["tagged"].astype(bool) & ~is_sink(ids)]
    if tagged.empty:
        raise HeadscopeError(
            f"{head_name(layer, head)} has no tag in this run; name a relation to ask it about"
        )
    return str(ids[tagged["lift"].idxmax()])
