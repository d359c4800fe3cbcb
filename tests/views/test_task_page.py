"""The page and the figure of a task's circuit: everything shown, nothing overlaps, text is text."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headscope.errors import PatternError
from headscope.printing import visible
from headscope.views.task_page import MOST_BYTES, circuit_figure, task_page
from headscope.views.task_page.drawing import COLOURS
from headscope.views.task_page.layout import text_width

RNG = np.random.default_rng


def estimate(mean: float, half: float = 0.15) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half}


def attention(role: str, to: str, mass: float, cut: float | None) -> dict:
    entry = {"from": role, "to": to, "mass": estimate(mass, 0.04), "control": 0.02}
    return entry | {"cut": None if cut is None else estimate(cut)}


def head(name: str, effect: float, *entries: dict, tags: str = "", inside: bool = True) -> dict:
    layer, number = name[1:].split("H")
    writes = {
        "answer": estimate(effect / -2),
        "wrong": estimate(0.1),
        "difference": estimate(effect / -2 - 0.1),
        "raises": [[" Anna", 1.25], [" Mary", 0.5]],
        "lowers": [[" Tom", -0.75], ["\n", -0.25]],
        "copies": 0.81,
    }
    return {
        "name": name,
        "layer": int(layer),
        "head": int(number),
        "effect": estimate(effect),
        "q_value": 0.001,
        "attribution": effect * 0.7,
        "tags": tags,
        "in_circuit": inside,
        "share": 0.4,
        "attention": list(entries),
        "writes": writes,
        "sentences": [f"{name}: a sentence on what it does."],
    }


def edge(source: str, to: str, via: str, role: str, effect: float, sure: bool = True) -> dict:
    return {
        "from": source,
        "to": to,
        "via": via,
        "role": role,
        "effect": estimate(effect),
        "estimate": effect * 0.9,
        "p_value": 0.02,
        "confirmed": sure,
    }


NAMES = ["Tom", "Anna", "Paul", "Mary", "Jack", "Lucy", "John", "Emma"]
ROLES = "start|other|first|other|answer|after first|other|other|repeat|other|other|end".split("|")


def ioi() -> dict:
    """12 tokens × 16 prompts, 8 heads, 10 edges, 50 random sets."""
    prompts = []
    for number in range(16):
        wrong, answer = NAMES[number % 8], NAMES[(3 * number + 1) % 8]
        words = f"<bos>|When| {wrong}| and| {answer}| went| shopping|,| {wrong}| gave| it| to"
        prompt = {"tokens": words.split("|"), "roles": ROLES, "clean": 2.5 + number / 40}
        prompts.append(prompt | {"answer": f" {answer}", "wrong": f" {wrong}"})
    heads = [
        head("L16H0", -1.38, attention("after first", "first", 0.8, -1.2), tags="positional"),
        head("L17H4", -1.78, attention("repeat", "after first", 0.62, -1.5), tags="induction"),
        head("L20H0", -0.69, attention("end", "repeat", 0.48, -0.6), tags="sink"),
        head("L20H3", -0.35, attention("end", "repeat", 0.38, -0.3)),
        head("L23H0", -0.93, attention("end", "answer", 0.54, -0.8), tags="sink"),
        head("L23H3", -3.83, attention("end", "answer", 0.7, -1.85), tags="sink;induction"),
        head("L27H5", 0.55, attention("end", "answer", 0.41, 0.4)),
        head("L29H1", -1.19, attention("end", "answer", 0.33, -0.7), tags="positional"),
    ]
    edges = [
        edge("L16H0", "L17H4", "key", "after first", -1.38),
        edge("embedding", "L16H0", "value", "first", -0.45),
        edge("L17H4", "L20H0", "value", "repeat", -0.69),
        edge("L17H4", "L20H3", "value", "repeat", -0.3),
        edge("L20H0", "L23H0", "query", "end", -0.52),
        edge("L20H0", "L23H3", "query", "end", -0.8),
        edge("embedding", "L23H3", "value", "answer", -1.19),
        edge("L23H3", "L29H1", "value", "end", -1.19),
        edge("MLP12", "L23H3", "key", "answer", -0.25, False),
        edge("L23H3", "L27H5", "query", "end", 0.3, False),
    ]
    rng = RNG(0)
    curve = [(1, 0.77), (2, 0.7), (3, 0.82), (5, 0.95), (8, 0.92), (14, 1.03), (54, 1.02), (270, 1)]
    judged = {
        "heads": [one["name"] for one in heads],
        "curve": [{"heads": n, "faithfulness": estimate(f, 0.09)} for n, f in curve],
        "total_effect": estimate(5.86),
        "faithfulness": estimate(0.92, 0.09),
        "cpr": 0.93,
        "cmd": 0.034,
        "completeness": estimate(0.12),
        "random": [
            {
                "set": number,
                "heads": [f"L{layer}H{rng.integers(9)}" for layer in (16, 17, 20, 20, 23, 27)],
                "faithfulness": float(rng.normal(0.05, 0.06)),
                "effect": -0.2,
            }
            for number in range(50)
        ],
        "p_value": 0.0196,
        "completeness_p_value": 0.0392,
        "sets": 50,
        "halves": {"first": ["L16H0"], "second": ["L16H0"], "jaccard": 0.89},
        "other_words": None,
    }
    task = {
        "name": "ioi",
        "prompts": 16,
        "groups": 16,
        "metric": "logit difference",
        "unit": "nats",
        "clean": estimate(2.69),
        "replaced_by": "corrupt prompt",
        "differs": "repeat (in 16 of 16) and after first differ; what comes before is the same",
    }
    return {
        "headscope": "0.2.0",
        "task": task,
        "model": {"name": "SmolLM2-135M", "layers": 30, "heads": 9},
        "roles": [
            {"name": role, "prompts": 16, "missing": 0, "ambiguous": 0}
            for role in ("start", "first", "answer", "after first", "repeat", "end")
        ],
        "template": "When {first} and {answer} went shopping, {repeat} gave it to",
        "prompts": prompts,
        "heads": heads,
        "edges": edges,
        "circuit": judged,
        "notes": ["Third names were not tried."],
    }


EVIL = ["</script><script>alert(1)</script>", "\"'<b>&amp;", "\u202eabc\u200f", "\ud83d", "a\nb"]
STRANGE = [*EVIL, "国际化的长词", "\n\n", "שלום", "مرحبا بالعالم", "internationalisation", "👩‍👩‍👧"]


def crowded() -> dict:
    """30 layers, 20 heads, 60 edges, long tokens of any script, and prompts of unequal lengths."""
    rng = RNG(1)
    roles = ["<b>subject</b>", "attractor of the verb", "answer", "נושא", "end"]
    prompts = []
    for number in range(12):
        size = 14 + 7 * (number % 4)
        tokens = [STRANGE[(number + at) % len(STRANGE)] for at in range(size - 1)]
        places = dict(zip(rng.permutation(size - 1)[:4].tolist(), roles, strict=False))
        named = [places.get(at, "other") for at in range(size - 1)]
        prompt = {"tokens": [*tokens, " is"], "roles": [*named, "end"], "clean": None}
        prompts.append(prompt | {"answer": EVIL[0], "wrong": EVIL[2]})
    layers = sorted(rng.integers(0, 30, 20).tolist())
    heads = []
    for number, layer in enumerate(layers):
        role = "end" if number % 5 > 1 or layer in layers[:number] else roles[number % 4]
        entry = attention(role, roles[(number + 1) % 5], rng.random(), rng.normal())
        heads.append(head(f"L{layer}H{number}", rng.normal(0, 2), entry, tags=EVIL[1]))
    edges = []
    while len(edges) < 60:
        one, other = sorted(rng.choice(20, 2, replace=False).tolist())
        source, to = heads[one], heads[other]
        if source["layer"] < to["layer"]:
            via, role = ("query", "key", "value")[len(edges) % 3], source["attention"][0]["from"]
            effect, sure = rng.normal(), bool(len(edges) % 2)
            edges.append(edge(source["name"], to["name"], via, role, effect, sure))
    made = ioi()
    made["task"] |= {"name": EVIL[0], "differs": EVIL[1]}
    made["model"]["name"] = "a/<i>b</i>"
    made["circuit"]["heads"] = [one["name"] for one in heads]
    roles_table = [{"name": r, "prompts": 12, "missing": 1, "ambiguous": 2} for r in roles]
    made |= {"prompts": prompts, "heads": heads, "edges": edges, "notes": EVIL}
    return made | {"roles": roles_table, "template": EVIL[0]}


def quick() -> dict:
    """Estimates alone: no exact effects, no edges and no circuit."""
    made = ioi() | {"edges": [], "circuit": None, "template": None, "notes": []}
    for one in made["heads"]:
        entries = [entry | {"cut": None} for entry in one["attention"]]
        one |= {"effect": None, "writes": None, "in_circuit": False, "attention": entries}
        one |= {"q_value": None, "share": None, "sentences": []}
    return made


def patterns_of(circuit: dict, seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Attention of each head on each prompt, most of it from the last token to one of few."""
    rng = RNG(seed)
    made = {}
    for one in circuit["heads"]:
        made[one["name"]] = []
        for prompt in circuit["prompts"]:
            size = len(prompt["tokens"])
            sharp = np.tril(rng.random((size, size)) ** 6 + 1e-3)
            made[one["name"]].append(sharp / sharp.sum(1, keepdims=True))
    return made


