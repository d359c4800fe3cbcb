"""Names of models, and the layouts that headscope reads."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.models.layout.table import LAYOUTS
from headscope.models.packaged import PACKAGED, PackagedModel
from headscope.views.terminal_tables import plain_table

COLUMNS = ("layout", "for example", "attention", "engine")


def describe_package(model: PackagedModel) -> str:
    """A packaged model in words.

    >>> describe_package(PACKAGED["minilm"])
    'all-MiniLM-L6-v2, BERT, 6 × 12 heads; 84 MB, Apache-2.0'
    """
    return f"{model.title}, {model.architecture}; {model.size}, {model.licence}"


def layout_table() -> pd.DataFrame:
    """A row per layout, with examples of its models, its attention, and the engine of `auto`."""
    rows = [(row.model_type, row.examples, row.attention, row.engine) for row in LAYOUTS]
    return pd.DataFrame(rows, columns=COLUMNS)


def describe_models() -> RenderableType:
    """The ways to name a model, and the table of layouts."""
    table = plain_table(*COLUMNS, unwrapped=("layout", "engine"))
    for row in layout_table().itertuples(index=False):
        table.add_row(*row)
    # from what ships to what users have: packages, the hub, then folders and files
    return Group(
        Text("Names of models\n", style="bold"),
        Text("  mini           the small trained model that ships inside headscope"),
        *(Text(f"  {model.name:<15}{describe_package(model)} *") for model in PACKAGED.values()),
        Text("  gpt2           its name on the Hugging Face hub (downloaded once)"),
        Text("  path/to/folder config.json, *.safetensors and tokenizer.json"),
        Text("  model.gguf     a quantised model, unpacked when it is loaded\n"),
        Text("* fetched from the package index when first named, and kept for use offline.\n"),
        Text(
            "Layouts (model_type in config.json), each tested on a tiny model with random "
            "weights. headscope also tries other layouts.\n"
        ),
        table,
    )
