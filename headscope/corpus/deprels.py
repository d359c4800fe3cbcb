"""The dependency relations that headscope tells apart."""

from __future__ import annotations

# https://universaldependencies.org/u/dep/ without root, punct, dep, goeswith and reparandum,
# which name no syntactic link, and with the English subtypes that differ most from their parent
DEPRELS = (
    "acl", "acl:relcl", "advcl", "advmod", "amod", "appos", "aux", "aux:pass", "case", "cc",
    "ccomp", "compound", "compound:prt", "conj", "cop", "csubj", "det", "discourse", "dislocated",
    "expl", "fixed", "flat", "iobj", "list", "mark", "nmod", "nmod:poss", "nsubj", "nsubj:pass",
    "nummod", "obj", "obl", "orphan", "parataxis", "vocative", "xcomp",
)  # fmt: skip


def own_label(label: str) -> str:
    """The label under which a dependency counts: itself, or its parent when it has no row.

    `nmod:poss` counts as itself, `nmod:desc` as `nmod`.

    >>> own_label("nmod:poss"), own_label("nmod:desc")
    ('nmod:poss', 'nmod')
    """
    return label if label in DEPRELS else label.split(":")[0]