CIRCUITS = {"ioi": ioi, "crowded": crowded, "quick": quick}


def page_of(make: Callable[[], dict]) -> str:
    return task_page(make(), patterns_of(make()))


# boxes of heads and MLPs, and the texts in each, as the browser draws them
BOXES = """
  const box = (node) => { const b = node.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  return [...document.querySelectorAll(".drawing .node")].map((node) => ({
    box: box(node.querySelector("rect")), name: node.dataset.head || node.dataset.node,
    texts: [...node.querySelectorAll("text")].map(box) }));
"""  # noqa: E501


def overlap(one: list[float], other: list[float]) -> bool:
    is_apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not is_apart


@pytest.mark.parametrize("name", CIRCUITS)
@pytest.mark.parametrize("width", [1280, 390])
def test_no_label_overlaps_another_and_each_stands_in_its_box(browser, name, width):
    page = browser.open(page_of(CIRCUITS[name]), width=width)
    seen = page.run(BOXES)
    assert (seen.errors, seen.requests) == ([], [])
    assert len(seen.found) >= 8
    for one, other in combinations(seen.found, 2):
        assert not overlap(one["box"], other["box"]), (one["name"], other["name"])
    for node in seen.found:
        left, top, right, bottom = node["box"]
        for text in node["texts"]:
            assert left <= text[0] and text[2] <= right, node["name"]  # noqa: PT018
            assert top - 1 <= text[1] and text[3] <= bottom + 1, node["name"]  # noqa: PT018
        for one, other in combinations(node["texts"], 2):
            assert min(one[2], other[2]) <= max(one[0], other[0]) or abs(one[1] - other[1]) > 8
    assert page.read("document.documentElement.scrollWidth <= innerWidth")


