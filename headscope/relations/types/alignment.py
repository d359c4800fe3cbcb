"""Alignment heads attend from a word of a translation to the source word that it translates.

The prompt is `sentence = translation`, from two parallel treebanks that the user names. Garg et
al. 2019 (arXiv 1909.02074) read word alignments from the attention of translation models.
"""

from __future__ import annotations

from headscope.relations.annotated_links import linked_relation
from headscope.relations.head_type import HeadType
from headscope.stimuli.translations import IN_ORDER, TRANSLATION, TRANSLATIONS

TYPE = HeadType(
    name="alignment",
    letter="A",
    order=120,
    colour="#aa4499",
    relations=(
        linked_relation(
            "alignment",
            "translation",
            kind=TRANSLATION,
            baseline_kind=IN_ORDER,
            stimulus=TRANSLATIONS.name,
            meaning="the source word that the word translates",
        ),
    ),
    stimuli=(TRANSLATIONS,),
    looks_at="in a translation: the source word that the word translates",
    control_keys="other source words of its class at the same depth of the tree; the source word "
    "of its class at the same place of the sentence",
    on_request=True,
    behaviour=TRANSLATIONS.name,
)
