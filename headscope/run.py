"""The front door: a run that can be asked, shown, drawn and saved. `import headscope as hs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, overload

import pandas as pd
from pydantic import Field, PlainValidator

from headscope import resolve
from headscope.attention_kind import CAUSAL, KindName, kind_of
from headscope.corpus.shipped import asked_corpora
from headscope.errors import check_choice
from headscope.options import (
    LARGEST,
    Corpus,
    Device,
    Head,
    MaxTokens,
    Model,
    Name,
    OnMessage,
    Overwrite,
    PathName,
    Plain,
    Seed,
    Source,
    Text,
    Width,
    checked,
    several_heads,
)
from headscope.packages import optional_package
from headscope.progress import Progress, progress_bar
from headscope.relations import Relations, check_relations, check_types
from headscope.runs.cards import card_json, check_no_card, read_card
from headscope.runs.folder import RunFolder, check_foreign
from headscope.runs.listing import list_heads
from headscope.runs.write import check_suffix, check_target, write_file
from headscope.settings import LOADING, MAX_TOKENS, Settings, settings_of
from headscope.statistics.columns import PRELIMINARY
from headscope.statistics.result import Result, by_name
from headscope.stimuli.natural_text import TextWindows, readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.corpus.window import Window
    from headscope.models.model import Model as LoadedModel
    from headscope.views.heads_view import HeadsView
    from headscope.views.show import AttentionView


class Run(Result):
    """A run: the tags and evidence of all heads of a model.

    `heads` has a row per head and `evidence` a row per head × relation;
    docs/reference/columns.md describes every column.
    """

    @classmethod
    def of(cls, result: Result) -> Run:
        """A result with the methods of a run."""
        return cls(**vars(result))

    @checked
    def why(self, head: Head, relation: Name | None = None) -> str:
        """Findings on a head, every condition of each tag with its number, then the near misses.

        Args:
            head: `L5H1`, `5.1` or `(5, 1)`.
            relation: part of a relation's name, such as `amod`: the conditions of those alone.

        Raises:
            RunError: the run has no such head, or no such relation.
        """
        from headscope.views.head_account import account

        return account(self, head, relation)

    @checked
    def tagged(self, type: Name) -> pd.DataFrame:
        """The heads with this tag by name, the strongest first; see `runs.listing.list_heads`.

        The numbers are those of the type's own relation with the largest lift.

        Raises:
            ChoiceError: the run scored no such type.
        """
        return by_name(list_heads(self, type))

    @checked
    def show(
        self,
        head: Annotated[str | Sequence[str], PlainValidator(several_heads)],
        text: Text,
        *,
        plain: Plain = False,
        device: Device = "auto",
        source: Source = None,
    ) -> AttentionView | HeadsView:
        """A head, or several, of the run's model on any text; see `headscope.views.show.show`."""
        # what draws is slow to import
        from headscope.views.show import show

        return show(self, head, text, plain=plain, device=device, source=source)

    @overload
    def report(self, path: None = None, *, light: bool = False, overwrite: bool = False) -> str: ...

    @overload
    def report(self, path: PathName, *, light: bool = False, overwrite: bool = False) -> Path: ...

    @checked
    def report(
        self, path: PathName | None = None, *, light: bool = False, overwrite: Overwrite = False
    ) -> str | Path:
        """The visual report as one HTML page; see `headscope.views.report`.

        Args:
            path: the .html file to write; if None, the page is returned as text.
            light: omit circuitsvis, the full view of patterns.
            overwrite: replace an existing file.

        Returns:
            The file that was written, or the page.

        Raises:
            WriteError: another suffix, or a file that is there already or cannot be written.
            RunError: the file is one of a run's own.
        """
        from headscope.views.report import report_html

        check_no_card(self)
        if path is None:
            return report_html(self, light=light)
        target = Path(path)
        check_suffix(target, ".html")
        check_foreign(target)
        check_target(target, overwrite=overwrite)
        return write_file(target, report_html(self, light=light), overwrite=overwrite)

    @checked
    def figure(self, kind: Name = "atlas", *, width: Width = None) -> Figure:
        """A matplotlib figure of the run.

        Args:
            kind: `atlas`, every head with its type; `layers`, how many heads of each layer have
                each type; or `relations`, the best head of each relation.
            width: in inches, such as 3.3 for a column; the picture's own if None.

        Raises:
            ChoiceError: no such figure.
            HeadscopeError: matplotlib is not installed.
        """
        optional_package("a figure", "matplotlib")
        from headscope.views.figures import FIGURES

        check_no_card(self)
        check_choice("picture", kind, FIGURES)
        return FIGURES[kind](self, width)

    @checked
    def save(self, folder: PathName, *, overwrite: Overwrite = False) -> Path:
        """Write the run folder; see `headscope.runs.folder.RunFolder.save`."""
        check_no_card(self)
        RunFolder(folder).save(self, report=self.report, overwrite=overwrite)
        return Path(folder)

    @checked
    def card(self, path: PathName, *, overwrite: Overwrite = False) -> Path:
        """Write the head card of the run, which `load` reads; see `headscope.runs.cards`.

        Raises:
            WriteError: the file does not end in .json, is there already, or cannot be written.
        """
        check_no_card(self)
        target = Path(path)
        check_suffix(target, ".json")
        check_foreign(target)
        return write_file(target, card_json(self), overwrite=overwrite)

    def _repr_html_(self) -> str:
        """The atlas as a table, for a notebook."""
        from headscope.views.html_page import atlas_html

        return atlas_html(self)

    def __repr__(self) -> str:
        counts = self.heads["primary"].value_counts()
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        marked = f" ({PRELIMINARY})" if self.preliminary else ""
        return f"<headscope run of {self.name}{marked}: {listed}>"


