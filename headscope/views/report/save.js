/* Any picture of the page as a file: what stands in it is written as SVG with text as text, and PNG is drawn from that. */

const SHARPNESS = 2; // pixels of a PNG per pixel of the page
const PAINTS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
const pixel = el("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });

/* A colour as other programs read it: those of the page may be mixed in oklab. */
function plainColour(colour) {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
  return { colour: `rgb(${red},${green},${blue})`, alpha: alpha / 255 };
}

/* A picture as the text of an SVG file: all that stands in the node, seen or scrolled away. */
function pictureText(node) {
  const home = node.getBoundingClientRect(), isBox = node instanceof HTMLElement && !(node instanceof HTMLCanvasElement);
  const width = Math.ceil(isBox ? Math.max(node.scrollWidth, home.width) : home.width), height = Math.ceil(isBox ? Math.max(node.scrollHeight, home.height) : home.height);
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  root.append(rectangle({ left: 0, top: 0, width, height }, getComputedStyle(PAGE).backgroundColor));
  copyInto(root, node, { left: home.left - node.scrollLeft, top: home.top - node.scrollTop });
  crop(root, width, height);
  return new XMLSerializer().serializeToString(root);
}

/* Boxes of the page are wider than what stands in them: the picture ends where that does. */
function crop(root, width, height) {
  const [ground, ...shapes] = root.querySelectorAll("rect, text, image, svg");
  const ends = shapes.map((shape) => ["x", "width", "textLength"].reduce((sum, name) => sum + (Number(shape.getAttribute(name)) || 0), 0));
  const end = Math.min(width, Math.ceil(Math.max(1, ...ends.filter((x) => x <= width))) + 4);
  ground.setAttribute("width", end);
  root.setAttribute("width", end);
  root.setAttribute("viewBox", `0 0 ${end} ${height}`);
}

function copyInto(target, node, origin) {
  const style = getComputedStyle(node), at = node.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || node.matches(".hidden, .save")) return;
  const box = { left: at.left - origin.left, top: at.top - origin.top, width: at.width, height: at.height };
  const group = style.opacity === "1" ? target : target.appendChild(svg("g", { opacity: style.opacity }));
  if (node instanceof SVGElement) {
    group.append(paintedCopy(node, box));
    return;
  }
  group.append(rectangle(box, style.backgroundColor, style));
  if (node instanceof HTMLCanvasElement) group.append(svg("image", { x: box.left, y: box.top, width: box.width, height: box.height, href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": style.imageRendering }));
  for (const child of node.childNodes) {
    if (child instanceof Element) copyInto(group, child, origin);
    else if (child.nodeType === Node.TEXT_NODE) writeInto(group, child, style, origin);
  }
}

/* A box' background and border, where it has them. */
function rectangle(box, background, style = null) {
  const fill = plainColour(background), edge = style && style.borderTopStyle !== "none" ? plainColour(style.borderTopColor) : { alpha: 0 };
  const line = edge.alpha ? parseFloat(style.borderTopWidth) : 0;
  if (!fill.alpha && !line) return document.createDocumentFragment();
  const shape = svg("rect", { x: box.left + line / 2, y: box.top + line / 2, width: Math.max(0, box.width - line), height: Math.max(0, box.height - line), fill: fill.colour, "fill-opacity": fill.alpha, rx: (style && parseFloat(style.borderTopLeftRadius)) || 0 });
  if (line) for (const [name, value] of Object.entries({ stroke: edge.colour, "stroke-opacity": edge.alpha, "stroke-width": line, "stroke-dasharray": style.borderTopStyle === "dashed" ? `${3 * line} ${2 * line}` : "none" })) shape.setAttribute(name, value);
  return shape;
}

/* Words where the page has them; a line that breaks is broken in the same place. */
function writeInto(target, words, style, origin) {
  const range = document.createRange(), ink = plainColour(style.color);
  pixel.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = pixel.measureText("x");
  for (const word of words.data.matchAll(/\S+/g)) {
    range.setStart(words, word.index);
    range.setEnd(words, word.index + word[0].length);
    const at = range.getBoundingClientRect();
    if (!at.width) continue;
    const node = svg("text", { x: at.left - origin.left, y: at.top - origin.top + (at.height - ascent - descent) / 2 + ascent, fill: ink.colour, "fill-opacity": ink.alpha, "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight, "text-decoration": style.textDecorationLine, textLength: at.width, lengthAdjust: "spacingAndGlyphs" });
    node.textContent = word[0];
    target.append(node);
  }
}

/* A drawing of the page with the look that its classes give it there. */
function paintedCopy(node, box) {
  const copy = node.cloneNode(true), originals = [node, ...node.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((part, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of PAINTS) {
      const value = style.getPropertyValue(name);
      if (["fill", "stroke"].includes(name) && value !== "none") {
        const ink = plainColour(value);
        part.setAttribute(name, ink.colour);
        part.setAttribute(`${name}-opacity`, ink.alpha * Number(style.getPropertyValue(`${name}-opacity`)));
      } else if (!name.endsWith("-opacity")) part.setAttribute(name, value);
    }
    for (const name of ["class", "style", "href"]) part.removeAttribute(name);
  });
  for (const [name, value] of Object.entries({ x: box.left, y: box.top, width: box.width, height: box.height })) copy.setAttribute(name, value);
  return copy;
}

/* The picture as a file of a kind, `svg` or `png`. */
async function pictureFile(node, kind) {
  const text = pictureText(node);
  if (kind === "svg") return new Blob([text], { type: "image/svg+xml" });
  const image = new Image();
  await new Promise((done, fail) => {
    image.addEventListener("load", done);
    image.addEventListener("error", () => fail(new Error("this picture cannot be drawn as PNG; save it as SVG")));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
  const canvas = el("canvas", { width: image.width * SHARPNESS, height: image.height * SHARPNESS });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const bytes = Uint8Array.from(atob(canvas.toDataURL("image/png").split(",")[1]), (char) => char.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

/* A picture with its buttons. */
const savable = (node, title) => [node, saveButtons(node, title)];

/* Buttons that save a picture under a name made of what it shows. */
function saveButtons(node, title) {
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80);
  const button = (kind) => el("button", { type: "button", class: "save", "aria-label": `save as ${kind.toUpperCase()}: ${title}`, onclick: async () => {
    const address = URL.createObjectURL(await pictureFile(node, kind));
    el("a", { href: address, download: `${name}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } }, kind.toUpperCase());
  return el("span", { class: "save" }, button("svg"), " ", button("png"));
}
