"""Trees in the order of their words, written as CoNLL-U with `Entity=` mentions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """A word with its dependents: `before` and `after` it, each with its UD relation.

    `outside` holds what stands before the word's mention and is no part of it: a preposition, a
    conjunction, a comma.
    """

    form: str
    lemma: str
    upos: str
    feats: str = "_"
    before: list[tuple[str, Node]] = field(default_factory=list)
    after: list[tuple[str, Node]] = field(default_factory=list)
    outside: list[tuple[str, Node]] = field(default_factory=list)
    entity: str | None = None
    """Id, type and agreement of the entity that the word with all its dependents refers to."""

    def add(self, deprel: str, *nodes: Node) -> Node:
        """Put dependents after the word; the word itself, for chaining."""
        self.after.extend((deprel, node) for node in nodes)
        return self

    def put(self, deprel: str, *nodes: Node) -> Node:
        """Put dependents before the word, the last one next to it."""
        self.before.extend((deprel, node) for node in nodes)
        return self

    def led_by(self, deprel: str, node: Node) -> Node:
        """Put a word before the mention: a preposition, a conjunction or a comma."""
        self.outside.append((deprel, node))
        return self


def write_sentence(root: Node, name: str, *, paragraph: bool) -> str:
    """One sentence as CoNLL-U lines, its first letter in upper case, with a full stop."""
    root.add("punct", Node(".", ".", "PUNCT"))
    words: list[Node] = []
    links: dict[Node, tuple[str, Node | None]] = {root: ("root", None)}
    opens: dict[Node, list[str]] = {}
    closes: dict[Node, list[str]] = {}

    def walk(node: Node) -> None:
        for deprel, child in node.outside:
            links[child] = (deprel, node)
            walk(child)
        first = len(words)
        for deprel, child in node.before:
            links[child] = (deprel, node)
            walk(child)
        words.append(node)
        for deprel, child in node.after:
            links[child] = (deprel, node)
            walk(child)
        if node.entity:
            opens.setdefault(words[first], []).insert(0, node.entity)
            closes.setdefault(words[-1], []).append(node.entity)

    walk(root)
    spaces = [not _joins(right) for right in words[1:]] + [True]
    forms = [w.form[0].upper() + w.form[1:] if i == 0 else w.form for i, w in enumerate(words)]
    number = {node: i for i, node in enumerate(words, 1)}
    text = "".join(form + " " * space for form, space in zip(forms, spaces, strict=True)).rstrip()
    lines = ["# newpar"] if paragraph else []
    lines += [f"# sent_id = {name}", f"# text = {text}"]
    for node, form, space in zip(words, forms, spaces, strict=True):
        deprel, head = links[node]
        misc = []
        if marks := _brackets(opens.get(node, []), closes.get(node, [])):
            misc.append(f"Entity={marks}")
        if not space:
            misc.append("SpaceAfter=No")
        columns = [
            str(number[node]),
            form,
            node.lemma,
            node.upos,
            "_",
            node.feats,
            str(number[head]) if head else "0",
            deprel,
            "_",
            "|".join(misc) or "_",
        ]
        lines.append("\t".join(columns))
    return "\n".join(lines) + "\n"


def _joins(word: Node) -> bool:
    """True if no space comes before the word: punctuation and the possessive."""
    return word.upos == "PUNCT" or (word.upos == "PART" and word.form != "to")


def _brackets(opened: list[str], closed: list[str]) -> str:
    both = [entity for entity in opened if entity in closed]
    longer = "".join(f"({entity}" for entity in opened if entity not in both)
    ended = [entity.split("-")[0] + ")" for entity in closed if entity not in both]
    return longer + "".join(f"({entity})" for entity in both) + "".join(ended)
