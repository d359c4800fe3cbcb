"""Haystacks: the windows, a user's file, and heads that know the answer beside lazy ones."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.causal.haystack_answers import answer_tokens, haystack_answers, questions_of
from headscope.corpus.gold_links import ArrowTable
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import ArgumentError, CorpusError
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations.types.retrieval import IN_HAYSTACK, beside_the_answer
from headscope.statistics.conditions import failures
from headscope.statistics.haystack_lengths import accuracies, refused_lengths
from headscope.stimuli.haystack import DEPTHS, HAYSTACK, IN_LENGTH, NEEDLE, NULL, SLACK
from headscope.stimuli.stimulus import StimulusConfig
from tests.helpers.chat import with_chat_template
from tests.helpers.models import save_model
from tests.helpers.prose import mini_tokenizer
from tests.relations.looking import Keys, Look, candidate, candidates, knows, pattern

LENGTHS = (1024, 1280)


@cache
def haystacks(*names: str, chat: bool = False) -> list[Window]:
    names = names or tuple(map(str, LENGTHS))
    tokenizer = mini_tokenizer()
    if chat:
        backend = with_chat_template(load_tokenizer("mini", mini_folder()))
        tokenizer = Tokenizer(backend, name="mini").in_chat()
    config = StimulusConfig(tokenizer, 4096, 64, seed=3, haystack=names, context=2048)
    return HAYSTACK.windows(config)


def queries(window: Window) -> list[int]:
    return sorted(knows(NEEDLE)(window))


def spelled(window: Window, positions: list[int]) -> str:
    return "".join(window.strings[position] for position in positions).strip()


def needles(window: Window) -> list[int]:
    """Rows of the words of all answers in the text."""
    return sorted({*window.words.row_at(window.arrows.last).tolist()})


def odd_words(window: Window) -> Keys:
    """Names and values of all needles, and of the questions before."""
    spans = zip(window.words.first, window.words.last, strict=True)
    forms = [spelled(window, [*range(first, last + 1)]) for first, last in spans]
    values = {forms[row] for row in needles(window)}
    starts = [row for row, form in enumerate(forms) if form.istitle() and forms.count(form) == 2]
    rows = [*starts, *(row for row, form in enumerate(forms) if form in values)]
    keys = np.unique(window.words.last[rows])
    return {q: keys[keys < q].tolist() for q in queries(window)}


def whole_needle(window: Window) -> Keys:
    """Every word of the right needle alike."""
    right = knows(NEEDLE)(window)
    sentence = window.words.sentence
    found: Keys = {}
    for query, key in right.items():
        of_needle = sentence == sentence[window.words.row_at(np.array([key]))[0]]
        found[query] = window.words.last[of_needle].tolist()
    return found


def without_looking_at_the_question(window: Window) -> Keys:
    """All answers, at the question about nothing as at the others."""
    every = sorted({*window.arrows.last.tolist()})
    null = window.arrows.query[window.arrows.kind == NULL][0]
    return dict.fromkeys([int(null), *queries(window)], every)


def same_token(behind: int) -> Look:
    """Behind the last earlier token that is the query's."""

    def look(window: Window) -> Keys:
        found: Keys = {}
        for query in queries(window):
            earlier = np.flatnonzero(window.tokens[:query] == window.tokens[query])
            if len(earlier):
                found[query] = int(earlier[-1]) + behind
        return found

    return look


KNOWS = {f"answer, noise {noise}": (knows(NEEDLE), noise) for noise in (0.0, 0.5)}
LAZY = {
    "odd words": odd_words,
    "last needle": candidate(NEEDLE, -1),
    "first needle": candidate(NEEDLE, 0),
    "same form": candidates(NEEDLE),
    "whole needle": whole_needle,
    "all answers, whatever is asked": without_looking_at_the_question,
    "recent tokens": lambda window: {q: [*range(q - 30, q)] for q in queries(window)},
    "same token": same_token(0),
    "after the same token": same_token(1),
}


@cache
def failed() -> pd.DataFrame:
    """Conditions other than the q value that each head fails."""
    heads = [look if isinstance(look, tuple) else (look, 0.0) for look in (KNOWS | LAZY).values()]

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, *head) for head in heads])[None]

    run = hs.score_patterns(patterns, haystacks(), relations=[IN_HAYSTACK])
    failed = failures(run.evidence_with_thresholds).drop(columns="q value")
    return failed.set_axis([*KNOWS, *LAZY])


