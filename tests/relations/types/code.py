"""A small Python file, and by hand where each of its words points back to."""

from __future__ import annotations

import re
from pathlib import Path

from headscope.corpus.python_files import read_python
from tests.relations.type_file import Example

CODE = """\
import os, sys
def pad(text, width):
    if width:
        text = text.ljust(width)
    return text
def main():
    line = sys.path
    return pad(line, (os, len(line))[0])
"""
TOKENS = ["<bos>", *re.findall(r"\w+|[^\w\s]", CODE)]
# import 1  os 2  , 3  sys 4
# def 5  pad 6  ( 7  text 8  , 9  width 10  ) 11  : 12
# if 13  width 14  : 15
# text 16  = 17  text 18  . 19  ljust 20  ( 21  width 22  ) 23
# return 24  text 25
# def 26  main 27  ( 28  ) 29  : 30
# line 31  = 32  sys 33  . 34  path 35
# return 36  pad 37  ( 38  line 39  , 40  ( 41  os 42  , 43  len 44  ( 45  line 46  ) 47  ) 48
# [ 49  0 50  ] 51  ) 52
TEXT = read_python(Path("tools/pad.py"), CODE)
# a query without another candidate has no control, and does not count
TARGETS: dict[str, dict[int, list[int]]] = {
    "definition": {14: [10], 18: [8], 22: [10], 25: [16]},
    "bracket": {23: [21], 29: [28], 47: [45], 48: [41], 51: [49], 52: [38]},
    "block": {16: [13], 24: [5], 31: [26], 36: [26]},
}
EXAMPLES = [Example(f"code/{kind}", TOKENS, targets, TEXT) for kind, targets in TARGETS.items()]
