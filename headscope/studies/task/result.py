"""The result of a task: tables, `circuit.json`, sentences, the page and the figure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.causal.roles import AFTER_FIRST, ANSWER, END, FIRST, OTHER, REPEAT, START, WRONG
from headscope.causal.task_attention import TaskAttention
from headscope.heads import head_name, parse_head
from headscope.options import Overwrite, PathName
from headscope.runs.recorded_paths import name_of
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_files
from headscope.studies.study import table_columns
from headscope.studies.task.measuring import Measuring, Statistics
from headscope.views.study_result import StudyResult
from headscope.views.task_page import circuit_figure, plain, task_page
from headscope.views.task_page.words import in_interval, minus, number

FILES = ("task.html", "circuit.svg", "circuit.json", "heads.csv", "attention.csv", "edges.csv")
REPLACED_BY: Mapping[str, str] = {
    "mean": "mean over tokens",
    "position": "mean by position",
    "zero": "zero",
    "resample": "corrupt prompt",
}
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
ATTENTION_COLUMNS = (
    *("layer", "head", "from", "to", "mass", "mass_low", "mass_high", "control"),
    *("cut", "cut_low", "cut_high"),
)
EDGE_COLUMNS = (
    *("from", "to", "via", "role", "effect", "effect_low", "effect_high"),
    *("estimate", "p_value", "confirmed"),
)
TERMINAL_HEADS = 12
"""Heads that a terminal shows."""
COLUMNS = table_columns("""
    layer, head | count, ≥ 0 | layer of the head, and its number there
    tags | types joined by `;` | tags of the head in the run; empty without a run
    effect | the metric's unit | metric with the head replaced − untouched; below 0 is harm
    ci_low, ci_high | the metric's unit | ends of its 95 % interval over groups of prompts
    p_value | 0 to 1 | two-sided test over groups that the effect is 0
    q_value | 0 to 1 | Benjamini–Hochberg over all heads of the model
    joint | the metric's unit | effect with other heads that may do the same replaced already, if
        larger; empty for heads without such backups
    attribution | the metric's unit | first-order estimate of the effect
    smooth | the metric's unit | the same with norms held and gates halved
    measured | True or False | False if by both estimates the head is not among the first 30; then
        its effect is empty
    in_circuit | True or False | the head is in the circuit
    share | share | what the circuit's faithfulness loses without the head
    sentence | text | from where to where it attends, and what follows without that
