"""Sentences on the heads of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.roles import AFTER_FIRST, ANSWER, END, FIRST, OTHER, REPEAT, START, WRONG
from headscope.studies.task.circuit import Statistics

IN_WORDS: Mapping[str, str] = {
    END: "the last token",
    START: "the first token",
    REPEAT: "the repeated word",
    FIRST: "the first occurrence of the repeated word",
    AFTER_FIRST: "the token after that first occurrence",
    ANSWER: "the answer in the prompt",
    WRONG: "the wrong answer in the prompt",
    OTHER: "other tokens",
}


def role_in_words(role: str) -> str:
    """A role as a sentence names it.

    >>> role_in_words("end"), role_in_words("subject")
    ('the last token', 'the subject')
    """
    return IN_WORDS.get(role, role if role.startswith("slot ") else f"the {role}")


def head_sentences(head: Mapping[str, Any], unit: str) -> Iterator[str]:
    """What a head does on a task, a sentence for each of its edges, then one on what it writes."""
    head_effect = head["effect"]
    for edge in head["attention"]:
        line = (
            f"{head['name']}: from {role_in_words(edge['from'])} to {role_in_words(edge['to'])} "
            f"({edge['mass']['mean']:.2f}"
        )
        if edge["control"] is not None:
            line += f", control {edge['control']:.2f}"
        line += ")"
        if edge["cut"] is not None and head_effect is not None:
            line += (
                f"; without this edge {edge['cut']['mean']:+.2f} {unit}, "
                f"without the head {head_effect['mean']:+.2f}"
            )
        yield line
    writes = head["writes"]
    if writes is None:
        return
    raised = ", ".join(repr(token) for token, _ in writes["raises"][:3])
    line = f"{head['name']} writes {writes['answer']['mean']:+.2f} on the answer"
    if writes["wrong"] is not None:
        line += f" and {writes['wrong']['mean']:+.2f} on the wrong one"
    line += f" directly; over the prompts it raises {raised} most"
    if writes["copies"] is not None:
        line += f"; it copies what it attends to in {writes['copies']:.0%} of the prompts"
    yield line


def differs_sentence(counts: Mapping[str, int], prompts: int, moved: int) -> str:
    """Which positions differ between the prompts and the corrupt ones, and what follows.

    Args:
        counts: prompts in which a position of each role differs.
        prompts: number of prompts.
        moved: prompts whose corrupt prompt has another number of tokens.
    """
    if moved == prompts:
        return "corrupt prompts have other numbers of tokens; they are aligned at their ends"
    parts = [f"{role} (in {count} of {prompts})" for role, count in counts.items()]
    line = f"{', '.join(parts) or 'no position'} differ between prompt and corrupt prompt"
    if moved:
        line += f"; {moved} corrupt prompts have another number of tokens and differ everywhere"
    return (
        f"{line}; what comes before is the same in both, so that heads which act there alone have "
        "no effect, and paths from there have none"
    )


def competence_sentences(
    metric: str, clean: Float[ndarray, " prompt"], statistics: Statistics
) -> Iterator[str]:
    """In how many prompts the untouched model is right, where the metric does not say so."""
    if metric != "difference":
        return
    is_right = clean > 0
    line = f"the answer is the more likely one in {is_right.sum()} of {len(clean)} prompts"
    if statistics.interval(is_right.astype(float))["low"] <= 0.5:
        line += ", no more than by guessing"
    yield line


def circuit_sentences(circuit: Mapping[str, Any], unit: str) -> Iterator[str]:
    """The circuit as a terminal shows it; nothing if there is none."""
    if not circuit["heads"]:
        return
    yield (
        f"circuit of {len(circuit['heads'])} heads, chosen on one half of the prompts: "
        f"{', '.join(circuit['heads'])}"
    )
    total = circuit["total_effect"]["mean"]
    kept = circuit["faithfulness"]
    by_random = np.mean([one["faithfulness"] for one in circuit["random"]])
    yield (
        f"on the other half replacing all heads takes {total:.2f} {unit}; these heads alone keep "
        f"{kept['mean']:.2f} [{kept['low']:.2f}, {kept['high']:.2f}] of that, {circuit['sets']} "
        f"random sets {by_random:.2f} on average (p = {circuit['p_value']:.3f}); replacing these "
        f"heads takes {circuit['completeness']['mean']:.2f} of it "
        f"(p = {circuit['completeness_p_value']:.3f})"
    )
    yield (
        f"CPR {circuit['cpr']:.3f}, CMD {circuit['cmd']:.3f}; the circuits of both halves have "
        f"{circuit['halves']['jaccard']:.2f} of their heads in common"
    )