def test_no_sign_is_wider_than_the_layout_takes_it_to_be(browser):
    signs = [chr(code) for code in range(33, 127)] + list("−→↵…·’±×≤≥éèß語")
    svg = "".join(f"<text>{escape(sign)}</text>" for sign in signs)
    style = "font-family: sans-serif; font-size: 100px"
    page = browser.open(f'<meta charset="utf-8"><svg style="{style}">{svg}</svg>')
    widths = page.read(
        "[...document.querySelectorAll('text')].map((t) => t.getComputedTextLength())"
    )
    wider = {
        sign: width
        for sign, width in zip(signs, widths, strict=True)
        if width > text_width(sign, 100.0)
    }
    assert (len(widths), wider) == (len(signs), {})


def texts_of(figure: str) -> list[str]:
    root = ElementTree.fromstring(figure)
    return [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", ["ioi", "crowded"])
def test_edges_have_the_colour_of_their_input_and_a_width_by_effect(name):
    circuit = CIRCUITS[name]()
    root = ElementTree.fromstring(circuit_figure(circuit))
    groups = [node for node in root.iter() if "data-edge" in node.attrib]
    assert sorted(int(group.attrib["data-edge"]) for group in groups) == [
        *range(len(circuit["edges"]))
    ]
    widths = []
    for group in groups:
        facts, curve = circuit["edges"][int(group.attrib["data-edge"])], group[0].attrib
        assert curve["stroke"] == COLOURS[facts["via"]]
        assert ("stroke-dasharray" in curve) == (not facts["confirmed"])
        # a path without which the task goes better is hollow
        assert len(group) == 1 + (facts["effect"]["mean"] > 0)
        if facts["effect"]["mean"] < 0:
            widths.append((abs(facts["effect"]["mean"]), float(curve["stroke-width"])))
    assert [width for _, width in sorted(widths)] == sorted(width for _, width in widths)
    assert len({width for _, width in widths}) > 3


def test_without_paths_a_figure_shows_where_heads_attend_the_thicker_the_more():
    root = ElementTree.fromstring(circuit_figure(quick()))
    lines = [node.attrib for node in root.iter() if node.get("class") == "attends"]
    curves = [line for line in lines if "d" in line]
    shares = [one["attention"][0]["mass"]["mean"] for one in quick()["heads"]]
    widths = sorted(float(line["stroke-width"]) for line in curves)
    assert len(set(widths)) == len(set(shares))
    assert len(widths) == len(shares)
    root = ElementTree.fromstring(circuit_figure(ioi()))
    assert not [node for node in root.iter() if node.get("class") == "attends"]


def test_heads_stand_above_the_role_that_they_act_from_and_layers_in_order():
    root = ElementTree.fromstring(circuit_figure(ioi()))
    middles = {}
    for node in root.iter():
        if "data-head" in node.attrib:
            box = node[0].attrib
            x, y = float(box["x"]) + float(box["width"]) / 2, float(box["y"])
            middles[node.attrib["data-head"]] = (x, y)
    labels = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        labels[text.text] = float(text.attrib["x"])
    roles = [labels[role] for role in ("first", "answer", "after first", "repeat", "end")]
    assert roles == sorted(roles)
    # a head between the roles on both sides of its own; those of one layer on one line
    assert labels["answer"] < middles["L16H0"][0] < labels["repeat"]
    assert labels["after first"] < middles["L17H4"][0] < labels["end"]
    for name in ("L20H0", "L23H0", "L23H3", "L29H1"):
        assert middles[name][0] > labels["repeat"]
    assert middles["L20H0"][1] == middles["L20H3"][1] > middles["L23H3"][1] > middles["L29H1"][1]


def test_the_result_is_the_title():
    root = ElementTree.fromstring(circuit_figure(ioi()))
    lines = [node for node in root.iter() if "font-size:16.0px" in node.get("style", "")]
    title = " ".join(node.text or "" for node in lines)
    # the share is of what replacing all heads takes, not of the metric (2.69)
    assert re.findall(r"[\d.]+", title) == ["8", "92", "5.86", "6", "0.02"]


@pytest.mark.parametrize("name", ["", "a \u00a0 b\x1b<i>"])
def test_no_line_breaks_before_a_percent_sign_and_names_stay_visible(name):
    circuit = ioi()
    circuit["task"] |= {"name": name, "unit": name}
    for text in (circuit_figure(circuit), task_page(circuit, {}).split("<script")[0]):
        assert set(re.findall(r"\d(\s)%", text)) == {"\u00a0"}
        assert text.count("\u00a0") == len(re.findall(r"\d\u00a0%", text))
        assert "\x1b" not in text
        assert "<i>" not in text


@pytest.mark.parametrize(
    ("name", "scheme"), [("ioi", "light"), ("ioi", "dark"), ("quick", "light")]
)
def test_axe_finds_no_fault_with_the_page(browser, name, scheme):
    page = browser.open(page_of(CIRCUITS[name]), scheme=scheme)
    assert page.axe_faults(["", "L23H3?prompt=3&set=2"]) == {}


def test_keys_alone_choose_a_head_and_reach_its_paths(browser):
    keys = browser.open(page_of(ioi))
    keys.tab_to(".drawing .head")
    keys.press("ArrowUp")
    start = keys.read("document.activeElement.dataset.head")
    keys.press("ArrowDown")
    assert keys.read("document.activeElement.dataset.head") != start
    for _ in range(8):
        keys.press("ArrowUp")
        keys.press("ArrowRight")
    assert keys.read("document.activeElement.dataset.head") == "L27H5"
    assert "+0.55" in keys.read("document.getElementById('tip').textContent")
    keys.press("Enter")
    assert keys.read("location.hash") == "#L27H5"
    assert keys.read("document.querySelector('#panel h3').textContent").startswith("L27H5")
    keys.press("Tab")
    tip = keys.read("document.getElementById('tip').textContent")
    assert "L23H3 → L27H5" in tip
    assert "+0.30 [+0.15, +0.45]" in tip
    keys.page.keyboard.press("Shift+Tab")
    keys.press("Escape")
    assert keys.read("location.hash") == ""
    assert keys.read("document.querySelectorAll('.drawing .pinned').length") == 0
    assert keys.errors == []


def test_a_head_shows_its_attention_on_the_prompt_that_is_chosen(browser):
    circuit, patterns = ioi(), patterns_of(ioi())
    page = browser.open(task_page(circuit, patterns))
    page.page.click('.drawing [data-head="L20H3"]')
    page.page.select_option("#prompt", "5")
    page.page.click(".fold")
    titles = page.read("[...document.querySelectorAll('.arcs .tok')].map((own) => own.title)")
    row = patterns["L20H3"][5][-1]
    tokens = circuit["prompts"][5]["tokens"]
    assert titles == [f"{token} {share:.2f}" for token, share in zip(tokens, row, strict=True)]
    # framed: the last token; underlined: the repeated name
    marked = page.read(
        "[...document.querySelectorAll('.tok')].map((own) => [...own.classList].join(' '))"
    )
    assert [at for at, look in enumerate(marked) if "query" in look] == [11]
    assert [at for at, look in enumerate(marked) if "target" in look] == [8]
    assert page.read("location.hash") == "#L20H3?prompt=5"
    assert page.errors == []


def test_any_random_set_stands_beside_the_circuit(browser):
    circuit = ioi()
    page = browser.open(task_page(circuit, {}))
    assert page.read("document.querySelectorAll('.set').length") == 50
    dot = page.page.locator(".set").nth(49)
    dot.click()
    best = max(circuit["circuit"]["random"], key=lambda one: one["faithfulness"])
    said = page.read("document.querySelector('.sets .message').textContent")
    assert ", ".join(best["heads"]) in said
    assert f"{100 * best['faithfulness']:.0f}\u00a0%" in said
    page.page.focus("#set")
    page.press("ArrowLeft")
    assert page.read("document.querySelector('.sets .message').textContent") != said
    assert page.errors == []


def test_the_saved_picture_is_the_figure_for_papers_in_any_theme(browser):
    page = browser.open(page_of(ioi), scheme="dark")
    with page.page.expect_download() as download:
        page.page.click(".save-figure")
    assert Path(download.value.path()).read_text(encoding="utf-8") == circuit_figure(ioi())


def test_paper_is_white_and_as_wide_as_the_drawing_needs(browser):
    page = browser.open(page_of(ioi), scheme="dark", width=800)
    page.page.emulate_media(media="print", color_scheme="dark")
    look = "(name) => getComputedStyle(document.querySelector(name))"
    assert page.read(f"({look})('body').backgroundColor") == "rgb(255, 255, 255)"
    assert page.read(f"({look})('.drawing text.ink').fill") == "rgb(27, 27, 31)"
    assert page.read("document.querySelector('.drawing svg').getBoundingClientRect().right") <= 800


@settings(
    max_examples=25,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.text(max_size=12), min_size=12, max_size=12))
