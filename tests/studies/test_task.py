"""Tasks explained: planted circuits are recovered, with roles and edges, and nothing else is."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscope as hs
from headscope.causal.paths import VIAS, PathReader
from headscope.causal.rerun import Rerunner
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import TaskRunner
from headscope.errors import HeadscopeError
from headscope.progress import Steps, announced_costs, silent
from headscope.stimuli.tasks import read_task
from headscope.studies.task.circuit import Judge, areas, judged_circuit
from headscope.studies.task.measuring import Measuring, Stages, Statistics
from headscope.studies.task.result import FILES, competence_sentences
from tests.oracles.integrated_gradients import by_integrated_gradients, curve, runner_of
from tests.oracles.planted_circuits import (
    OUT,
    POSITION,
    ROOT,
    SURE,
    UNREAD,
    WORD,
    A,
    B,
    Plan,
    rows,
)

PREVIOUS = {position: position - 1 for position in range(2, 10)}


def explained(plan: Plan, folder, task, **options) -> hs.TaskResult:
    """A planted model's task."""
    # a head that attends as others do, and writes where nobody reads
    plan.at_positions((0, 3), PREVIOUS)
    plan.copies((0, 3), WORD, UNREAD)
    return hs.task(str(plan.save(folder)), task, sets=20, progress=False, **options)


def heads_of(result) -> set[str]:
    return set(result.circuit["circuit"]["heads"])


def confirmed(result) -> set[tuple[str, str, str, str]]:
    """Confirmed paths from heads."""
    edges = result.edges[result.edges["confirmed"].astype(bool)]
    found = zip(edges["from"], edges["to"], edges["via"], edges["role"], strict=True)
    return {edge for edge in found if edge[0].startswith("L")}


def main_edge(result, name: str) -> tuple[str, str]:
    """The roles of the head's edge whose cut has the largest effect."""
    head = next(head for head in result.circuit["heads"] if head["name"] == name)
    return head["attention"][0]["from"], head["attention"][0]["to"]


def test_a_previous_token_head_feeds_the_keys_of_an_induction_head(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), PREVIOUS)
    plan.copies((0, 0), WORD, A)
    plan.by_content((1, 0), query=WORD, key=A)
    plan.copies((1, 0), WORD, OUT, size=4)
    task = rows("{0} {1} {2} {3} {0}", "{2} {1} {0} {3} {0}", "{1}", "{3}")
    found = explained(plan, tmp_path, task)
    assert heads_of(found) == {"L0H0", "L1H0"}
    assert confirmed(found) == {
        ("L0H0", "L1H0", "key", "answer"),
        ("L0H0", "L1H0", "key", "wrong"),
    }
    assert main_edge(found, "L1H0") == ("end", "answer")
    assert main_edge(found, "L0H0") == ("answer", "first")


def test_a_head_that_inhibits_a_name_feeds_the_query_of_a_name_mover(tmp_path):
    plan = Plan()
    plan.at_positions((0, 1), {6: 5})
    plan.copies((0, 1), WORD, B)
    # the name mover attends to both names, but for the inhibited one
    q, k, *_ = plan.maps
    q.weight[1, 0][POSITION.start + 6, 20] = SURE * ROOT
    k.weight[1, 0][[POSITION.start + 1, POSITION.start + 3], 20] = 1.0
    plan.by_content((1, 0), query=B, key=WORD, score=-SURE / 2)
    plan.copies((1, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} the {0} to", "{0} and {1} the {1} to", "{1}", "{0}")
    found = explained(plan, tmp_path, task)
    assert heads_of(found) == {"L0H1", "L1H0"}
    assert confirmed(found) == {("L0H1", "L1H0", "query", "end")}
    assert main_edge(found, "L1H0") == ("end", "answer")
    assert main_edge(found, "L0H1") == ("end", "repeat")


def test_a_chain_through_values_is_found_at_the_one_role_at_which_it_passes(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), {**PREVIOUS, 4: 1})  # it attends at every position
    plan.copies((0, 0), WORD, A)
    plan.at_positions((1, 0), {5: 4})
    plan.copies((1, 0), A, OUT, size=4)
    task = rows("{0} and {1} the to", "{2} and {1} the to", "{0}", "{2}")
    task = [row | {"carrier": "the", "source": row["answer"].strip()} for row in task]
    found = explained(plan, tmp_path, task)
    assert heads_of(found) == {"L0H0", "L1H0"}
    assert confirmed(found) == {("L0H0", "L1H0", "value", "carrier")}
    assert main_edge(found, "L0H0") == ("carrier", "source")
    assert main_edge(found, "L1H0") == ("end", "carrier")


