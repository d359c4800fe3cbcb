/* One pattern as arcs over its tokens: from a query to the tokens it looks at, the thicker the more. Any token can be the query: hover or focus it, click to pin it. */

const LEAST_ARC = 0.02;
const BESIDE = 2;

/* Which of the shown tokens stand there at first: the query, its targets, its strongest keys, and what is beside them. */
function nearby(view) {
  const { tokens, matrix, query, targets } = view, chosen = new Set([query, ...targets]);
  // the strongest key always stands there, however even the attention is
  [...matrix[query].keys()].sort((a, b) => matrix[query][b] - matrix[query][a]).slice(0, 4).filter((key, rank) => rank === 0 || matrix[query][key] >= 0.05).forEach((key) => chosen.add(key));
  const near = (i) => [...chosen].some((one) => Math.abs(one - i) <= BESIDE);
  return tokens.map((_, i) => i === 0 || near(i));
}

/* Tokens and the stretches between them: `{ token }`, or `{ members, gap }` for tokens that are folded away and those that were not kept. */
function lineOf(view, shown) {
  const gaps = new Map((view.gaps || []).map(([place, ...gap]) => [place, gap])), line = [];
  view.tokens.forEach((_, i) => {
    if (gaps.has(i) || !shown[i]) {
      const last = line.at(-1);
      const open = last && last.members ? last : { members: [], gaps: [] };
      if (open !== last) line.push(open);
      if (gaps.has(i)) open.gaps.push(gaps.get(i));
      if (!shown[i]) open.members.push(i);
    }
    if (shown[i]) line.push({ token: i });
  });
  return line;
}

/* What a query gives to a folded stretch; of what was not kept only the example's own query says it. */
function shareOf(item, view, query) {
  const row = view.matrix[query];
  if ("token" in item) return row[item.token];
  const kept = item.members.reduce((sum, key) => sum + row[key], 0);
  return kept + (query === view.query ? item.gaps.reduce((sum, gap) => sum + (gap[2] || 0), 0) : 0);
}

/* How many tokens a query's share of a folded stretch is over: of what was not kept only the example's own query has one. */
const tokensIn = (item, view, query) => item.members.length + (query === view.query ? item.gaps.reduce((sum, [first, end]) => sum + end - first, 0) : 0);

/* The whole figure. `view`: tokens, matrix [query][key], query, targets, gaps, type, label; `pinned` and `onpin` keep which token is pinned. */
function arcView(view, { pinned = null, onpin = () => {} } = {}) {
  const folded = () => nearby(view).map((near, i) => near || i === pinned);
  const state = { pinned, over: null, shown: folded() };
  const figure = el("figure", { class: `arcs type-${typeClass(view.type)}`, "aria-label": view.label });
  const strip = el("div", { class: "strip-scroll" }), message = el("p", { class: "small message", "aria-live": "polite" });
  const all = el("button", { type: "button", class: "fold", onclick: () => { state.shown = state.shown.every(Boolean) ? folded() : view.tokens.map(() => true); build(); } });
  const current = () => state.over ?? state.pinned ?? view.query;
  let line = [], nodes = [];

  function build() {
    line = lineOf(view, state.shown);
    nodes = line.map((item) => ("token" in item ? tokenNode(item.token) : el("span", { class: "gap" }, "…")));
    strip.replaceChildren(el("div", { class: "strip-line" }, svg("svg", { class: "arc-space", "aria-hidden": "true" }), el("div", { class: "strip-tokens" }, nodes)));
    all.textContent = state.shown.every(Boolean) ? "fold" : `all ${view.tokens.length} tokens`;
    all.hidden = nearby(view).every(Boolean);
    figure.redraw();
  }

  function tokenNode(i) {
    const over = (to) => () => { state.over = to; draw(); };
    return el("button", {
      type: "button", class: `tok${view.targets.includes(i) ? " target" : ""}`, "data-token": i, onmouseenter: over(i), onmouseleave: over(null), onfocus: over(i), onblur: over(null),
      onclick: () => { state.pinned = state.pinned === i ? null : i; state.over = null; onpin(state.pinned); draw(); },
    }, visible(view.tokens[i]));
  }

  function draw() {
    const query = current(), from = line.findIndex((item) => item.token === query || (item.members || []).includes(query));
    const shares = line.map((item) => shareOf(item, view, query));
    nodes.forEach((node, i) => {
      const { token } = line[i];
      node.style.setProperty("--share", `${Math.round(100 * Math.min(1, shares[i]))}%`);
      node.classList.toggle("query", token === query);
      node.classList.toggle("after", token !== undefined && token > query && !view.matrix.whole);
      if (token !== undefined) node.setAttribute("aria-pressed", String(token === state.pinned));
      node.title = token === undefined ? `left out here: ${number(shares[i])}` : `${visible(view.tokens[token])} ${number(shares[i])}`;
    });
    describe(query, shares);
    const space = strip.querySelector(".arc-space"), middle = nodes.map((node) => node.offsetLeft + node.offsetWidth / 2), width = strip.firstChild.scrollWidth;
    if (!width || from < 0) return;
    const far = Math.max(1, ...line.map((_, i) => (shares[i] >= LEAST_ARC ? Math.abs(middle[i] - middle[from]) : 0)));
    space.setAttribute("viewBox", `0 0 ${width} 84`);
    space.setAttribute("width", width);
    space.replaceChildren(...line.flatMap((item, i) => (shares[i] < LEAST_ARC ? [] : [arc(middle[from], middle[i], far, shares[i], "token" in item ? (view.targets.includes(item.token) ? " aimed" : "") : " summed")])));
  }

  function arc(from, to, far, share, kind) {
    const height = 10 + 66 * Math.sqrt(Math.abs(from - to) / far), look = { class: `arc${kind}`, "stroke-width": (0.8 + 7 * share).toFixed(1), "stroke-opacity": (0.35 + 0.65 * share).toFixed(2) };
    if (from === to) return svg("path", { ...look, d: `M${from - 6},84 C${from - 12},62 ${from + 12},62 ${from + 6},84` });
    return svg("path", { ...look, d: `M${from},84 C${from},${84 - height * 1.3} ${to},${84 - height * 1.3} ${to},84` });
  }

  function describe(query, shares) {
    const best = line.map((item, i) => [item, shares[i]]).filter(([, share]) => share >= 0.05).sort((a, b) => b[1] - a[1]).slice(0, 3);
    const name = (item) => ("token" in item ? `“${visible(view.tokens[item.token]).trim()}”` : `${plural(tokensIn(item, view, query), "omitted token")} (…)`);
    const at = view.positions && view.positions.length ? ` at ${view.positions[query]}` : "";
    message.textContent = `“${visible(view.tokens[query]).trim()}”${at} attends to ${best.length ? best.map(([item, share]) => `${name(item)} ${number(share)}`).join(", ") : "no token for more than 0.05"}${query === state.pinned ? " (pinned)" : ""}`;
  }

  figure.redraw = () => {
    draw();
    const own = nodes[line.findIndex((item) => item.token === view.query)];
    if (own) strip.scrollLeft = Math.max(0, own.offsetLeft + own.offsetWidth - strip.clientWidth + 40);
  };
  figure.append(strip, el("figcaption", {}, message, all, saveButtons(strip, view.label)));
  build();
  setTimeout(figure.redraw); // the places of tokens are known when the figure stands in the page
  return figure;
}