""")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TaskResult(StudyResult):
    """A task explained: three tables, the circuit, and a page."""

    attention: pd.DataFrame
    """A row per head and pair of roles: its mean attention, and the effect of cutting it."""
    edges: pd.DataFrame
    """A row per path from a sender into the query, key or value of a head of the circuit."""
    circuit: dict[str, Any]
    """All of it, as `circuit.json`."""
    patterns: Mapping[str, Sequence[Float[ndarray, "query key"]]]
    """Attention on each prompt, by the head's name."""

    @property
    def heads(self) -> pd.DataFrame:
        """The table: a row per head."""
        return self.table

    def report(self, path: PathName, *, overwrite: Overwrite = False) -> Path:
        """Write the page, one HTML file that works offline.

        Raises:
            WriteError: it is there already, or cannot be written.
        """
        write_files({Path(path): task_page(self.circuit, self.patterns)}, overwrite=overwrite)
        return Path(path)

    def write(self, folder: PathName, *, overwrite: Overwrite = False) -> list[Path]:
        """Write the page, the figure, the circuit and the tables into a folder.

        Raises:
            WriteError: one of them is there already, or cannot be written.
        """
        circuit = json.dumps(self.circuit, indent=1, ensure_ascii=False, allow_nan=False)
        contents = {
            "task.html": task_page(self.circuit, self.patterns),
            "circuit.svg": circuit_figure(self.circuit),
            "circuit.json": f"{circuit}\n",
            "heads.csv": self.csv(),
            "attention.csv": table_to_csv(self.attention),
            "edges.csv": table_to_csv(self.edges),
        }
        files = {Path(folder) / name: contents[name] for name in FILES}
        write_files(files, overwrite=overwrite)
        return list(files)


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """Measurements of one task."""

    measuring: Measuring
    attention: TaskAttention
    estimates: Mapping[str, Float[ndarray, " head"]]
    """Mean first-order estimates of all heads, by their kind."""
    effects: Mapping[Head, Float[ndarray, " prompt"]]
    """Exact effects."""
    joint: Mapping[Head, Float[ndarray, " prompt"]] = field(default_factory=dict)
    """Effects beside those of backups."""
    described: Mapping[Head, Mapping[str, Any]]
    """`attention` and `writes` of some heads, as in `circuit.json`."""
    edges: Sequence[Mapping[str, Any]]
    circuit: Mapping[str, Any]
    shares: Mapping[Head, float] = field(default_factory=dict)
    notes: Sequence[str]

    @property
    def unit(self) -> str:
        """Unit of effects."""
        return "of the prompts" if self.measuring.runner.metric == "accuracy" else "nats"

    def result(self, tags: Mapping[Head, str], draw: Any) -> TaskResult:
        """The tables, the circuit and the patterns.

        Args:
            tags: of each head, joined by `;`; empty without a run.
            draw: draws the figure of the table of heads.
        """
        runner, statistics = self.measuring.runner, self.measuring.statistics
        records = self._head_records(tags)
        roles = self.attention.roles
        clean = statistics.interval(runner.clean)
        replaced_by = REPLACED_BY[runner.method]
        notes = [
            *runner.prompts.notes,
            *competence_sentences(runner.metric, runner.clean, statistics),
            *roles.notes(runner.prompts.texts[0].row.roles),
            *self.notes,
        ]
        model = runner.rerunner.model
        # what the page and other programs need of each prompt
        prompts = []
        for prompt, text in enumerate(runner.prompts.texts):
            prompts.append(
                {
                    "tokens": list(text.strings),
                    "roles": list(roles.of_prompt[prompt]),
                    "answer": text.row.answer,
                    "wrong": text.row.wrong or None,
                    "clean": float(runner.clean[prompt]),
                }
            )
        # everything that was found, as one document
        content = {
            "headscope": version("headscope"),
            "task": {
                "name": runner.prompts.name,
                "prompts": runner.prompts.count,
                "groups": len(np.unique(runner.prompts.groups)),
                "metric": runner.metric,
                "unit": self.unit,
                "clean": clean,
                "replaced_by": replaced_by,
                "differs": self._differs(),
            },
            "model": {
                "name": name_of(model.name),
                "layers": len(runner.rerunner.blocks),
                "heads": model.heads,
            },
            "roles": [vars(role) for role in roles.roles],
            "template": roles.template,
            "prompts": prompts,
            "heads": [one for one in records if one["effect"] or one["attention"]],
            "edges": self.edges,
            "circuit": self.circuit,
            "notes": notes,
        }
        # heads of the circuit first: a page that would be too large leaves the last ones out
        first = [parse_head(name) for name in self.circuit["heads"]]
        patterns = {}
        for head in dict.fromkeys([*first, *self.described]):
            of_head = [self.attention.pattern(head, at) for at in range(runner.prompts.count)]
            patterns[head_name(*head)] = of_head

        # each table has a column for each end of an interval of its records
        rows = []
        for record in records:
            row = _spread(record, "effect", "joint")
            row["measured"] = row["effect"] is not None
            row["sentence"] = next(iter(record["sentences"]), "")
            rows.append(row)
        table = pd.DataFrame(rows)
        table = table.rename(columns={"effect_low": "ci_low", "effect_high": "ci_high"})
        numbers = ["effect", "ci_low", "ci_high", "p_value", "q_value", "joint", "share"]
        table = table[[column.name for column in COLUMNS]].astype(dict.fromkeys(numbers, float))
        attention_rows = []
        for record in records:
            position = {name: record[name] for name in ("layer", "head")}
            for edge in record["attention"]:
                attention_rows.append(position | _spread(edge, "mass", "cut"))
        edge_rows = [_spread(edge, "effect") for edge in self.edges]
        # a quick run has estimates in place of effects
        columns = ["layer", "head"]
        # without a run no tags are known
        if any(tags.values()):
            columns.append("tags")
        columns += ["effect", "q_value"] if self.effects else ["attribution", "smooth"]
        if self.circuit["heads"]:
            columns += ["in_circuit", "share"]
        columns.append("sentence")
        return TaskResult(
            title=(
                f"{name_of(model.name)}, task {runner.prompts.name}: {runner.metric} "
                f"{in_interval(clean, 3, number)} over {runner.prompts.count:,} prompts; "
                f"heads replaced by {replaced_by}"
            ),
            table=table,
            terminal_table=table.head(TERMINAL_HEADS)[columns],
            notes=[*circuit_sentences(self.circuit, self.unit), *notes],
            values={"task": runner.prompts.name, "metric": runner.metric, "how": runner.method},
            draw=draw,
            attention=pd.DataFrame(attention_rows, columns=ATTENTION_COLUMNS),
            edges=pd.DataFrame(edge_rows, columns=EDGE_COLUMNS),
            circuit=plain(content, 6),
            patterns=patterns,
        )

    def _head_records(self, tags: Mapping[Head, str]) -> list[dict[str, Any]]:
        """Every head as `circuit.json` has it, the largest effects first."""
        statistics, heads = self.measuring.statistics, self.measuring.runner.heads
        # heads that were not measured count as tests too, because the estimates chose the others
        q_values = statistics.q_values(self.effects, len(heads))
        members = set(self.circuit["heads"])
        records = []
        for row, head in enumerate(heads):
            # a head that was not measured has its estimates alone
            effect, joint_effect = self.effects.get(head), self.joint.get(head)
            record: dict[str, Any] = {
                "name": head_name(*head),
                "layer": head[0],
                "head": head[1],
                "effect": None if effect is None else statistics.interval(effect),
                "p_value": None if effect is None else statistics.p_value(effect),
                "q_value": q_values.get(head),
                "joint": None if joint_effect is None else statistics.interval(joint_effect),
                "attribution": float(self.estimates["attribution"][row]),
                "smooth": float(self.estimates["smooth"][row]),
                "tags": tags.get(head, ""),
                "in_circuit": head_name(*head) in members,
                "share": self.shares.get(head),
                "attention": [],
                "writes": None,
                **self.described.get(head, {}),
            }
            record["sentences"] = list(head_sentences(record, self.unit))
            records.append(record)

        # measured heads first; of a quick run the estimates give the order
        def size(record: Mapping[str, Any]) -> float:
            effect = record["effect"]
            if self.effects:
                return abs(float(effect["mean"])) if effect else -1.0
            return abs(float(record["smooth"]))

        return sorted(records, key=size, reverse=True)

    def _differs(self) -> str:
        """Positions that differ from the corrupt prompt; empty for another method."""
        runner, roles = self.measuring.runner, self.attention.roles
        if runner.method != "resample":
            return ""
        prompts = runner.prompts
        # tokens that differ, counted by role: paths from elsewhere cannot have an effect
        of_prompt = {one.prompt: one for one in reversed(prompts.continuations)}
        counts: Counter[str] = Counter()
        moved = 0
        for prompt, names in enumerate(roles.of_prompt):
            tokens, corrupt = of_prompt[prompt].tokens, of_prompt[prompt].corrupt
            if corrupt is None or len(corrupt) != len(tokens):
                moved += 1
                continue
            # the answer's own tokens have no role
            changed = np.flatnonzero(np.array(tokens) != np.array(corrupt)).tolist()
            counts.update({names[position] for position in changed if position < len(names)})
        in_order = {name: counts[name] for name in roles.names if counts[name]}
        return differs_sentence(in_order, prompts.count, moved)


