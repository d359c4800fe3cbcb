"""The kinds of models that headscope has been tried on, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from headscope.views.tables import plain_table


@dataclass(frozen=True)
class Family:
    """A layout of attention, the names that use it, and what to know about it."""

    layout: str
    examples: str
    note: str


FAMILIES = (
    Family("GPT-2", "gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2", "learned positions"),
    Family(
        "GPT-NeoX",
        "EleutherAI/pythia-70m … pythia-12b",
        "rotary positions; training steps by --revision step1000",
    ),
    Family(
        "Llama",
        "HuggingFaceTB/SmolLM2-135M, meta-llama/Llama-3.2-1B",
        "rotary positions, grouped key/value heads",
    ),
)


def describe_models() -> RenderableType:
    """The table of families, and the ways to name a model."""
    table = plain_table("layout", "for example", "")
    for family in FAMILIES:
        table.add_row(family.layout, family.examples, family.note)
    return Group(
        Text("A model is named by\n", style="bold"),
        Text("  mini           the small trained model that ships inside headscope"),
        Text("  gpt2           its name on the Hugging Face hub (the network is asked once)"),
        Text("  path/to/folder config.json, *.safetensors and tokenizer.json"),
        Text("  model.gguf     de-quantised when it is loaded (needs the gguf extra)\n"),
        Text("Tested layouts; any other causal model that TransformerLens wraps is tried:\n"),
        table,
    )
