"""Layout of the drawing of a task's circuit: places of tokens, heads and edges."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from einops import einsum
from jaxtyping import Float
from numpy import ndarray

from headscope.printing import visible

OTHER = "other"
"""Role of positions that have no role of their own."""
EMBEDDING = "embedding"
MOST_HEADS, MOST_EDGES = 12, 60
"""Heads that are drawn if no circuit was measured, and the largest number of edges."""

NODE_HEIGHT = 37
ROW_GAP = 36  # between rows: room for the curves
MARGIN = 52  # width of the names of layers
TOKEN_SIZE, ROLE_SIZE, NAME_SIZE, NOTE_SIZE = 12.5, 11.0, 12.0, 10.5
_TOKEN_GAP, _LANE_GAP = 9, 17
_WIDE = 820  # width from which tokens without a role in the drawing are folded
_HEAD = re.compile(r"L\d+H\d+")
_LONGEST = 16  # letters of a token or a role
_PORTS = {"query": -22.0, "key": 0.0, "value": 22.0}
"""The place at which an edge enters its receiver, beside the middle of the node."""
_BENDS = (0, -45, 45, -110, 110)
_SHAPES = np.array(
    [
        (lower, upper, start, end)
        for lower, upper in ((0.45, 0.45), (0.95, 0.2), (0.2, 0.95), (0.75, 0.75))
        for start in _BENDS
        for end in _BENDS
    ],
    dtype=float,
)
"""Ways of a curve around nodes: how far it stays upright and how it bends, below and above."""
_PLAIN = _SHAPES[(_SHAPES[:, 2] == 0) & (_SHAPES[:, 3] == 0)]
"""Shapes that are tried while nodes still look for their lanes."""
_T = np.linspace(0.05, 0.95, 14)
_BERNSTEIN = np.stack([(1 - _T) ** 3, 3 * _T * (1 - _T) ** 2, 3 * _T**2 * (1 - _T), _T**3], axis=1)
"""Weights of a cubic curve's four points at samples between its ends."""


def mean_of(value: Any) -> float | None:
    """The mean of an estimate with its interval, or a bare number; None if it is missing."""
    number = value.get("mean") if isinstance(value, Mapping) else value
    if not isinstance(number, int | float) or number != number:
        return None
    return float(number)


def short(text: str, letters: int = _LONGEST) -> str:
    r"""A text as it can be seen, cut to so many letters.

    >>> short("a\nb"), short("internationalisation")
    ('a↵b', 'internationalis…')
    """
    seen = visible(text)
    return seen if len(seen) <= letters else seen[: letters - 1] + "…"


def text_width(text: str, size: float) -> float:
    """Width of a text in the widest of the common sans-serif fonts, DejaVu Sans.

    A page takes the sans-serif font of its reader: text that fits in this one fits in the others.
    """
    width = 0.0
    for letter in text:
        if unicodedata.combining(letter):
            continue
        if unicodedata.east_asian_width(letter) in "WF" or letter in "mW%@→…":
            width += 1.02
        elif letter in "iljtfrI.,:;·'’|/\\-!()[] \N{NO-BREAK SPACE}":
            width += 0.41
        elif letter in "wM#&+<=>^~−±×≤≥↵":
            width += 0.87
        else:
            width += 0.79 if letter.isupper() else 0.65
    return width * size


@dataclass
class TokenColumn:
    """A token of the prompt, several that are folded, or a role that the prompt lacks."""

    text: str
    role: str
    width: float
    tokens: list[int] = field(default_factory=list)
    x: float = 0.0


@dataclass
class Node:
    """A head, or an MLP at one role. The embedding at a role is its token."""

    name: str
    role: str
    row: tuple[int, int]
    """Layer, and 1 for an MLP, which stands above the heads of its layer."""
    head: Mapping[str, Any] | None = None
    attends: str = ""
    """Role of the keys that it attends to, and its share of attention there."""
    share: str = ""
    lane: int = 0
    x: float = 0.0
    y: float = 0.0
    width: float = 58.0