def test_any_token_or_role_in_a_figure_is_text(tokens):
    circuit = ioi()
    circuit["prompts"] = [circuit["prompts"][0] | {"tokens": tokens}]
    circuit["circuit"] = None  # then the name of the task is the title, and names the picture
    circuit["task"] |= {"name": tokens[0]}
    circuit["model"] |= {"name": tokens[1]}
    found = texts_of(circuit_figure(circuit))
    for token in tokens:
        seen = visible(token.strip(" ") or token)
        assert seen in found or seen[:15] + "…" in found or "…" in found


def test_prompts_names_and_notes_are_text_and_never_run(browser):
    page = browser.open(page_of(crowded))
    for name in [one["name"] for one in crowded()["heads"]][::6]:
        page.read(f"location.hash = '{name}'")
        page.read("document.querySelectorAll('details').forEach((own) => { own.open = true; })")
    assert page.errors == []
    assert page.read("document.querySelectorAll('script').length") == 2
    assert page.read("document.querySelectorAll('main i, main b').length") == page.read(
        "document.querySelectorAll('.paths i').length"
    )
    notes = page.read("[...document.querySelectorAll('.notes li')].map((own) => own.textContent)")
    assert notes == [visible(note) for note in EVIL]


OPTIONAL = ["edges", "circuit", "roles", "template", "notes", "heads", "prompts"]
OF_HEADS = "effect q_value attribution tags share attention writes sentences in_circuit".split()
OF_CIRCUIT = "faithfulness curve cpr cmd completeness random p_value halves other_words".split()


