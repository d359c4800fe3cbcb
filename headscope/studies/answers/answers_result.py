"""Answers on some heads, as text, as a table and as a page of a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headscope.arguments import NAME, maybe, takes
from headscope.errors import RunError
from headscope.heads import head_name, layer_name
from headscope.runs.recorded_paths import name_of
from headscope.statistics.columns import rows_of_head
from headscope.statistics.reasons import head_in
from headscope.statistics.reasons import why as account_of
from headscope.statistics.result import PRELIMINARY, Result, by_name
from headscope.statistics.tags import with_rules
from headscope.studies.answers.answer_text import MARKS_MEAN, Answer
from headscope.studies.answers.claim import CLAIM_VERDICTS, Claim
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBERS = (
    *("mass", "control", "lift", "ci_low", "ci_high", "q_value", "n", "hit_rate"),
    *("baseline", "baseline_rate", "contested_n", "contested_hit_rate"),
)
"""Columns of the evidence that the table has."""


@dataclass(frozen=True, eq=False)
class HeadAnswers(Study):
    """What some heads of a model do, and how sure that is; `table` has a row per head.

    Print it for five lines on each head.
    """

    run: Result
    """The run that says it. Of a model that was read for these heads it holds all heads of their
    layers, and verdicts are preliminary."""
    heads: Sequence[tuple[int, int]]
    """Layer and number of each, in the order in which they were named."""
    claim: Claim | None = None
    """The name that a list gives to all of them."""
    is_measured: bool = False
    """True where the model was read for these heads alone."""

    @cached_property
    def answers(self) -> list[Answer]:
        """An answer for each head."""
        evidence = with_rules(self.run.evidence, self.run.rules)
        meanings = {name: rule.meaning for name, rule in self.run.rules.items()}
        answers = []
        for layer, head in self.heads:
            examples = [e for e in self.run.examples if (e.layer, e.head) == (layer, head)]
            rows = rows_of_head(evidence, layer, head)
            name = head_name(layer, head)
            answers.append(Answer.of(name, rows, meanings, examples, self.claim))
        return answers

    @property
    def table(self) -> pd.DataFrame:
        """A row per head, by its name.

        `claim` and `claim_verdict` of the name that the heads were given, `tags` joined by `;`, and
        the `relation` with its `verdict` and numbers that the answer rests on, as in
        `evidence.csv`; in `example` one of the best queries.
        """
        rows = [
            {
                "layer": layer,
                "head": head,
                "claim": "" if self.claim is None else self.claim.name,
                "claim_verdict": answer.verdict,
                "tags": ";".join(answer.tags),
                "relation": answer.row["id"],
                "verdict": answer.row["verdict"],
                **{name: answer.row[name] for name in NUMBERS},
                "example": answer.best if answer.example is not None else "",
            }
            for (layer, head), answer in zip(self.heads, self.answers, strict=True)
        ]
        return by_name(pd.DataFrame(rows))

    @takes(relation=maybe(NAME))
    def why(self, head: str, relation: str | None = None) -> str:
        """Every condition of a head's tags with its number; see `hs.Run.why`.

        Raises:
            RunError: the head was not asked about, or the run has no such relation.
        """
        if head_in(self.run, head) not in self.heads:
            listed = ", ".join(answer.name for answer in self.answers)
            raise RunError(f"{head} was not asked about; these were: {listed}")
        return account_of(self.run, head, relation)

    def figure(self) -> Figure:
        """The mass and the control of each head's relation as bars, from 0 to 1."""
        from matplotlib.figure import Figure  # slow to import

        table = self.table.iloc[::-1]
        figure = Figure(figsize=(6.4, 1.2 + 0.42 * len(table)), layout="constrained")
        axes = figure.subplots()
        bars = np.arange(len(table))
        axes.barh(bars + 0.2, table["mass"], 0.4, label="mass")
        axes.barh(bars - 0.2, table["control"], 0.4, label="control", color="0.7")
        labels = [f"{row.Index}  {row.relation}" for row in table.itertuples()]
        axes.set_yticks(bars, labels)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of attention")
        axes.legend(frameon=False)
        return figure

    def __str__(self) -> str:
        """Five lines on each head, then what was read and what was not asked."""
        parts = ["\n".join(answer.lines()) for answer in self.answers]
        return "\n\n".join([*parts, "\n".join(self.notes())])

    def __repr__(self) -> str:
        names = ", ".join(f"{answer.name} {answer.title}" for answer in self.answers)
        return f"<headscope answers on {self.run.name}: {names}>"

    def _repr_html_(self) -> str:
        """The same as a table, for a notebook."""
        rows = []
        for answer in self.answers:
            _, *lines = answer.lines()
            cells = "<br>".join(escape(line.strip()) for line in lines)
            rows.append(
                f"<tr><th>{escape(answer.name)}</th><td><b>{escape(answer.title)}</b><br>"
                f"{cells}</td></tr>"
            )
        style = "text-align:left;vertical-align:top"
        body = "".join(rows).replace("<th>", f'<th style="{style}">')
        body = body.replace("<td>", f'<td style="{style}">')
        notes = "<br>".join(map(escape, self.notes()))
        return f"<div><table>{body}</table><small>{notes}</small></div>"

    def notes(self) -> Iterator[str]:
        """What was read, what was not asked, and what the marks mean."""
        info = self.run.info
        if self.claim is not None:
            counts = Counter(answer.verdict for answer in self.answers)
            listed = ", ".join(f"{counts[word]} {word}" for word in CLAIM_VERDICTS if counts[word])
            yield f"{self.claim.name}: {listed}"
        yield f"read: {self._text()}"
        added = info.get(PRELIMINARY, ())
        if added:
            yield f"{PRELIMINARY}, not asked: {'; '.join(added)}"
        decidable = info.get("decidable")
        if decidable:
            yield (
                f"this text can decide {decidable['relations']} of the {decidable['of']} relations "
                "that were asked"
            )
        yield from (f"note: {note}" for note in info.get("notes", ()) if note[:12].isupper())
        if any(answer.example is not None for answer in self.answers):
            yield MARKS_MEAN

    def _text(self) -> str:
        """The text and the layers that were read."""
        info = self.run.info
        read = info.get("text_read") or {}
        names = ", ".join(info.get("corpora", {}).get("asked", ())) or "made sequences"
        text = f"{read['tokens']:,} tokens of {names}" if read.get("tokens") else names
        sentence = f"{name_of(self.run.name)}, {text}"
        if not self.is_measured:
            return sentence
        layers = sorted({layer for layer, _ in self.heads})
        rows = ", ".join(layer_name(layer) for layer in layers)
        return f"{sentence}; of {rows} alone, whose heads are all that q values count"