def _spread(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A record with a mean and the ends of its interval as three columns, for some names."""
    row = dict(record)
    for name in names:
        interval = record[name] or {}
        row |= {
            name: interval.get("mean"),
            f"{name}_low": interval.get("low"),
            f"{name}_high": interval.get("high"),
        }
    return row


def role_in_words(role: str) -> str:
    """A role as a sentence names it.

    >>> role_in_words("end"), role_in_words("subject")
    ('the last token', 'the subject')
    """
    return IN_WORDS.get(role, role if role.startswith("slot ") else f"the {role}")


def head_sentences(head: Mapping[str, Any], unit: str) -> Iterator[str]:
    """Account of a head on a task: a sentence for each of its edges, then one on what it writes."""
    head_effect = head["effect"]
    for edge in head["attention"]:
        line = (
            f"{head['name']}: from {role_in_words(edge['from'])} to {role_in_words(edge['to'])} "
            f"({number(edge['mass'])}"
        )
        if edge["control"] is not None:
            line += f", control {number(edge['control'])}"
        line += ")"
        # both in the metric's unit: an edge can take more than its head, so that a share would
        # mislead
        if edge["cut"] is not None and head_effect is not None:
            line += (
                f"; without this edge {minus(edge['cut']['mean'])} {unit}, "
                f"without the head {minus(head_effect['mean'])}"
            )
        yield line
    # the direct effect on the logits, whatever later heads make of it
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
    """Sentences on positions that differ between the prompts and the corrupt ones.

    Args:
        counts: prompts in which a position of each role differs.
        prompts: number of prompts.
        moved: prompts whose corrupt prompt has another number of tokens.
    """
    if moved == prompts:
        return "corrupt prompts have other numbers of tokens; they are aligned at their ends"
    # with prompts of equal length the roles name what differs
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
    """Number of prompts at which the untouched model is right, where the metric does not say so."""
    if metric != "difference":
        return
    # an average lead may come from few prompts
    is_right = clean > 0
    line = f"the answer is the more likely one in {is_right.sum():,} of {len(clean):,} prompts"
    if statistics.interval(is_right.astype(float))["low"] <= 0.5:
        line += ", no more than by guessing"
    yield line


def circuit_sentences(circuit: Mapping[str, Any], unit: str) -> Iterator[str]:
    """The circuit as a terminal shows it; empty without a circuit."""
    if not circuit["heads"]:
        return
    yield (
        f"circuit of {len(circuit['heads'])} heads, chosen on one half of the prompts: "
        f"{', '.join(circuit['heads'])}"
    )
    # judged on the prompts that did not choose, beside random sets on the same prompts
    faithfulness = in_interval(circuit["faithfulness"], show=number)
    by_random = float(np.mean([one["faithfulness"] for one in circuit["random"]]))
    yield (
        f"on the other half replacing all heads takes {number(circuit['total_effect'])} {unit}; "
        f"these heads alone keep {faithfulness} of that, {circuit['sets']} random sets "
        f"{number(by_random)} on average (p = {circuit['p_value']:.3f}); replacing these heads "
        f"takes {number(circuit['completeness'])} of it (p = {circuit['completeness_p_value']:.3f};"
        f" {circuit['sets']} sets can give {1 / (1 + circuit['sets']):.3f} at least)"
    )
    yield (
        f"CPR {number(circuit['cpr'], 3)}, CMD {number(circuit['cmd'], 3)}; the circuits of both "
        f"halves have {number(circuit['halves']['jaccard'])} of their heads in common"
    )