@pytest.mark.parametrize("name", KNOWS)
def test_a_head_that_finds_the_answer_earns_the_tag(name):
    assert not failed().loc[name].any()


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_head_earns_nothing(name):
    assert failed().loc[name].any()


def test_the_control_is_half_the_question_about_nothing_and_half_the_needle_s_other_words():
    window = haystacks()[0]
    targets = IN_HAYSTACK.pairs(window)
    control = beside_the_answer(window, targets, np.random.default_rng(0))
    is_unasked = control.query == window.arrows.query[window.arrows.kind == NULL][0]
    assert control.key[is_unasked].tolist() == targets.key.tolist()
    counted = control.weight * control.share
    half = np.bincount(targets.owner, targets.share / 2)
    for part in (is_unasked, ~is_unasked):
        assert np.bincount(control.owner[part], counted[part]) == pytest.approx(half)


def test_each_window_has_its_length_and_a_question_for_each_depth():
    windows = haystacks()
    assert len(windows) == IN_LENGTH * len(LENGTHS)
    for number, window in enumerate(windows):
        length = LENGTHS[number % 2]
        assert length - SLACK - 200 < len(window) <= length
        assert sorted(questions_of(window)["depth"]) == sorted(DEPTHS)


def test_an_answer_is_what_the_needle_of_the_question_says():
    for window in haystacks():
        right = window.arrows.take((window.arrows.kind == NEEDLE) & window.arrows.right)
        for query, first, last in zip(right.query, right.first, right.last, strict=True):
            in_needle = spelled(window, [*range(first, last + 1)])
            assert spelled(window, answer_tokens(window, int(query)).tolist()) == in_needle
            # the name of the question stands in the sentence of the answer, and in no other needle
            asked = spelled(window, [*range(query - 60, query)]).rsplit("Question:", 1)[1]
            question = asked.rpartition("?")[0].split()
            words = window.words
            of_needle = words.sentence == words.sentence[words.row_at(np.array([first]))[0]]
            needle = spelled(window, [*range(words.first[of_needle][0], last + 1)])
            assert {word for word in question if word.istitle()} & {*needle.split()}


def test_the_depth_of_an_answer_is_of_the_text_before_the_questions():
    """The text ends at 80, where nothing is asked; the answers stand at 10 % and 70 % of it."""
    query, answer = np.array([[90, 8], [120, 56], [80, 8]]).T
    kind = np.array([NEEDLE, NEEDLE, NULL])
    arrows = ArrowTable(query, answer, answer, kind, kind == NEEDLE)
    window = Window("w", np.arange(160), ("a",) * 160, arrows=arrows)
    assert questions_of(window)["depth"].tolist() == [5, 72]


def test_no_needle_is_known_before_and_no_answer_comes_twice():
    values: list[str] = []
    for window in haystacks():
        text = "".join(window.strings)
        for query in queries(window):
            answer = spelled(window, answer_tokens(window, query).tolist())
            assert text.count(f" {answer}") == 2
            values.append(answer)
    assert len({*values}) > 0.9 * len(values)


def test_in_a_chat_template_the_user_asks_and_the_assistant_answers():
    windows = haystacks("1024", chat=True)
    assert len(windows) == IN_LENGTH
    for window in windows:
        assert 1024 - SLACK - 200 < len(window) <= 1024
        roles = [turn.role for turn in window.turns]
        assert roles == ["user", "assistant"] * (1 + len(DEPTHS))
        right = window.arrows.take((window.arrows.kind == NEEDLE) & window.arrows.right)
        assert len({*right.query}) == len(DEPTHS)
        answers = {turn.start: turn for turn in window.turns[1::2]}
        for query, first, last in zip(right.query, right.first, right.last, strict=True):
            # the query is the last token of the template, and the answer is the whole message
            turn = answers[query + 1]
            assert answer_tokens(window, int(query)).tolist() == [*range(turn.start, turn.stop)]
            in_needle = spelled(window, [*range(first, last + 1)])
            assert spelled(window, [*range(turn.start, turn.stop)]) == in_needle
            assert last < window.turns[0].stop
        (null,) = {*window.arrows.query[window.arrows.kind == NULL].tolist()}
        assert null == window.turns[1].start - 1


