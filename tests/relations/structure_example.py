"""A small Markdown text, and by hand where each of its marks points back to."""

from __future__ import annotations

import re

from headscope.corpus.structure import with_structure
from headscope.corpus.text import read_text

TEXT = """\
He (the (old) man) said: “No, “never” is long.”

- tea
  - green
  - black
- milk

| who | what | when |
|---|---|---|
| he | tea | now |
| we | milk | then |
"""
TOKENS = ["<bos>", *re.findall(r"\w+|[^\w\s]", TEXT)]
# He 1  ( 2  the 3  ( 4  old 5  ) 6  man 7  ) 8  said 9  : 10
# “ 11  No 12  , 13  “ 14  never 15  ” 16  is 17  long 18  . 19  ” 20
# - 21  tea 22  - 23  green 24  - 25  black 26  - 27  milk 28
# | 29  who 30  | 31  what 32  | 33  when 34  | 35
# | 36  - - - 37-39  | 40  - - - 41-43  | 44  - - - 45-47  | 48
# | 49  he 50  | 51  tea 52  | 53  now 54  | 55
# | 56  we 57  | 58  milk 59  | 60  then 61  | 62
DOCUMENT = with_structure(read_text("example", TEXT))
TARGETS: dict[str, dict[int, list[int]]] = {
    "bracket-pair": {6: [4], 8: [2]},
    "quote-pair": {16: [14], 20: [11]},
    "list-item": {25: [23], 27: [21]},
    "table-header": {50: [30], 52: [32], 54: [34], 57: [30], 59: [32], 61: [34]},
    "cell-above": {57: [50], 59: [52], 61: [54]},
}
NEAREST: dict[str, dict[int, int]] = {
    "bracket-pair": {6: 4, 8: 4},
    "quote-pair": {16: 14, 20: 14},
    "list-item": {25: 23, 27: 25},
    "table-header": {50: 34, 52: 34, 54: 34, 57: 34, 59: 34, 61: 34},
    "cell-above": {57: 54, 59: 54, 61: 54},
}
"""What the simple rule of each kind picks."""
NUMBERED = "In 1990 he paid 7 men; 12 lamps until 1995."
NUMBERED_TOKENS = ["<bos>", *re.findall(r"\w+|[^\w\s]", NUMBERED)]
# In 1  1990 2  he 3  paid 4  7 5  men 6  ; 7  12 8  lamps 9  until 10  1995 11  . 12
NUMBERED_DOCUMENT = with_structure(read_text("numbered", NUMBERED))
NUMBERED_TARGETS: dict[int, list[int]] = {8: [5], 11: [2]}