def test_each_of_a_redundant_pair_is_found_though_it_has_no_effect_alone(tmp_path):
    plan = Plan()
    for head in ((0, 0), (1, 1)):
        plan.at_positions(head, {4: 1})
        plan.copies(head, WORD, OUT, size=200)  # the last norm makes one as large as both
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    found = explained(plan, tmp_path, task, how="zero")
    pair = found.heads.set_index(["layer", "head"]).loc[[(0, 0), (1, 1)]]
    assert pair["effect"].abs().max() < 1
    assert pair["joint"].max() < -10
    assert heads_of(found) == {"L0H0", "L1H1"}


def test_a_head_that_suppresses_the_answer_is_in_the_circuit_and_helps_if_replaced(tmp_path):
    plan = Plan()
    for head, size in (((0, 0), 4), ((1, 2), -1.5)):
        plan.at_positions(head, {4: 1})
        plan.copies(head, WORD, OUT, size=size)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    found = explained(plan, tmp_path, task)
    assert heads_of(found) == {"L0H0", "L1H2"}
    effects = found.heads.set_index(["layer", "head"])["effect"]
    assert effects[0, 0] < -5
    assert effects[1, 2] > 2
    writes = {head["name"]: head["writes"] for head in found.circuit["heads"]}
    assert writes["L0H0"]["difference"]["mean"] == pytest.approx(4, rel=0.05)
    assert writes["L0H0"]["copies"] == 1
    assert writes["L1H2"]["copies"] == 0
    # one sign of negative numbers in text, that of the page
    sentences = [line for head in found.circuit["heads"] for line in head["sentences"]]
    text = "\n".join([found.title, *found.notes, *found.heads["sentence"], *sentences])
    assert "−" in text
    assert not re.search(r"(?<!\w)-\d", text)


