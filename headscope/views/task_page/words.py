"""A task's circuit in sentences: its result, how it was measured, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.printing import visible
from headscope.views.task_page.layout import mean_of


def minus(value: float | None, digits: int = 2) -> str:
    """A change with its sign; a dash if it was not measured.

    >>> minus(-1.378), minus(0.5), minus(None)
    ('−1.38', '+0.50', '–')
    """
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")


def number(value: Any, digits: int = 2) -> str:
    """A level without a plus sign; of an estimate its mean; a dash if it was not measured."""
    mean = mean_of(value)
    return "–" if mean is None else f"{mean:.{digits}f}".replace("-", "−")


def in_interval(value: Any, digits: int = 2, show: Callable[..., str] = minus) -> str:
    """A change with its interval; with `number` a level.

    >>> in_interval({"mean": -1.38, "low": -1.6, "high": -1.2})
    '−1.38 [−1.60, −1.20]'
    """
    text = show(mean_of(value), digits)
    if isinstance(value, Mapping) and mean_of(value.get("low")) is not None:
        low, high = (show(mean_of(value.get(end)), digits) for end in ("low", "high"))
        text += f" [{low}, {high}]"
    return text


def percent(value: float) -> str:
    r"""A share in per cent, which no line breaks.

    >>> percent(-0.153)
    '−15\xa0%'
    """
    return f"{100 * value:.0f}\N{NO-BREAK SPACE}%".replace("-", "−")


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def result(circuit: Mapping[str, Any]) -> str:
    """The title: what the circuit keeps beside random sets, or what there is instead.

    Names in it are visible already: made visible again, a no-break space would be a code.
    """
    task, judged = circuit.get("task") or {}, circuit.get("circuit") or {}
    name = visible(str(task.get("name")))
    # nothing was found, or heads without a circuit
    if not circuit.get("heads"):
        return f"No head found that matters to {name}"
    if not judged.get("heads"):
        estimated = all(mean_of(head.get("effect")) is None for head in circuit["heads"])
        what = "estimated" if estimated else "measured"
        count = counted(len(circuit["heads"]), "head")
        return f"{count} with {what} effects on {name}; no circuit measured"

    # the circuit on the prompts that did not choose it
    count = counted(len(judged["heads"]), "head")
    share = mean_of(judged.get("faithfulness"))
    if share is None:
        return f"{count} in the circuit of {name}"
    verb = "keeps" if len(judged["heads"]) == 1 else "keep"
    line = f"{count} alone {verb} {percent(share)} of what replacing all heads takes"
    if mean_of(judged.get("total_effect")) is not None:
        unit = visible(f" {task['unit']}") if task.get("unit") else ""
        line += f" ({number(judged['total_effect'])}{unit})"
    by_random = [mean_of(one.get("faithfulness")) for one in judged.get("random") or ()]
    measured = [value for value in by_random if value is not None]
    if not measured:
        return line

    line += f"; random sets: {percent(sum(measured) / len(measured))}"
    p_value = mean_of(judged.get("p_value"))
    return line if p_value is None else f"{line} (p = {p_value:.2f})"


def lead(circuit: Mapping[str, Any]) -> str:
    """The measurement, its prompts, and the replacement of a head's output."""
    task = circuit.get("task") or {}
    level = in_interval(task.get("clean"), show=number)
    metric = task.get("metric") or "metric"
    unit = task.get("unit") or ""

    line = f"{metric} {level} {unit} over {counted(task.get('prompts') or 0, 'prompt')}"
    if task.get("groups") is not None:
        line += f" in {counted(task['groups'], 'group')}"
    line += "."
    if task.get("replaced_by"):
        line += f" Effect: its change when an output is replaced ({task['replaced_by']})."
    return line


def sentence(text: str) -> str:
    """A text with a capital letter and a full stop.

    >>> sentence("no position differs")
    'No position differs.'
    """
    text = text.strip()
    return text and text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def attention_in_words(head: Mapping[str, Any]) -> str:
    """The first two listed shares of a head's attention from role to role, with their controls."""
    parts = []
    for entry in (head.get("attention") or [])[:2]:
        control = number(entry.get("control"))
        parts.append(f"{entry['from']} → {entry['to']} {number(entry.get('mass'))} ({control})")
    return "; ".join(parts) or "–"


def missing(circuit: Mapping[str, Any]) -> list[str]:
    """Parts that this run did not measure."""
    judged, heads = circuit.get("circuit") or {}, circuit.get("heads") or []
    parts = {
        "exact effects of heads": any(mean_of(head.get("effect")) is not None for head in heads),
        "attention between roles": any(head.get("attention") for head in heads),
        "what heads write": any(head.get("writes") for head in heads),
        "paths between heads": bool(circuit.get("edges")),
        "the circuit": bool(judged.get("heads")),
        "random sets": bool(judged.get("random")),
    }
    return [name for name, is_there in parts.items() if not is_there] if heads else []
