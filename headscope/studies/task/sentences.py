"""Sentences on the heads of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.roles import AFTER_FIRST, ANSWER, END, FIRST, OTHER, REPEAT, START, WRONG
from headscope.studies.task.measuring import Statistics
from headscope.views.task_page.words import in_interval, minus, number

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
            f"({number(edge['mass'])}"
        )
        if edge["control"] is not None:
            line += f", control {number(edge['control'])}"
        line += ")"
        if edge["cut"] is not None and head_effect is not None:
            line += (
                f"; without this edge {minus(edge['cut']['mean'])} {unit}, "
                f"without the head {minus(head_effect['mean'])}"
            )
        yield line
    writes = head["writes"]
    if writes is None:
        return
    raised = ", ".join(repr(token) for token, _ in writes["raises"][:3])
    line = f"{head['name']} writes {minus(writes['answer']['mean'])} on the answer"
    if writes["wrong"] is not None:
        line += f" and {minus(writes['wrong']['mean'])} on the wrong one"
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
    faithfulness = in_interval(circuit["faithfulness"], show=number)
    by_random = float(np.mean([one["faithfulness"] for one in circuit["random"]]))
    yield (
        f"on the other half replacing all heads takes {number(circuit['total_effect'])} {unit}; "
        f"these heads alone keep {faithfulness} of that, {circuit['sets']} random sets "
        f"{number(by_random)} on average (p = {circuit['p_value']:.3f}); replacing these heads "
        f"takes {number(circuit['completeness'])} of it (p = {circuit['completeness_p_value']:.3f})"
    )
    yield (
        f"CPR {number(circuit['cpr'], 3)}, CMD {number(circuit['cmd'], 3)}; the circuits of both "
        f"halves have {number(circuit['halves']['jaccard'])} of their heads in common"
    )