def without(name: str, *, is_none: bool) -> dict:
    circuit = ioi()
    holders = [circuit] if name in OPTIONAL else [circuit["circuit"]]
    for holder in circuit["heads"] if name in OF_HEADS else holders:
        holder[name] = None
        if not is_none:
            del holder[name]
    return circuit


@pytest.mark.parametrize("name", [*OPTIONAL, *OF_HEADS, *OF_CIRCUIT])
def test_a_page_lacks_any_part_that_was_not_measured(browser, name):
    html = task_page(without(name, is_none=True), {})
    assert (
        task_page(without(name, is_none=False), {}).split("<script")[0] == html.split("<script")[0]
    )
    page = browser.open(html)
    page.read("location.hash = 'L23H3'", after=0)
    text = page.read("document.body.innerText + document.querySelector('h2').textContent", after=50)
    assert page.errors == []
    assert not re.search(r"\b(None|undefined|NaN|null|nan)\b", text)


def test_a_page_stays_below_a_megabyte_and_keeps_the_prompt_of_the_drawing(browser):
    circuit = ioi()
    rng = RNG(3)
    circuit["prompts"] = [
        {
            "tokens": [f" {rng.integers(10**6)}" for _ in range(150)],
            "roles": [*(["other"] * 138), *(ROLES if number == 39 else ["other"] * 12)],
            "answer": " a",
            "wrong": None,
            "clean": float("nan"),
        }
        for number in range(40)
    ]
    html = task_page(circuit, patterns_of(circuit))
    assert 0.7 * MOST_BYTES < len(html.encode()) <= MOST_BYTES
    page = browser.open(html)
    numbers = page.read("[...document.querySelectorAll('#prompt option')].map((own) => own.value)")
    assert "39" in numbers
    notes = page.read("document.querySelector('.notes').textContent")
    assert f"{40 - len(numbers)} prompts of 40" in notes
    assert page.errors == []