ROWS = [
    {"context": "In 1920 Bob paid 17 and Ann paid 31.", "question": "Ann?", "answer": "31"},
    {"context": "Old Tom said: Red Fox. Red Fox!", "question": "Who?", "answer": "Red Fox"},
]


@pytest.mark.parametrize("chat", [False, True])
def test_a_file_of_the_user_gives_its_answers_and_words_of_their_form(tmp_path, chat):
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, ROWS)))
    number, name = haystacks(str(file), chat=chat)
    own = number.arrows.take(number.arrows.kind == NEEDLE)
    spans = [spelled(number, [*range(a, b + 1)]) for a, b in zip(own.first, own.last, strict=True)]
    assert {*zip(spans, own.right.tolist(), strict=True)} == {
        ("31", True),
        ("17", False),
        ("1920", False),
    }
    (query,) = queries(name)
    assert spelled(name, answer_tokens(name, query).tolist()) == "Red Fox"
    right = name.arrows.take((name.arrows.kind == NEEDLE) & name.arrows.right)
    assert len(right) == 4


@pytest.mark.parametrize(
    "row",
    [[], {"context": "a b"}, ROWS[0] | {"answer": "3"}, ROWS[0] | {"answer": 31}],
    ids=["no object", "no question", "not in the context", "no text"],
)
def test_an_invalid_row_is_refused_with_its_number(tmp_path, row):
    file = tmp_path / "mine.jsonl"
    file.write_text(f"{json.dumps(ROWS[0])}\n{json.dumps(row)}\n")
    with pytest.raises(CorpusError, match=r"\b2\b"):
        HAYSTACK.windows(
            StimulusConfig(mini_tokenizer(), 1, 9, 0, haystack=[str(file)], context=99)
        )


@pytest.mark.parametrize("value", ["100", "2048,mine.jsonl", "mine.txt", "two"])
def test_what_is_no_haystack_is_refused(value):
    with pytest.raises(ArgumentError, match="haystack"):
        hs.classify("mini", types=["retrieval"], haystack=value)


def test_a_haystack_beyond_the_context_or_for_no_type_is_refused():
    with pytest.raises(CorpusError, match="100,000"):
        hs.classify("mini", types=["retrieval"], haystack="100000")
    with pytest.raises(ArgumentError, match="retrieval"):
        hs.classify("mini", types=["positional"], haystack="1024")


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return hs.load_model(str(save_model("llama", tokenizer, folder, context=2048)))


def test_a_model_that_cannot_answer_at_a_length_has_a_note_and_no_evidence(model):
    run = hs.classify(model, types=["retrieval"], haystack="1024", max_tokens=2_000)
    assert any("1,024 tokens" in note for note in run.info["notes"])
    assert "haystack" not in set(run.evidence.query("n > 0")["relation"])


def test_a_length_is_refused_where_the_interval_includes_chance():
    rows = [
        {"document": d, "length": length, "correct": float(rate > d % 4)}
        for length, rate in ((512, 4), (2048, 1), (4096, 0))
        for d in range(16)
    ]
    accuracy = accuracies(pd.DataFrame(rows), seed=0)
    assert accuracy["accuracy"].tolist() == [1, 0.25, 0]
    assert list(refused_lengths(accuracy, 0.2)) == [2048, 4096]
    assert list(refused_lengths(accuracy, 0.0)) == [4096]


def test_answers_are_scored_by_the_logits_of_the_whole_network(model):
    config = StimulusConfig(model.tokenizer, 4096, 64, seed=3, haystack=["1280"], context=2048)
    window = HAYSTACK.windows(config)[0]
    (found,) = [haystack_answers(model, [window], ["1280"])]
    with torch.no_grad():
        logits = model.engine.network(torch.from_numpy(window.tokens)[None]).logits[0]
    logits = logits.log_softmax(-1)
    for query, row in zip(queries(window), found.itertuples(), strict=True):
        places = answer_tokens(window, query)
        expected = sum(float(logits[place - 1, window.tokens[place]]) for place in places)
        assert row.log_probability == pytest.approx(expected, abs=1e-3)
        best = logits[places - 1].argmax(-1).numpy()
        assert row.correct == (best == window.tokens[places]).all()