@dataclass
class Edge:
    """A direct path into a head's queries, keys or values, and the curve that shows it."""

    number: int | None
    """Place in the list of paths; None for a head's attention on a role."""
    entry: Mapping[str, Any]
    """The entry in that list."""
    sender: Node
    receiver: Node
    points: Float[ndarray, "point xy"] = field(default_factory=lambda: np.zeros((4, 2)))


@dataclass
class Layout:
    """Everything in the drawing but its heading and its legend."""

    columns: list[TokenColumn]
    nodes: list[Node]
    edges: list[Edge]
    rows: dict[tuple[int, int], float]
    """The middle of each row of heads or of MLPs."""
    width: float
    height: float
    """Down to the top of the tokens."""
    prompt: int | None
    """Number of the prompt whose tokens are shown."""
    omitted: int
    """Edges that are not drawn."""


def lay_out(circuit: Mapping[str, Any]) -> Layout:
    """Columns of tokens, rows of layers, nodes without overlap and curves around them."""
    nodes, edges, omitted = _parts(circuit)
    entries = [_main_attention(node.head) for node in nodes]
    attended = {str(entry["to"]) for entry in entries if entry} - {OTHER}
    number, columns = _columns(circuit.get("prompts") or [], {n.role for n in nodes}, attended)

    # rows from the last layer down; a row of MLPs only where one is drawn
    rows: dict[tuple[int, int], float] = {}
    y = NODE_HEIGHT / 2 + 8
    for row in sorted({node.row for node in nodes if node.name != EMBEDDING}, reverse=True):
        rows[row] = y
        y += NODE_HEIGHT + ROW_GAP
    height = y + 4 if rows else 60.0

    # columns wide enough for the nodes that stand beside each other
    head_nodes = [node for node in nodes if node.head]
    head_width = 0.0
    for node in head_nodes:
        first = text_width(node.name, NAME_SIZE) * 1.08 + text_width("−0.00", NOTE_SIZE) + 26
        second = text_width(node.attends, NOTE_SIZE) + text_width(node.share, NOTE_SIZE) + 26
        head_width = max(head_width, first, second)
    for node in head_nodes:
        node.width = head_width
    lanes = {column.role: _lanes(nodes, column.role) for column in columns}
    width = _spread(columns, lanes, {node.role for node in nodes})

    # nodes in lanes, then of each edge the curve that is hidden least and stays on the paper
    _settle(nodes, edges, lanes=lanes, columns=columns, rows=rows)
    curves = _curves(edges, _SHAPES)
    costs = _costs(curves, _SHAPES, edges, nodes)
    is_outside = (curves[..., 0] < MARGIN) | (curves[..., 0] > width)
    costs += is_outside.sum(-1)
    for at, edge in enumerate(edges):
        edge.points = curves[at, int(costs[at].argmin())]
        width = max(width, float(edge.points[:, 0].max()))

    # the embedding is drawn as the token
    boxes = [node for node in nodes if node.name != EMBEDDING]
    return Layout(columns, boxes, edges, rows, width, height, prompt=number, omitted=omitted)


