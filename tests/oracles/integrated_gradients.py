"""Circuits by integrated gradients beside those of `task`, on the same prompts.

    headscope task smollm2 ioi --prompts 100 --out FOLDER
    python -m tests.oracles.integrated_gradients FOLDER [--exact]

`--exact` replaces all other heads one by one too, and counts those of the ten with the largest
effects that `task` measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.causal.rerun import Rerunner
from headscope.causal.task_prompts import TaskPrompts, aligned_at_end
from headscope.causal.task_runner import HeadsTaken, TaskRunner
from headscope.models.load import load_model
from headscope.progress import Steps, silent
from headscope.stimuli.tasks import read_task
from headscope.studies.task.circuit import CHOOSES, Judge, areas, sizes
from headscope.studies.task.measuring import Measuring, Stages, Statistics

STEPS = 5
LARGEST = 10


def runner_of(model: str, task: str, prompts: int) -> TaskRunner:
    """A model on the first prompts of a task that ships."""
    loaded = load_model(model)
    spelled = TaskPrompts.of(read_task(task).first(prompts), loaded)
    return TaskRunner(Rerunner(loaded), spelled, metric="difference", method="resample")


def eap_ig(runner: TaskRunner) -> Float[ndarray, "prompt head"]:
    """Attribution patching with integrated gradients, of heads (Hanna et al. 2024).

    Gradients are averaged over embeddings on the way from the corrupt prompt to the prompt.
    """
    network = runner.rerunner.network
    embed = network.get_input_embeddings()
    scores = np.zeros((runner.prompts.count, len(runner.heads)))
    for clean in runner.clean_batches:
        rows, corrupt = clean.batch.rows, clean.batch.corrupt
        own = embed(rows.tokens).detach()
        other = embed(corrupt.tokens).detach()
        other = aligned_at_end(other, corrupt.lengths, own, rows.lengths)
        total: dict[int, torch.Tensor] = {}
        for step in range(STEPS):
            mixed = other + (own - other) * (step + 0.5) / STEPS
            taken: dict[int, torch.Tensor] = {}

            def replaced(module, inputs, output, mixed=mixed):
                return mixed

            with (
                embed.register_forward_hook(replaced),
                HeadsTaken(dict(clean.run.z), taken).applied(runner.rerunner.model),
            ):
                states = runner.rerunner.place_states(rows)
                metric = runner.total(clean.batch, states)
                gradients = torch.autograd.grad(metric, list(taken.values()))
            for layer, gradient in zip(taken, gradients, strict=True):
                total[layer] = total.get(layer, 0) + gradient / STEPS
        parts = []
        for layer, gradient in total.items():
            change = clean.replacements[layer] - clean.run.z[layer]
            parts.append((gradient.view(change.shape) * change).sum((1, 3)))
        np.add.at(scores, clean.batch.prompt_of_row, torch.cat(parts, -1).numpy())
    return scores


def by_integrated_gradients(runner: TaskRunner) -> list[Head]:
    """All heads, those first that the choosing half of the prompts gives the largest scores."""
    chooses = runner.prompts.halves == CHOOSES
    scores = np.abs(eap_ig(runner)[chooses].mean(0))
    return [runner.heads[number] for number in np.argsort(-scores, kind="stable")]


def curve(runner: TaskRunner, order: Sequence[Head]) -> dict[int, float]:
    """Share kept by the first heads of an order, on the prompts that judge."""
    statistics = Statistics(runner.prompts.groups, 0)
    measuring = Measuring(runner, statistics, Stages(None, ""), Steps(silent, 1))
    judge = Judge(measuring, runner.without(runner.heads))
    return {size: judge.faithfulness(order[:size])["mean"] for size in sizes(len(order))}


def main() -> None:
    """Print the areas, and how many of the heads with the largest exact effects are measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--exact", action="store_true")
    given = parser.parse_args()
    found = json.loads((given.folder / "circuit.json").read_text("utf-8"))
    task = found["task"]["name"]
    runner = runner_of(found["model"]["name"], task, found["task"]["prompts"])

    # both curves at the same numbers of heads, on the half of the prompts that did not choose
    own = {}
    for point in found["circuit"]["curve"]:
        own[point["heads"]] = point["faithfulness"]["mean"]
    of_gradients = curve(runner, by_integrated_gradients(runner))
    for name, shares in (("task", own), ("EAP-IG", of_gradients)):
        of_sizes = ", ".join(f"{size}: {share:.2f}" for size, share in shares.items())
        print(f"{task}, {name}: CMD {areas(shares)[1]:.3f}; kept {of_sizes}", flush=True)
    if not given.exact:
        return

    # effects in the folder are those of the heads that were measured
    table = pd.read_csv(given.folder / "heads.csv", index_col=["layer", "head"])
    effects = table["effect"].abs().to_dict()
    for head in runner.heads:
        if not table.loc[head, "measured"]:
            effects[head] = abs(float((runner.without([head]) - runner.clean).mean()))
    largest = sorted(effects, key=lambda head: -effects[head])[:LARGEST]
    among = int(table.loc[largest, "measured"].sum())
    print(f"{task}: {among} of the {LARGEST} largest are among {table['measured'].sum()} measured")


if __name__ == "__main__":
    main()
