/* Tokens as text that can be seen. */

const MARKS = { 0x200e: "LRM", 0x200f: "RLM", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI" };

/* A token as text that can be seen: blanks, line breaks, direction marks and broken characters. */
function visible(token) {
  let text = "";
  for (const char of token) {
    const code = char.codePointAt(0);
    if (char === "\n") text += "↵";
    else if (char === "\t") text += "⇥";
    else if (MARKS[code]) text += `⟨${MARKS[code]}⟩`;
    else if (code < 32 || (code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) {
      text += `⟨${code.toString(16).padStart(2, "0")}⟩`;
    } else text += char;
  }
  return text || "∅";
}