def _parts(circuit: Mapping[str, Any]) -> tuple[list[Node], list[Edge], int]:
    """The nodes and edges to draw, and the number of edges that are left to the table."""
    heads = {str(head["name"]): head for head in circuit.get("heads") or []}
    edges = list(enumerate(circuit.get("edges") or []))
    edges.sort(key=lambda edge: -abs(mean_of(edge[1].get("effect")) or 0))
    is_drawn = {name for name, head in heads.items() if head.get("in_circuit")}
    for _, edge in edges:
        if edge.get("confirmed"):
            is_drawn |= {str(edge["from"]), str(edge["to"])} & set(heads)
    if not is_drawn:
        strongest = sorted(heads, key=lambda name: -strength(heads[name]))
        is_drawn = set(strongest[:MOST_HEADS])

    # a head is drawn once, above the role that it acts from
    nodes: dict[tuple[str, str], Node] = {}
    for name, head in heads.items():
        if name in is_drawn:
            role = acting_role(head, circuit)
            entry = _main_attention(head) or {}
            share = mean_of(entry.get("mass"))
            nodes[name, ""] = Node(
                name,
                role,
                (int(head["layer"]), 0),
                head,
                attends=f"→ {short(str(entry['to']), 12)}" if entry else "",
                share="" if share is None else f"{share:.2f}".removeprefix("0"),
            )

    # paths, the strongest first, as far as both ends are drawn
    curves: list[Edge] = []
    for number, edge in edges:
        receiver, name = nodes.get((str(edge["to"]), "")), str(edge["from"])
        # a sender among the heads is drawn if the drawing has it
        is_known = (name, "") in nodes or not _HEAD.fullmatch(name)
        if receiver is None or len(curves) == MOST_EDGES or not is_known:
            continue
        # an MLP and the embedding act at every position: a node for each role
        key = (name, "") if name in heads else (name, str(edge.get("role") or OTHER))
        if key not in nodes:
            number_of_mlp = name.removeprefix("MLP")
            layer = int(number_of_mlp) if number_of_mlp.isdecimal() else -1
            nodes[key] = Node(name, key[1] or OTHER, (layer, 1))
        curves.append(Edge(number, edge, nodes[key], receiver))
    omitted = len(edges) - len(curves)

    # without paths the drawing shows from where to where heads attend
    for node in [] if curves else list(nodes.values()):
        main = _main_attention(node.head)
        if main is not None and main["to"] != OTHER:
            key = (EMBEDDING, str(main["to"]))
            nodes.setdefault(key, Node(EMBEDDING, key[1], (-1, 1)))
            curves.append(Edge(None, main, nodes[key], node))
    return list(nodes.values()), curves, omitted


def effect_of(head: Mapping[str, Any]) -> float | None:
    """A head's effect; if it was not measured, its estimate."""
    values = [mean_of(head.get(name)) for name in ("effect", "smooth", "attribution")]
    return next((value for value in values if value is not None), None)


def strength(head: Mapping[str, Any]) -> float:
    """Size of a head's effect or of its estimate."""
    return abs(effect_of(head) or 0.0)


