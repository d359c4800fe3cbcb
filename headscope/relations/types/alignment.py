"""Alignment heads attend from a word of a translation to the source word that it translates.

The prompt is `sentence = translation`, from two parallel treebanks that the user names. Garg et
al. 2019 (arXiv 1909.02074) read word alignments from the attention of translation models.
"""

from __future__ import annotations

from functools import partial

from headscope.relations.annotated_links import nearest_candidate, other_candidates, pointed_to
from headscope.relations.head_type import HeadType
from headscope.relations.relation import Baseline, Relation, above_baseline
from headscope.stimuli.translations import IN_ORDER, TRANSLATION, TRANSLATIONS

TYPE = HeadType(
    name="alignment",
    letter="A",
    order=120,
    colour="#aa4499",
    relations=(
        Relation(
            "alignment",
            "translation",
            partial(pointed_to, kind=TRANSLATION),
            partial(other_candidates, kind=TRANSLATION),
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, as for syntactic heads",
                "the source word that the word translates",
                beats_surrogate=True,
            ),
            stimuli=(TRANSLATIONS.name,),
            baseline=Baseline(partial(nearest_candidate, kind=IN_ORDER)),
        ),
    ),
    stimuli=(TRANSLATIONS,),
    looks_at="in a translation: the source word that the word translates",
    control_keys="other source words of its class at the same depth of the tree; the source word "
    "of its class at the same place of the sentence",
    on_request=True,
    behaviour=TRANSLATIONS.name,
)
