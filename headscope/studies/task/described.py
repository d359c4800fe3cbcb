"""Heads of a task: roles that they attend between, tokens that they write, and what feeds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.causal.paths import VIAS, PathReader
from headscope.causal.roles import OTHER, START
from headscope.causal.task_attention import TaskAttention, Writing
from headscope.heads import head_name
from headscope.statistics.estimates import adjusted
from headscope.studies.task.circuit import MAX_Q
from headscope.studies.task.measuring import Measuring

CUTS = 2
"""Edges of a head that are cut by each of two criteria."""
LEAST_MASS = 0.05
"""Least mean attention from role to role that is described."""
CONFIRMED = 4
"""Strongest paths into a head that are run exactly."""
LEAST_PATH = 0.01
"""Least estimate of a path, as a share of the effect of replacing all heads."""


def largest_cells(sizes: Float[ndarray, ...], count: int, *, least: float = 0.0) -> list[int]:
    """Flat numbers of the largest cells of an array, from `least` on and above 0.

    >>> largest_cells(np.array([[3.0, 0.0], [1.0, 2.0]]), 3, least=1.5)
    [0, 3]
    """
    cells = np.argsort(-sizes, axis=None, kind="stable")[:count]
    return [cell for cell in cells.tolist() if sizes.flat[cell] >= least and sizes.flat[cell] > 0]


def attention_edges(
    measuring: Measuring, attention: TaskAttention, head: Head, *, cut: bool
) -> list[dict[str, Any]]:
    """A head's strongest edges from role to role, the largest possible effects first.

    Args:
        measuring: the model on the task.
        attention: has read the head.
        head: a layer and a head.
        cut: measure the effect of cutting each edge.
    """
    names = attention.roles.names
    statistics = measuring.statistics
    masses = attention.masses(head)
    # edges that matter by the first order; and those with the largest masses, because the effect
    # of a saturated head has no gradient
    known = (~np.isnan(masses)).sum(0).clip(min=1)
    mass = np.nan_to_num(masses).sum(0) / known
    mass[:, np.array(names) == START] = 0  # what is moved goes there
    mass[mass < LEAST_MASS] = 0
    estimated = np.abs(attention.cut_estimates(head).mean(0)) * (mass > 0)
    of_named = mass.copy()
    of_named[np.array(names) == OTHER] = 0
    strongest = [*largest_cells(estimated, CUTS), *largest_cells(of_named, CUTS)]

    # each edge once, with keys at like distance as a control, and its cut
    edges: list[dict[str, Any]] = []
    for cell in dict.fromkeys(strongest):
        from_role, to_role = divmod(cell, len(names))
        control = attention.control(head, from_role, to_role)
        known_controls = control[~np.isnan(control)]
        edge: dict[str, Any] = {
            "from": names[from_role],
            "to": names[to_role],
            "mass": statistics.interval(masses[:, from_role, to_role]),
            "control": float(known_controls.mean()) if len(known_controls) else None,
            "cut": None,
        }
        if cut:
            name = f"cut-{head_name(*head)}-{from_role}-{to_role}"
            run = partial(attention.cut, head, from_role, to_role)
            effect = measuring.array(name, run, layers=measuring.layers - head[0])
            edge["cut"] = statistics.interval(effect)
        edges.append(edge)

    # sorted by the largest effect within the interval, because effects of both signs can cancel in
    # the mean
    def largest(edge: Mapping[str, Any]) -> float:
        effect = edge["cut"]
        return max(abs(effect["low"]), abs(effect["high"])) if effect else 0.0

    return sorted(edges, key=largest, reverse=True)


def describe_heads(
    measuring: Measuring,
    attention: TaskAttention,
    heads: Sequence[Head],
    writes: Mapping[Head, Writing],
    *,
    cut: bool,
) -> dict[Head, dict[str, Any]]:
    """Each head's edges from role to role and its writing, as parts of `circuit.json`.

    Args:
        measuring: the model on the task.
        attention: has read the heads.
        heads: those that are described.
        writes: what some of them write.
        cut: see `attention_edges`.
    """
    statistics = measuring.statistics
    compares = measuring.runner.prompts.compares
    parts: dict[Head, dict[str, Any]] = {}
    for head in heads:
        # from where to where it attends, and what it writes at the last token
        edges = attention_edges(measuring, attention, head, cut=cut)
        parts[head] = {"attention": edges, "writes": None}
        # without a wrong answer there is no difference
        if head in writes:
            written = writes[head]
            difference = written.answer - written.wrong
            parts[head]["writes"] = {
                "answer": statistics.interval(written.answer),
                "wrong": statistics.interval(written.wrong) if compares else None,
                "difference": statistics.interval(difference) if compares else None,
                "raises": [[token, round(size, 3)] for token, size in written.raises],
                "lowers": [[token, round(size, 3)] for token, size in written.lowers],
                "copies": written.copies,
            }
    return parts


def confirmed_paths(
    reader: PathReader,
    measuring: Measuring,
    attention: TaskAttention,
    members: Sequence[Head],
    floor: float,
) -> list[dict[str, Any]]:
    """Paths into the heads of the circuit, the strongest estimates of which are run exactly.

    Args:
        reader: of the model on the task.
        measuring: the model on the task.
        attention: with the roles of the prompts.
        members: receivers.
        floor: mean effect of replacing all heads.
    """
    names = attention.roles.names
    least = LEAST_PATH * abs(floor)
    edges: list[dict[str, Any]] = []
    for receiver in members:
        # estimates of all paths cost one pass, and exact runs one for each path
        senders = reader.senders(receiver)
        of_via = reader.estimates(receiver, at=attention.masks)
        measuring.steps.advance(1)
        # the strongest over queries, keys and values, senders and roles: of heads, then others
        means = np.stack([of_via[via].mean(0) for via in VIAS])
        is_head = np.array([sender.head is not None for sender in senders])[:, None]
        strongest = [
            *largest_cells(np.abs(means) * is_head, CONFIRMED, least=least),
            *largest_cells(np.abs(means) * ~is_head, CONFIRMED // 2, least=least),
        ]

        # each of them in a run of its own
        for cell in strongest:
            via_number, sender, role = np.unravel_index(cell, means.shape)
            via = VIAS[via_number]
            run = partial(reader.exact, receiver, via, [senders[sender]], at=attention.masks[role])
            name = f"path-{senders[sender]}-{head_name(*receiver)}-{via}-{role}"
            layers = measuring.layers - receiver[0]
            effect = measuring.array(name, run, layers=layers)[:, 0]
            edges.append(
                {
                    "from": str(senders[sender]),
                    "to": head_name(*receiver),
                    "via": via,
                    "role": names[role],
                    "effect": measuring.statistics.interval(effect),
                    "estimate": float(means[via_number, sender, role]),
                    "p_value": measuring.statistics.p_value(effect),
                }
            )

    # all paths that were run are tested together
    q_values = adjusted(np.array([edge["p_value"] for edge in edges]))
    for edge, q_value in zip(edges, q_values.tolist(), strict=True):
        large = abs(edge["effect"]["mean"]) >= least
        edge["confirmed"] = bool(q_value < MAX_Q and large)
    return sorted(edges, key=lambda edge: -abs(edge["effect"]["mean"]))
