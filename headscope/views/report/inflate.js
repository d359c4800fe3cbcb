"use strict";
/* Deflated data to bytes (RFC 1951), at once and in any browser: the page's larger parts are packed so. */

const LENGTH_BASE = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const FAR_BASE = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
const FAR_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/* A Huffman code as a table over its next bits: each entry is symbol × 16 + length. */
function huffman(lengths) {
  const most = Math.max(1, ...lengths), table = new Uint16Array(1 << most), next = new Uint16Array(most + 2);
  for (const length of lengths) if (length) next[length + 1] += 1 << (most - length);
  for (let i = 1; i < next.length; i++) next[i] += next[i - 1];
  lengths.forEach((length, symbol) => {
    if (!length) return;
    const span = 1 << (most - length);
    for (let i = 0; i < span; i++) {
      let code = next[length] + i, reversed = 0;
      for (let bit = 0; bit < most; bit++, code >>= 1) reversed = (reversed << 1) | (code & 1);
      table[reversed] = symbol * 16 + length;
    }
    next[length] += span;
  });
  return { table, mask: (1 << most) - 1 };
}

const FIXED = [huffman(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8))), huffman(Array(30).fill(5))];

function inflate(data, size) {
  const out = new Uint8Array(size);
  let at = 0, hold = 0, held = 0, to = 0;
  const need = (count) => { while (held < count) { hold |= data[at++] << held; held += 8; } };
  const bits = (count) => {
    need(count);
    const value = hold & ((1 << count) - 1);
    hold >>>= count; held -= count;
    return value;
  };
  // at the end there may be fewer bits than the longest code; those that are missing count as 0
  const symbol = ({ table, mask }) => {
    while (held < 15 && at < data.length) { hold |= data[at++] << held; held += 8; }
    const entry = table[hold & mask];
    hold >>>= entry & 15; held -= entry & 15;
    return entry >> 4;
  };
  const codes = () => {
    const [literals, far, own] = [bits(5) + 257, bits(5) + 1, bits(4) + 4], first = Array(19).fill(0), lengths = [];
    for (let i = 0; i < own; i++) first[CODE_ORDER[i]] = bits(3);
    const code = huffman(first);
    while (lengths.length < literals + far) {
      const one = symbol(code);
      if (one < 16) lengths.push(one);
      else for (let times = one === 16 ? 3 + bits(2) : one === 17 ? 3 + bits(3) : 11 + bits(7), value = one === 16 ? lengths.at(-1) : 0; times; times--) lengths.push(value);
    }
    return [huffman(lengths.slice(0, literals)), huffman(lengths.slice(literals))];
  };
  for (let last = 0; !last;) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      bits(held % 8);
      const length = bits(16);
      bits(16);
      for (let i = 0; i < length; i++) out[to++] = bits(8);
      continue;
    }
    const [literal, distance] = kind === 1 ? FIXED : codes();
    for (let one = symbol(literal); one !== 256; one = symbol(literal)) {
      if (one < 256) { out[to++] = one; continue; }
      const length = LENGTH_BASE[one - 257] + bits(LENGTH_BITS[one - 257]);
      const far = symbol(distance);
      const from = to - FAR_BASE[far] - bits(FAR_BITS[far]);
      for (let i = 0; i < length; i++) out[to++] = out[from + i];
    }
  }
  return out;
}

function bytesOf(packed) {
  const text = atob(packed), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/* What `packed` in packed.py made: its length, a colon, and the deflated text in base64. */
function textOf(packed) {
  const colon = packed.indexOf(":");
  return new TextDecoder().decode(inflate(bytesOf(packed.slice(colon + 1)), Number(packed.slice(0, colon))));
}