def _main_attention(head: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The roles between which cutting attention does most: the first that is listed."""
    entries: Sequence[Mapping[str, Any]] = (head or {}).get("attention") or []
    return next(iter(entries), None)


def acting_role(head: Mapping[str, Any], circuit: Mapping[str, Any]) -> str:
    """The role of the positions whose queries make a head matter."""
    if entry := _main_attention(head):
        return str(entry["from"])
    # without attention, the edges tell: a head writes where it is read, and reads with its queries
    sizes: dict[str, float] = {}
    for edge in circuit.get("edges") or []:
        reads = edge["to"] == head["name"] and edge.get("via") == "query"
        if reads or edge["from"] == head["name"]:
            role = str(edge.get("role") or OTHER)
            sizes[role] = sizes.get(role, 0) + abs(mean_of(edge.get("effect")) or 0)
    return max(sizes, key=lambda role: sizes[role], default=OTHER)


def _columns(
    prompts: Sequence[Mapping[str, Any]], acting: set[str], attended: set[str]
) -> tuple[int | None, list[TokenColumn]]:
    """The prompt that has the most of the roles, and its tokens as columns.

    Tokens whose role is not in the drawing are folded if the prompt is wide. A role that has nodes
    and that the prompt lacks has a column of its own.
    """
    # the prompt with most of these roles, and of several the shortest
    roles = acting | attended
    order = range(len(prompts))
    number = min(
        order,
        key=lambda at: (-len(roles & set(prompts[at]["roles"])), len(prompts[at]["tokens"])),
        default=None,
    )
    columns = []
    if number is not None:
        pairs = zip(prompts[number]["tokens"], prompts[number]["roles"], strict=True)
        for at, (token, role) in enumerate(pairs):
            text = short(token.strip(" ") or token)
            columns.append(TokenColumn(text, str(role or OTHER), 0.0, [at]))
    # a wide prompt is folded where nothing happens
    if sum(text_width(column.text, TOKEN_SIZE) + 8 + _TOKEN_GAP for column in columns) > _WIDE:
        folded = []
        for is_quiet, run in groupby(
            columns, lambda column: column.role not in roles or column.role == OTHER
        ):
            members = list(run)
            if is_quiet and len(members) > 1:
                tokens = [at for column in members for at in column.tokens]
                members = [TokenColumn("…", OTHER, 0.0, tokens)]
            folded.extend(members)
        columns = folded
    # a role that acts and that this prompt lacks has a column without a token
    present = {column.role for column in columns} - {OTHER}
    missing = [TokenColumn("–", role, 0.0) for role in sorted(acting - present)]
    columns = [*missing, *columns]

    # a role is named below the last of its tokens, if the drawing uses it or it is short
    for at, column in enumerate(columns):
        column.width = text_width(column.text, TOKEN_SIZE) + 8
        is_last = at + 1 == len(columns) or columns[at + 1].role != column.role
        if (column.role != OTHER and is_last) or not column.tokens:
            column.width = max(column.width, text_width(short(column.role), ROLE_SIZE) + 6)
    return number, columns


def column_of(columns: Sequence[TokenColumn], role: str) -> TokenColumn:
    """The last column of a role; of `other`, the one that stands for it."""
    matches = [column for column in columns if column.role == role]
    if role == OTHER:
        matches = [column for column in matches if not column.tokens]
    return matches[-1]


@dataclass(frozen=True)
class Lanes:
    """Upright lanes for the nodes above a role: their number and their distance."""

    count: int
    step: float


def _lanes(nodes: Sequence[Node], role: str) -> Lanes:
    """As many lanes as one layer needs, and some room for curves."""
    members = [node for node in nodes if node.role == role]
    rows = [node.row for node in members if node.name != EMBEDDING]
    if not rows:
        return Lanes(1, 0.0)
    fullest_row = max(map(rows.count, rows))

    # one more where curves have nodes to pass, and a third where these are many; an MLP makes way
    # for what comes from the token below it
    is_read = any(node.name == EMBEDDING for node in members)
    has_mlp = any(node.head is None for node in members if node.name != EMBEDDING)
    uses = len(set(rows)) + is_read
    with_curves = 1
    if uses > 2 or (is_read and has_mlp):
        with_curves += 1
    if uses > 6:
        with_curves += 1
    widest = max(node.width for node in members)
    return Lanes(max(fullest_row, with_curves), widest + _LANE_GAP)


def _spread(columns: list[TokenColumn], lanes: Mapping[str, Lanes], roles: set[str]) -> float:
    """Give the columns their middles, in their order; the width of all of them."""
    last_end, last_half, previous, edge = 0, 0.0, MARGIN + 0.0, MARGIN + 0.0
    for at, column in enumerate(columns):
        column.x = previous + column.width / 2
        previous = column.x + column.width / 2 + _TOKEN_GAP
        edge = max(edge, previous)
        if column.role not in roles or column is not column_of(columns, column.role):
            continue
        # nodes stand above the last token of their role, and must not reach into those of the role
        # before
        half = max(lanes[column.role].count * lanes[column.role].step, column.width) / 2
        start = columns[last_end].x + last_half if last_half else float(MARGIN)
        lack = start + half - column.x
        if lack > 0:
            # the tokens since the last column with nodes share the room
            since = range(last_end + 1 if last_half else 0, at + 1)
            for step, shifted in enumerate(since, start=1):
                columns[shifted].x += lack * step / len(since)
            previous += lack
        last_end, last_half = at, half
        edge = max(edge, column.x + half)
    return max(edge, previous)


def _settle(
    nodes: list[Node],
    edges: list[Edge],
    *,
    lanes: Mapping[str, Lanes],
    columns: Sequence[TokenColumn],
    rows: Mapping[tuple[int, int], float],
) -> None:
    """Choose lanes so that few curves pass behind nodes; then all nodes have their places."""

    def move() -> None:
        for node in nodes:
            # the embedding stands at its token, the middle of the column
            node.x = column_of(columns, node.role).x
            node.y = max(rows.values()) + NODE_HEIGHT + ROW_GAP + 12
            if node.name != EMBEDDING:
                node.x += (node.lane - (lanes[node.role].count - 1) / 2) * lanes[node.role].step
                node.y = rows[node.row]

    def cost() -> float:
        move()
        costs = _costs(_curves(edges, _PLAIN), _PLAIN, edges, nodes)
        spans = [abs(edge.sender.x - edge.receiver.x) for edge in edges]
        return float(costs.min(axis=1).sum()) + sum(spans) / 200 if edges else 0.0

    # the strongest head of a row stands in the middle at first, the others around it
    for _, group in groupby(sorted(nodes, key=_place_key), key=_place_key):
        for order, node in enumerate(group):
            count = lanes[node.role].count
            side = (order + 1) // 2 * (1 if order % 2 else -1)
            node.lane = ((count - 1) // 2 + side) % count

    # then each node tries all lanes, and changes places with the node that it meets there
    best = cost()
    for _ in range(2):
        before = best
        for node in nodes:
            for lane in range(lanes[node.role].count if node.name != EMBEDDING else 0):
                old = node.lane
                other = [one for one in nodes if _place_key(one) == _place_key(node)]
                swapped = next((one for one in other if one.lane == lane), node)
                swapped.lane, node.lane = old, lane
                value = cost()
                if value < best - 1e-9:
                    best = value
                else:
                    node.lane = old
                    swapped.lane = lane if swapped is not node else old
        if best == before:
            break
    move()


def _place_key(node: Node) -> tuple[str, tuple[int, int]]:
    return node.role, node.row


def _curves(
    edges: Sequence[Edge], shapes: Float[ndarray, "shape 4"]
) -> Float[ndarray, "edge shape point xy"]:
    """Each edge as a cubic Bézier curve in every shape, upright at both ends."""
    lower, upper, start_bend, end_bend = shapes.T
    curves = np.zeros((len(edges), len(shapes), 4, 2))
    for curve, edge in zip(curves, edges, strict=True):
        # from the top of the sender to the receiver's port
        start_x = edge.sender.x
        start_y = edge.sender.y - NODE_HEIGHT / 2
        end_x = edge.receiver.x + _PORTS.get(str(edge.entry.get("via")), 0.0)
        end_y = edge.receiver.y + NODE_HEIGHT / 2
        if edge.number is not None:
            end_y += 3  # room for the letter of the port

        # bent to a side between them
        rise = max(start_y - end_y, ROW_GAP)
        curve[:, 0] = start_x, start_y
        curve[:, 1, 0] = start_x + start_bend
        curve[:, 1, 1] = start_y - rise * lower
        curve[:, 2, 0] = end_x + end_bend
        curve[:, 2, 1] = end_y + rise * upper
        curve[:, 3] = end_x, end_y
    return curves


def _costs(
    curves: Float[ndarray, "edge shape point xy"],
    shapes: Float[ndarray, "shape 4"],
    edges: Sequence[Edge],
    nodes: Sequence[Node],
) -> Float[ndarray, "edge shape"]:
    """How much of each curve lies behind nodes, and a little for bends."""
    # samples of a curve within the box of a node that it neither leaves nor enters
    path = einsum(_BERNSTEIN, curves, "sample point, edge shape point xy -> edge shape sample xy")
    costs = np.zeros(curves.shape[:2])
    for node in nodes:
        if node.name == EMBEDDING:
            continue
        reach = np.array([node.width / 2 + 5, NODE_HEIGHT / 2 + 3])
        is_inside = (np.abs(path - [node.x, node.y]) < reach).all(-1)
        is_end = [node is edge.sender or node is edge.receiver for edge in edges]
        is_inside[np.array(is_end, bool)] = False
        costs += is_inside.sum(-1)

    # of curves that are as free, the straightest
    lower, _, start_bend, end_bend = shapes.T
    bends = np.abs(start_bend) + np.abs(end_bend)
    costs += 0.0015 * bends + 0.3 * np.abs(lower - 0.45)
    return costs
