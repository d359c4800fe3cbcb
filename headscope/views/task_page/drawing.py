"""A task's circuit as SVG: on light paper as a figure, in the page's colours within the page.

Attributes give the colours of paper. The page's sheet overrides them by the shapes' classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Any

from headscope.heads import layer_name
from headscope.printing import visible
from headscope.views.task_page.layout import (
    MARGIN,
    NAME_SIZE,
    NODE_HEIGHT,
    NOTE_SIZE,
    OTHER,
    ROLE_SIZE,
    TOKEN_SIZE,
    Edge,
    Layout,
    Node,
    column_of,
    effect_of,
    lay_out,
    mean_of,
    short,
    strength,
    text_width,
)
from headscope.views.task_page.words import lead, minus, result

COLOURS = {"query": "#2b4bc0", "key": "#d55e00", "value": "#1b9864"}
"""Blue, vermillion and green of a hue that the colour-blind of any kind tell apart."""
INK, DIM, RULE, SOFT, BAR, PAPER = "#1b1b1f", "#5a5a66", "#d9d9e0", "#f4f4f7", "#cfcfda", "#ffffff"
_THIN, _THICK = 1.3, 7.5  # widths of the weakest and of the strongest edge
_SIDE = 14.0  # free paper around the drawing


def circuit_figure(circuit: Mapping[str, Any]) -> str:
    """The circuit as a standalone SVG for a paper: light, text as text, no script or font file."""
    return draw(circuit, lay_out(circuit), has_heading=True)


def draw(circuit: Mapping[str, Any], layout: Layout, *, has_heading: bool) -> str:
    """Tokens below, heads above the role that they act from, edges from sender to receiver."""
    # the heading and the legend need some width, however few tokens there are
    width = max(layout.width, 560.0)
    heading, above = _heading(circuit, width) if has_heading else ([], 6.0)
    legend, below = _legend(circuit, layout, width)
    total_width = width + 2 * _SIDE
    total_height = above + layout.height + 62 + below + _SIDE

    # guides lie behind edges, edges behind nodes
    name = escape(f"Circuit: {result(circuit)}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width:.0f} '
        f'{total_height:.0f}" width="{total_width:.0f}" height="{total_height:.0f}" '
        f'font-family="sans-serif" role="img" aria-label="{name}">',
        f'<rect class="paper" width="100%" height="100%" fill="{PAPER}"/>',
        f'<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect class="soft" width="5" height="5" fill="{SOFT}"/>'
        f'<rect class="amount" width="2.4" height="5" fill="{BAR}"/></pattern></defs>',
        *heading,
        f'<g transform="translate({_SIDE} {above:.0f})">',
        *_guides(layout, width),
        *_edges(layout),
        *(_node(node, circuit) for node in layout.nodes),
        *_ports(layout.edges),
        *_tokens(layout),
        f'<g transform="translate(0 {layout.height + 62:.0f})">',
        *legend,
        "</g></g></svg>",
    ]
    return "\n".join(parts)


def _has_circuit(circuit: Mapping[str, Any]) -> bool:
    """False if nothing was judged: then no head is in the circuit or outside."""
    return bool((circuit.get("circuit") or {}).get("heads"))


def _text(
    x: float | int,
    y: float | int,
    text: str,
    *,
    size: float,
    kind: str = "ink",
    anchor: str = "middle",
) -> str:
    """A line of visible text; the kind is `ink` or `dim`, with `bold` after it."""
    colour = DIM if "dim" in kind else INK
    style = f"font-size:{size}px"
    if "bold" in kind:
        style += ";font-weight:600"
    return (
        f'<text class="{kind.split()[0]}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'fill="{colour}" style="{style}">{escape(text)}</text>'
    )


def _heading(circuit: Mapping[str, Any], width: float) -> tuple[list[str], float]:
    """The result, and below it what was measured; the height of both."""
    task, model = circuit.get("task") or {}, circuit.get("model") or {}
    below = visible(f"{task.get('name', '')} in {model.get('name', '')}: {lead(circuit)}")
    y, heading = 10.0, []
    # bold letters are wider
    for line in wrapped(result(circuit), 16 * 1.08, width):
        y += 15
        heading.append(_text(_SIDE, y, line, size=16.0, kind="ink bold", anchor="start"))
    for line in wrapped(below, 11.0, width):
        y += 15
        heading.append(_text(_SIDE, y, line, size=11.0, kind="dim", anchor="start"))
    return heading, y + 18


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A text in lines of a width, broken at plain spaces alone."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _guides(layout: Layout, width: float) -> list[str]:
    """A faint line for each row and for each role that has a node or an edge."""
    lines = []
    # rows with the names of their layers, smaller where they would not fit
    for (layer, is_mlp), y in layout.rows.items():
        label = f"MLP {layer}" if is_mlp else layer_name(layer)
        lines.append(
            f'<line class="rule" x1="{MARGIN - 8}" x2="{width:.0f}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{RULE}" stroke-width="0.7"/>'
        )
        size = ROLE_SIZE if text_width(label, ROLE_SIZE) < MARGIN - 12 else 9.5
        lines.append(_text(MARGIN - 14, y + 4, label, size=size, kind="dim", anchor="end"))
    # a role without a node or an edge needs no line
    roles = {node.role for node in layout.nodes} | {edge.sender.role for edge in layout.edges}
    for role in sorted(roles):
        x = column_of(layout.columns, role).x
        lines.append(
            f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{layout.height:.1f}" '
            f'stroke="{RULE}" stroke-width="0.7" stroke-dasharray="2 3"/>'
        )
    return lines


def edge_width(effect: float | None, strongest: float) -> float:
    """Width of the line of an edge by the size of its effect."""
    share = abs(effect or 0.0) / strongest if strongest else 0.0
    return _THIN + (_THICK - _THIN) * min(1.0, share)


def _strongest(edges: Iterable[Edge]) -> float:
    return max((abs(mean_of(edge.entry.get("effect")) or 0.0) for edge in edges), default=0.0)


def raises(value: Any) -> bool:
    """True for an effect above 0: without it the task goes better."""
    return (mean_of(value) or 0.0) > 0


def _edges(layout: Layout) -> list[str]:
    """Curves, the strongest first, so that no thin one is hidden."""
    strongest = _strongest(layout.edges)
    lines = []
    for edge in layout.edges:
        # width shows the size of an effect, and a hollow line one above 0; colours alone would
        # leave out readers who do not tell them apart
        effect, via = mean_of(edge.entry.get("effect")), str(edge.entry.get("via"))
        (x1, y1), (x2, y2), (x3, y3), (x4, y4) = edge.points
        path = f"M{x1:.1f} {y1:.1f}C{x2:.1f} {y2:.1f} {x3:.1f} {y3:.1f} {x4:.1f} {y4:.1f}"
        is_hollow = raises(edge.entry.get("effect"))
        thick = max(edge_width(effect, strongest), 3.6 if is_hollow else 0)
        # a drawing without paths shows attention, which has no input and no test
        if edge.number is None:
            thick = 0.8 + 3.2 * (mean_of(edge.entry.get("mass")) or 0.0)
            stroke = f'stroke="{DIM}" stroke-width="{thick:.2f}" stroke-opacity="0.45"'
            lines.append(f'<path class="attends" d="{path}" fill="none" {stroke}/>')
            continue
        # a path that no exact run confirmed is dashed
        dashes = "" if edge.entry.get("confirmed") else ' stroke-dasharray="6 4"'
        colour = COLOURS.get(via, DIM)
        curve = f'd="{path}" fill="none" stroke-linecap="butt"'
        lines.append(
            f'<g class="edge" data-edge="{edge.number}">'
            f'<path class="{via if via in COLOURS else "rule"}" {curve} stroke="{colour}" '
            f'stroke-width="{thick:.2f}"{dashes} stroke-opacity="0.85"/>'
        )
        if is_hollow:
            core = f'stroke="{PAPER}" stroke-width="{thick * 0.45:.2f}"'
            lines.append(f'<path class="core" {curve} {core}/>')
        lines.append("</g>")
    return lines


def _ports(edges: Iterable[Edge]) -> list[str]:
    """The letter of its input where an edge enters a head."""
    ports = {}
    for edge in edges:
        via = str(edge.entry.get("via"))
        ports[edge.receiver.name, via] = (*edge.points[3], via)
    lines = []
    for x, y, via in ports.values():
        if via in COLOURS:
            lines.append(
                f'<circle class="port {via}" cx="{x:.1f}" cy="{y:.1f}" r="5.6" fill="{PAPER}" '
                f'stroke="{COLOURS[via]}" stroke-width="1.4"/>'
            )
            lines.append(_text(x, y + 2.9, via[0].upper(), size=8.0, kind="ink bold"))
    return lines


def _node(node: Node, circuit: Mapping[str, Any]) -> str:
    """A box with the head's name, its effect as a number and a bar, and where it attends."""
    # an MLP has no effect of its own here, and no attention
    width, name = node.width, visible(node.name)
    x, y = node.x - width / 2, node.y - NODE_HEIGHT / 2
    box = f'x="{x:.1f}" y="{y:.1f}" height="{NODE_HEIGHT}"'
    if node.head is None:
        return (
            f'<g class="node" data-node="{escape(name)}"><rect class="paper edgeless" '
            f'{box} width="{width}" rx="2" fill="{PAPER}" stroke="{DIM}"/>'
            f"{_text(node.x, node.y + 4, name, size=ROLE_SIZE)}</g>"
        )

    # the bar is the effect as a share of the strongest head's, hatched if it is above 0
    effect = effect_of(node.head)
    strongest = max([strength(node.head), *(strength(head) for head in circuit["heads"])])
    share = strength(node.head) / strongest if strongest else 0.0
    is_inside = bool(node.head.get("in_circuit")) or not _has_circuit(circuit)
    side = "inside" if is_inside else "outside"
    bar = 'fill="url(#hatch)"' if raises(effect) else f'fill="{BAR}"'
    line = node.y - 4 if node.attends else node.y + 4
    parts = [
        f'<g class="node head {side}" data-head="{escape(name)}">',
        f'<rect class="box" {box} width="{width:.1f}" rx="5" fill="{SOFT}" '
        f'stroke="{INK if is_inside else RULE}" stroke-width="{1.2 if is_inside else 1}"/>',
        f'<rect class="amount{" hatched" if raises(effect) else ""}" x="{x + 1.2:.1f}" '
        f'y="{y + 1.2:.1f}" width="{max(0.5, share * (width - 2.4)):.1f}" '
        f'height="{NODE_HEIGHT - 2.4}" rx="4" {bar}/>',
        _text(x + 8, line, name, size=NAME_SIZE, kind="ink bold", anchor="start"),
        _text(x + width - 8, line, minus(effect), size=NOTE_SIZE, anchor="end"),
    ]

    # second line: where the head attends, and how much
    below = node.y + 10.5
    if node.attends:
        parts.append(_text(x + 8, below, node.attends, size=NOTE_SIZE, anchor="start"))
    if node.share:
        parts.append(_text(x + width - 8, below, node.share, size=NOTE_SIZE, anchor="end"))
    return "".join([*parts, "</g>"])