@checked
def classify(
    model: Model,
    corpus: Corpus = None,
    *,
    settings: Settings | None = None,
    relations: Relations | None = None,
    out: PathName | None = None,
    overwrite: Overwrite = False,
    progress: Progress = True,
    on_message: OnMessage = lambda line: None,
    backend: Any = None,
    **changes: Any,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    With `out` the sums so far are kept next to that folder. The same call resumes an interrupted
    run from there, and ends with the same numbers.

    Args:
        model: `mini`, `smollm2` or `minilm`, a folder in Hugging Face layout, a `.gguf` file, or a
            hub name like `gpt2`; or what is in memory: a (model, tokenizer) pair of transformers, a
            loaded model, or a TransformerBridge; see `headscope.models.load.open_model` for
            its changes.
        corpus: files or folders of CoNLL-U or plain text, or `gum`, `gold` or `controlled`, which
            ship with headscope; `gum` when None.
        settings: all other options; see `headscope.settings.Settings`.
        relations: the relations to score instead of those that ship.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already, and start again if sums of another run
            were kept.
        progress: True for a bar on a terminal or in a notebook, False for none, or a function that
            is called with the tokens done and the tokens in all.
        on_message: called with a line for the user, e.g. that a run resumes.
        backend: opens the model; a new `LastModel` when None. It keeps the model that it opened
            last.
        changes: single settings by name, e.g. `max_tokens=10_000`, in place of those of `settings`.

    Raises:
        RunStoppedError: a KeyboardInterrupt, when sums were kept.
        HeadscopeError: the model, the corpus, the types or the folder are not usable; each kind
            has its own subclass in `headscope.errors`.
    """
    # importing a model library takes seconds
    from headscope.classification import Session, classify_heads
    from headscope.models.last_model import LastModel
    from headscope.runs.checkpoint import RunCheckpoint

    # all that can be refused is refused before a model loads
    settings = settings_of(settings, changes)
    own_relations = None if relations is None else check_relations(relations)
    check_types(settings.types)
    corpora = asked_corpora(readable(corpus, seed=settings.seed))
    checkpoint = RunCheckpoint(None if out is None else RunFolder(out), overwrite=overwrite)
    with checkpoint.locked(), progress_bar(progress) as on_progress:
        session = Session(
            models=backend or LastModel(),
            checkpoint=checkpoint,
            on_progress=on_progress,
            on_message=on_message,
            report=lambda result: Run.of(result).report(),
        )
        result = classify_heads(model, corpora, settings, own_relations, session)
    return Run.of(result)


@checked
def load_model(name: Model, **settings: Any) -> LoadedModel:
    """Load a model once, for every function that takes the name of a model.

    Args:
        name: `mini`, `smollm2` or `minilm`, a folder in Hugging Face layout, a `.gguf` file, or a
            hub name such as `gpt2`; or a (model, tokenizer) pair of transformers, or a
            TransformerBridge.
        settings: settings of loading: `bos`, `chat`, `revision`, `device`, `device_map`, `dtype`
            and `engine`, as in `headscope.settings.Settings`. With `dtype="auto"`, the default, it
            is loaded in float32.

    Raises:
        ModelError: the model is not found, or cannot be loaded or read.
        ChoiceError: another setting.

    >>> load_model("mini", device="cpu")
    <headscope model mini: 6 layers × 8 heads, float32 on cpu>
    """
    # importing a model library takes seconds
    from headscope.models.load import open_model

    for setting in settings:
        check_choice("setting of loading a model", setting, LOADING)
    return open_model(name, **settings)


@checked
def load(folder: PathName, *, with_tally: bool = False) -> Run:
    """Read a run folder or a head card back; see `headscope.resolve.load`.

    A head card is a .json file. Its run has all heads, and the evidence on tags and near misses.

    Raises:
        RunError: no run there, or one that was altered, cut short, or put together by hand.
    """
    if Path(folder).suffix == ".json" and not Path(folder).is_dir():
        return Run.of(read_card(folder))
    return Run.of(resolve.load(folder, with_tally=with_tally))


@checked
def score_patterns(
    patterns: Any,
    windows: Any = None,
    tokens: Any = None,
    **options: Any,
) -> Run:
    """Score attention patterns without a model; see `headscope.from_patterns.score_patterns`.

    Args:
        patterns: arrays, an ActivationCache, transformers' `outputs.attentions`, what `patterns`
            returns, the path of a .npz or .json file, or a function of a window.
        windows: the windows of the patterns, or documents together with `tokens`. What `patterns`
            returns needs none.
        tokens: the tokens of documents, as text.
        options: `types`, `relations`, `name`, `sinks`, `language`, `seed` and `progress`.

    Raises:
        PatternError: an array does not fit its window, or holds no causal attention.
        CorpusError: nothing in the windows can be scored for these types.

    >>> import numpy as np
    >>> tokens = ["<s>", *"abcdefgh"]
    >>> previous = np.eye(9, k=-1)
    >>> previous[0, 0] = 1
    >>> run = score_patterns(previous[None, None], None, tokens)
    >>> run.evidence.set_index("relation").loc["offset-1", ["mass", "control"]].tolist()
    [1.0, 0.0]
    """
    from headscope.from_patterns import score_patterns as score

    return Run.of(score(patterns, windows, tokens, **options))


@checked
def windows(
    corpus: Corpus,
    tokenizer: Any,
    *,
    max_length: Annotated[int, Field(ge=8, le=LARGEST)] = 256,
    max_tokens: MaxTokens = MAX_TOKENS,
    seed: Seed = 0,
    attention_kind: KindName = CAUSAL,
) -> list[Window]:
    """The windows of text that `classify` would read.

    Args:
        corpus: files or folders of CoNLL-U or plain text, or the name of a corpus that ships;
            `gum` when None.
        tokenizer: a fast tokenizer of transformers, a loaded model, or the name or folder of a
            model that is loaded for its own.
        max_length: longest window in tokens, the beginning-of-text token included.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the order of the files in a folder.
        attention_kind: `bidirectional` for the windows of an encoder, whose tokens see those after
            them too.

    Raises:
        CorpusError: a corpus cannot be read.
        ModelError: the tokenizer gives no character offsets, or has no beginning-of-text token.
    """
    from headscope.models.model import Model as LoadedModel
    from headscope.models.tokenizer import Tokenizer

    # a model is loaded only for its own tokenizer
    encoder = tokenizer
    if isinstance(tokenizer, str | Path | LoadedModel):
        encoder = resolve.the_model(tokenizer).tokenizer
    elif not isinstance(tokenizer, Tokenizer):
        name = str(getattr(tokenizer, "name_or_path", "") or "it")
        encoder = Tokenizer(tokenizer, name=name, attention_kind=kind_of(attention_kind))
    corpora = asked_corpora(corpus)
    return list(
        TextWindows(corpora, encoder, max_tokens=max_tokens, max_length=max_length, seed=seed)
    )
