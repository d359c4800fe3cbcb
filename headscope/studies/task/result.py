"""The result of a task: tables, `circuit.json`, the page and the figure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.causal.task_attention import TaskAttention
from headscope.causal.task_runner import TaskRunner
from headscope.heads import head_name, parse_head
from headscope.options import Overwrite, PathName
from headscope.runs.recorded_paths import name_of
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_files
from headscope.studies.study import table_columns
from headscope.studies.task.measuring import Statistics
from headscope.studies.task.sentences import (
    circuit_sentences,
    competence_sentences,
    differs_sentence,
    head_sentences,
)
from headscope.views.study_result import StudyResult
from headscope.views.task_page import circuit_figure, plain, task_page
from headscope.views.task_page.words import in_interval, number

FILES = ("task.html", "circuit.svg", "circuit.json", "heads.csv", "attention.csv", "edges.csv")
REPLACED_BY: Mapping[str, str] = {
    "mean": "mean over tokens",
    "position": "mean by position",
    "zero": "zero",
    "resample": "corrupt prompt",
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
    """By a head's name, its attention on each prompt."""

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
        contents = (
            task_page(self.circuit, self.patterns),
            circuit_figure(self.circuit),
            json.dumps(self.circuit, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            self.csv(),
            table_to_csv(self.attention),
            table_to_csv(self.edges),
        )
        files = {Path(folder) / name: text for name, text in zip(FILES, contents, strict=True)}
        write_files(files, overwrite=overwrite)
        return list(files)


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """What was measured on a task."""

    runner: TaskRunner
    statistics: Statistics
    tags: Mapping[Head, str]
    """Tags of each head, joined by `;`; empty without a run."""
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
        return "of the prompts" if self.runner.metric == "accuracy" else "nats"

    def result(self, draw: Any) -> TaskResult:
        """The tables, the circuit and the patterns.

        Args:
            draw: draws the figure of the table of heads.
        """
        runner, statistics = self.runner, self.statistics
        records = self._head_records()
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
        columns = ["layer", "head", "tags", "effect", "q_value", "in_circuit", "share", "sentence"]
        if not self.effects:
            columns = ["layer", "head", "tags", "attribution", "smooth", "sentence"]
        return TaskResult(
            title=(
                f"{name_of(model.name)}, task {runner.prompts.name}: {runner.metric} "
                f"{in_interval(clean, 3, number)} over {runner.prompts.count} prompts; "
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

    def _head_records(self) -> list[dict[str, Any]]:
        """Every head as `circuit.json` has it, the largest effects first."""
        statistics = self.statistics
        q_values = statistics.q_values(self.effects, len(self.runner.heads))
        members = set(self.circuit["heads"])
        records = []
        for row, head in enumerate(self.runner.heads):
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
                "tags": self.tags.get(head, ""),
                "in_circuit": head_name(*head) in members,
                "share": self.shares.get(head),
                "attention": [],
                "writes": None,
                **self.described.get(head, {}),
            }
            record["sentences"] = list(head_sentences(record, self.unit))
            records.append(record)

        def size(record: Mapping[str, Any]) -> float:
            effect = record["effect"]
            if self.effects:
                return abs(float(effect["mean"])) if effect else -1.0
            return abs(float(record["smooth"]))

        return sorted(records, key=size, reverse=True)

    def _differs(self) -> str:
        """Which positions differ from the corrupt prompt; empty for another method."""
        if self.runner.method != "resample":
            return ""
        prompts, roles = self.runner.prompts, self.attention.roles
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