def _tokens(layout: Layout) -> list[str]:
    """The prompt along the bottom, each stretch of a role underlined with the role's name."""
    lines = []
    y = layout.height + 18
    # neighbours of one role share a line, and its name stands once below the last of them
    for role, run in groupby(layout.columns, lambda column: (column.role, not column.tokens)):
        members = list(run)
        if role[0] != OTHER or role[1]:
            start = members[0].x - members[0].width / 2 + 2
            end = members[-1].x + members[-1].width / 2 - 2
            lines.append(
                f'<rect class="soft" x="{start:.1f}" y="{y - 15:.1f}" width="{end - start:.1f}" '
                f'height="21" rx="3" fill="{SOFT}"/>'
                f'<line class="under" x1="{start:.1f}" x2="{end:.1f}" y1="{y + 8:.1f}" '
                f'y2="{y + 8:.1f}" stroke="{DIM}" stroke-width="1.2"/>'
            )
            name = short(role[0])
            lines.append(_text(members[-1].x, y + 22, name, size=ROLE_SIZE, kind="dim"))
        for column in members:
            lines.append(_text(column.x, y, column.text, size=TOKEN_SIZE))
    return lines


def _legend(circuit: Mapping[str, Any], layout: Layout, width: float) -> tuple[list[str], float]:
    """Only the signs that the drawing uses, in as many lines as they need; their height."""
    unit = visible(str((circuit.get("task") or {}).get("unit") or " ")).strip()
    edges = [edge for edge in layout.edges if edge.number is not None]
    strongest = _strongest(edges)
    vias = [via for via in COLOURS if any(edge.entry.get("via") == via for edge in edges)]

    # samples of a line and of a box, drawn as in the figure
    def line(kind: str, colour: str, thick: float = 3.0, style: str = "") -> str:
        return (
            f'<line class="{kind}" x1="0" x2="26" y1="-4" y2="-4" stroke="{colour}" '
            f'stroke-width="{thick:.1f}"{style}/>'
        )

    def box(shape: str) -> str:
        return f'<rect class="{shape}" y="-11" x="0" width="26" height="14" rx="3" '

    # a sign and its words for whatever the drawing has
    signs = [(line(via, COLOURS[via]), f"into {PLURAL[via]}") for via in vias]
    if len(edges) < len(layout.edges):
        attends = line("attends", DIM, 2.0, ' stroke-opacity="0.45"')
        signs.append((attends, "attends to, thicker: more"))
    if any(not edge.entry.get("confirmed") for edge in edges):
        signs.append((line("under", DIM, 2.0, ' stroke-dasharray="6 4"'), "not confirmed"))
    if strongest:
        thick = line("under", DIM, _THICK)
        signs.append((thick, f"path’s effect of {strongest:.2f} {unit}, thinner: less".strip()))
    if any(raises(edge.entry.get("effect")) for edge in edges):
        hollow = line("under", DIM, 5.0) + line("core", PAPER, 2.0)
        signs.append((hollow, "better without this path"))
    heads = [node.head for node in layout.nodes if node.head]
    if heads:
        bar = box("amount") + f'fill="{BAR}"/>'
        is_estimate = all(mean_of(head.get("effect")) is None for head in heads)
        what = "estimated effect of the head" if is_estimate else "effect of the head"
        signs.append((bar, f"{what}, {unit}; → where it attends, with its share"))
        # a row of several heads has no room for all above one token
        guide = line("rule", RULE, 0.7, ' stroke-dasharray="2 3"')
        signs.append((guide, "the token from which heads above it, or beside, act"))
    if any(raises(effect_of(head)) for head in heads):
        hatched = box("amount hatched") + 'fill="url(#hatch)"/>'
        signs.append((hatched, "better without this head"))
    if _has_circuit(circuit) and any(not head.get("in_circuit") for head in heads):
        signs.append(
            (box("box outside") + f'fill="{SOFT}" stroke="{RULE}"/>', "not in the circuit")
        )

    # in lines of the drawing's width
    parts, x, y = [], float(MARGIN - 36), 14.0
    for sign, words in signs:
        needed = 34 + text_width(words, ROLE_SIZE) + 22
        if x + needed > width and x > MARGIN:
            x, y = float(MARGIN - 36), y + 19
        parts.append(
            f'<g transform="translate({x:.1f} {y:.1f})">{sign}'
            f"{_text(33.0, 0.0, words, size=ROLE_SIZE, kind='dim', anchor='start')}</g>"
        )
        x += needed
    return parts, y + 6 if signs else 0.0


PLURAL = {"query": "queries", "key": "keys", "value": "values"}
"""A head's three inputs."""
