"""A planted model: of its heads the one that finds what is asked for looks like it, alone."""

import pytest

import headscope as hs
from headscope.corpus.controlled.lists import RELATED, VALUES
from headscope.corpus.controlled.prompts import draws
from tests.oracles.words import vocabulary
from tests.oracles.writers import planted_heads, save_writers

DOCUMENTS = 24


@pytest.mark.parametrize("layout", ["gpt2", "llama"])
def test_of_planted_heads_one_is_tagged_as_looking_for_what_is_asked(layout, tmp_path):
    """Beside it stand heads for the person's values, the last, all of them, for names, and others."""
    texts = [
        " ".join([each.text, *each.right, *each.wrong, *each.other])
        for _, prompts in draws(DOCUMENTS * len(RELATED), seed=0)
        for each in prompts
    ]
    texts.append(" ".join(VALUES))
    folder = tmp_path / "planted"
    # the noise makes the head of both values prefer the right one, by 0.54 to 0.34 in GPT-2's layout
    save_writers(layout, vocabulary(texts), ["the"], folder, noise=0.1)
    run = hs.classify(
        str(folder), types=["retrieval"], max_tokens=4_000, twin=False, examples=False
    )
    assert run.evidence["contested_n"].min() >= 30
    tagged = run.evidence[run.evidence["tagged"]]
    names = planted_heads()
    assert [names[row.layer, row.head].name for row in tagged.itertuples()] == ["retrieval"]