def test_a_pattern_of_another_size_than_its_prompt_is_refused():
    patterns = patterns_of(ioi())
    patterns["L23H0"][4] = np.eye(7)
    with pytest.raises(PatternError, match="L23H0"):
        task_page(ioi(), patterns)


# Machado, Oliveira and Fernandes 2009, table 1, at full severity
BLINDNESS = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
SHEET = Path(__file__).parents[2] / "headscope/views/task_page/task.css"
THEMES = [
    [re.findall(rf"--{via}: (#\w+)", SHEET.read_text())[theme] for via in COLOURS]
    for theme in (0, 1)
]


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("theme", [0, 1])
def test_colours_of_inputs_differ_for_the_colour_blind(blindness, theme):
    matrix = np.array(BLINDNESS[blindness])
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    points = []
    for colour in THEMES[theme]:
        xyz = to_xyz @ np.clip(matrix @ linear(colour), 0, 1) / [0.9505, 1, 1.089]
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        points.append([116 * y - 16, 500 * (x - y), 200 * (y - z)])
    # 2.3 is a difference that is just seen (CIE 1976)
    distances = [np.linalg.norm(np.subtract(a, b)) for a, b in combinations(points, 2)]
    assert min(distances) > 10 * 2.3


def test_the_sheet_and_the_figure_agree_on_the_colours_of_paper():
    assert THEMES[0] == list(COLOURS.values())


def test_a_head_without_tags_is_said_to_have_none_only_where_tags_are_known(browser):
    """A task of a model alone, without a run, knows no tags."""
    text = "document.querySelector('.panel, main').innerText"
    known = browser.open(page_of(ioi))
    known.read("location.hash = 'L20H3'", after=0)
    assert "no tag on running text" in known.read(text)

    circuit = ioi()
    for one in circuit["heads"]:
        one["tags"] = ""
    unknown = browser.open(task_page(circuit, {}))
    unknown.read("location.hash = 'L20H3'", after=0)
    assert "no tag" not in unknown.read(text)


def test_a_p_value_below_a_thousandth_is_not_shown_as_0(browser):
    circuit = ioi()
    for one in circuit["edges"]:
        one["p_value"] = 0.0
    page = browser.open(task_page(circuit, {}))
    page.read("location.hash = 'L17H4'", after=0)
    assert "p < 0.001" in page.read("document.querySelector('.paths').innerText")
