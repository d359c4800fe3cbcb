"""Long windows: frequent relations are asked at a sample of queries, rare ones at all of them."""

from __future__ import annotations

import numpy as np

from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.relations.pairs import pairs
from headscope.relations.query_sampling import ROWS, queries_in_turn, row_queries
from headscope.relations.window_pairs import WindowPairs


def window(length: int, seed: int = 0) -> Window:
    tokens = np.random.default_rng(seed).integers(1, 90, length)
    return Window("w", tokens, tuple("a."[t % 2] for t in tokens.tolist()))


def test_a_frequent_relation_is_asked_at_the_sample_and_a_rare_one_everywhere():
    long = window(2000)
    rows = row_queries(long)
    assert len(rows) == ROWS
    assert 0 not in rows
    every = pairs(np.arange(1, 2000), np.arange(1999))
    assert queries_in_turn(long, every).query.tolist() == rows.tolist()
    rare = pairs(np.arange(10, 2000, 10), np.arange(9, 1999, 10))
    assert queries_in_turn(long, rare) is rare
    # few queries with a great many keys each
    many = pairs(np.repeat(np.arange(1900, 2000), 50), np.tile(np.arange(50), 100))
    assert set(queries_in_turn(long, many).query.tolist()) == set(range(1900, 2000)) & set(
        rows.tolist()
    )


def test_every_query_is_drawn_equally_often():
    length, draws = 600, 400
    drawn = np.zeros(length)
    for seed in range(draws):
        drawn[row_queries(window(length, seed))] += 1
    share = ROWS / (length - 1)
    off = np.abs(drawn[1:] / draws - share) / np.sqrt(share * (1 - share) / draws)
    assert off.max() < 5
    assert 0.5 < np.sqrt((off**2).mean()) < 1.5


def test_relations_of_every_token_find_their_pairs_at_the_sample_alone():
    long = window(1500)
    rows = set(row_queries(long).tolist())
    relations = relations_of(["sink", "delimiter", "induction"])
    found = {relation.id: WindowPairs(long).cells(relation, [0]) for relation in relations}
    for name in ("sink/first-token", "delimiter/punctuation", "induction/natural"):
        queries = set(found[name].targets.query.tolist())
        assert queries <= rows
        assert len(queries) > ROWS - 30
        assert set(found[name].controls.owner.tolist()) <= rows
    # all of the keys of a query that is asked
    kept = found["delimiter/punctuation"].targets
    last = kept.query.max()
    marks = [k for k in range(1, last) if long.strings[k] == "."]
    assert kept.key[kept.query == last].tolist() == marks