def test_a_task_that_the_model_cannot_do_blames_no_head(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    nonsense = []
    for number, row in enumerate(task):
        answers = [row["answer"], row["wrong"]]
        nonsense.append(row | {"answer": answers[number % 2], "wrong": answers[1 - number % 2]})
    with pytest.raises(HeadscopeError, match="cannot do"):
        explained(plan, tmp_path / "model", nonsense, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_lead_that_few_prompts_carry_is_no_ability():
    by_prompt = np.array([9.0] * 9 + [-0.5] * 11)
    statistics = Statistics(np.arange(20), 0)
    assert statistics.interval(by_prompt)["low"] > 0
    (few,) = competence_sentences("difference", by_prompt, statistics)
    (most,) = competence_sentences("difference", np.abs(by_prompt), statistics)
    assert "9 of 20" in few
    assert "20 of 20" in most
    assert "guessing" in few
    assert "guessing" not in most


def test_a_stopped_call_goes_on_where_it_was_and_gives_the_same(tmp_path, monkeypatch):
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    whole = explained(plan, tmp_path / "model", task)
    made = []
    run = Stages.array

    def until(self, name, make):
        def counted():
            made.append(name)
            if len(made) == 20:
                raise KeyboardInterrupt
            return make()

        return run(self, name, counted)

    monkeypatch.setattr(Stages, "array", until)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        explained(plan, tmp_path / "model", task, out=out)
    assert [path.name for path in out.iterdir()] == ["unfinished"]
    explained(plan, tmp_path / "model", task, out=out)
    assert len(made) == 1 + len(set(made))  # the stage that was stopped alone is made twice
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert json.loads((out / "circuit.json").read_text("utf-8")) == whole.circuit


def test_all_heads_together_keep_everything_and_none_nothing(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    found = explained(plan, tmp_path, task, other_words=task[::2])
    circuit = found.circuit["circuit"]
    assert circuit["curve"][-1]["faithfulness"]["mean"] == 1
    assert circuit["faithfulness"]["mean"] == pytest.approx(1, abs=1e-3)
    assert circuit["completeness"]["mean"] == pytest.approx(1, abs=1e-3)
    # random sets of one of eight heads are the circuit at times, and then no worse
    same = sum(drawn["heads"] == circuit["heads"] for drawn in circuit["random"])
    assert 0 < same < 8
    assert circuit["p_value"] == pytest.approx((1 + same) / 21)
    assert circuit["halves"]["jaccard"] == circuit["other_words"]["jaccard"] == 1
    assert circuit["other_words"]["faithfulness"]["mean"] == pytest.approx(1, abs=1e-3)


def test_quick_estimates_all_heads_and_runs_none(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    found = explained(plan, tmp_path, task, quick=True)
    assert not found.heads["measured"].any()
    assert tuple(found.heads.loc[0, ["layer", "head"]]) == (0, 0)
    assert heads_of(found) == set()
    assert found.report(tmp_path / "page.html").stat().st_size > 1000


def test_the_cost_is_announced_once(tmp_path, monkeypatch):
    monkeypatch.setattr("headscope.progress.LAP_SECONDS", 0)
    monkeypatch.setattr("headscope.progress.LONG_SECONDS", 0)
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} to", "{0}", "{1}")
    lines: list[str] = []
    with announced_costs(lines.append):
        hs.task(str(plan.save(tmp_path)), task, quick=True, on_message=lines.append)
    assert ["about" in line for line in lines] == [True]


def test_the_other_direction_runs_the_corrupt_prompts(tmp_path):
    plan = Plan()
    plan.at_positions((0, 0), {4: 1})
    plan.copies((0, 0), WORD, OUT, size=4)
    task = rows("{0} and {1} to", "{1} and {0} the", "{0}", "{1}")
    found = explained(plan, tmp_path, task, how="restore")
    assert all(prompt["tokens"][-1].strip() == "the" for prompt in found.circuit["prompts"])


LAYERS, HEADS = 6, 8  # two strata
TRIES = 200


@pytest.mark.slow
def test_random_weights_reach_p_below_5_percent_in_5_percent(tokenizer):
    """Heads drawn at random beside random sets, and paths if the answers are random.

    Weights are random, yet some heads matter far more than others: a set that has one of these
    must meet random sets that have it too.
    """
    rng = np.random.default_rng(0)
    of_sets, of_paths = [], []
    for seed in range(TRIES):
        model = hs.load_model((random_network(tokenizer, seed), tokenizer))
        task = read_task(random_answers(tokenizer, rng))
        prompts = TaskPrompts.of(task, model)
        runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
        statistics = Statistics(prompts.groups, seed)
        floor = runner.without(runner.heads)
        measuring = Measuring(runner, statistics, Stages(None, ""), Steps(silent, 1))
        judge = Judge(measuring, floor)
        heads = [runner.heads[number] for number in rng.permutation(len(runner.heads))[:4]]
        found = judged_circuit(judge, heads, runner.heads, 20, seed)
        of_sets.append(found["p_value"])
        reader = PathReader(runner)
        receiver = (LAYERS - 1, int(rng.integers(HEADS)))
        senders = reader.senders(receiver)
        sender = senders[int(rng.integers(len(senders)))]
        via = VIAS[int(rng.integers(3))]
        effect = reader.exact(receiver, via, [sender])[:, 0]
        of_paths.append(statistics.p_value(effect))
    for p_values in (of_sets, of_paths):
        share = np.mean(np.array(p_values) < 0.05)
        # give or take 2.6 standard errors
        assert abs(share - 0.05) <= 2.6 * np.sqrt(0.05 * 0.95 / TRIES), sorted(p_values)


def random_network(tokenizer, seed: int) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=64,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=64,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.bos_token_id,
    )
    network = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.2, generator=generator)
    return network


def random_answers(tokenizer, rng: np.random.Generator) -> list[dict]:
    """Prompts of random words, after which one of two words is right at random."""
    words = [token.replace("Ġ", " ") for token in tokenizer.get_vocab() if token[0] == "Ġ"]
    words = sorted(word for word in words if len(word) > 2)
    made = []
    for _ in range(16):
        prompt = "".join(rng.choice(words, 5))
        answer, wrong = rng.permutation(words[:2])
        made.append({"prompt": prompt, "answer": answer, "wrong": wrong})
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("mini", "induction"),
        ("smollm2", "ioi"),
        ("smollm2", "greater-than"),
        ("smollm2", "induction"),
    ],
)
def test_the_curve_is_no_farther_from_1_than_that_of_integrated_gradients(name, task, request):
    if name == "smollm2":
        name = request.getfixturevalue(name)  # skips where its weights are not
    found = hs.task(name, task, prompts=40, sets=1, progress=False).circuit["circuit"]
    runner = runner_of(name, task, 40)
    of_gradients = curve(runner, by_integrated_gradients(runner))
    assert found["cmd"] <= areas(of_gradients)[1] + 0.01
