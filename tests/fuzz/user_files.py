"""Tables, JSON lines and programs as nobody should write them, by the option that takes them."""

from __future__ import annotations

from collections.abc import Mapping

LABELS, SCORES = "head,label", "model,revision,metric,layer,head,value"
TASK, TASKS = "prompt,answer", "task,question,answer"
ROWS = {
    LABELS: "L0H0,sink",
    SCORES: "distilgpt2,main,pattern_entropy,0,0,1",
    TASK: "1 2,3",
    TASKS: "t,hot,cold",
}
"""A row of each table that would be taken."""


def faulty_tables(header: str) -> dict[str, bytes]:
    """Faulty CSV files with this header, by what is wrong with them."""
    row = ROWS[header]
    column = header.partition(",")[0]
    texts = {
        "more": f"{header}\n{row}\n{row},x\n",
        "fewer": f"{header}\n{row}\n{row.rpartition(',')[0]}\n",
        "twice": f"{header},{column}\n{row},x\n{row},x\n",
        "backslash": f'{header}\n{row}\n{row},"\\"x\\""\n',
        "open": f'{header}\n{row}\n"{row}\n',
        "semicolons": f"{header}\n{row}\n".replace(",", ";"),
        "header": f"{header}\n",
        "empty": "",
    }
    files = {name: text.encode() for name, text in texts.items()}
    files["wide"] = f"{header}\n{row}\n".encode("utf-16")
    files["latin"] = f"{header}\n{row}é\n".encode("latin-1")
    return files


LINE = '{"prompt": "1 2", "answer": "3"}\n'
FAULTY_LINES = {
    "deep": LINE + "[" * 100_000,
    "half": LINE + r'{"prompt": "\ud800", "answer": "3"}',
    "twice": LINE + '{"prompt": "1", "prompt": "2", "answer": "3"}',
    "list": LINE + "[1]",
    "cut": LINE + LINE[:20],
    "misspelt": LINE + '{"promt": "1 2", "answer": "3"}',
    "group": (LINE[:-2] + ', "group": "a"}\n') * 3,
    "one": LINE,
    "same": LINE + '{"prompt": "a b", "answer": "c", "wrong": " c"}',
}
FAULTY_SCORES = {
    "bare": "{}",
    "deep": "[" * 100_000,
    "no layer": '[{"head": 0, "pattern_entropy": 1}]',
    "flat": '{"metrics": {"pattern_entropy": [1, 2]}}',
}
FAULTY_PROGRAMS = {
    "exits": "import sys\nsys.exit(0)\n",
    "raises": "class Stop(BaseException): pass\nraise Stop\n",
    "nothing": "",
}


def _named(files: Mapping[str, str | bytes], stem: str, suffix: str) -> dict[str, bytes]:
    contents = {}
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        contents[f"{stem}-{name}{suffix}"] = raw
    return contents


FAULTY_FILES: Mapping[str, Mapping[str, bytes]] = {
    "labels": _named(faulty_tables(LABELS), "labels", ".csv"),
    "scores": {
        **_named(faulty_tables(SCORES), "scores", ".csv"),
        **_named(FAULTY_SCORES, "scores", ".json"),
    },
    "rows": {
        **_named(faulty_tables(TASK), "task", ".csv"),
        **_named(FAULTY_LINES, "task", ".jsonl"),
    },
    "tasks": _named(faulty_tables(TASKS), "tasks", ".csv"),
    "programs": _named(FAULTY_PROGRAMS, "programs", ".py"),
}
"""Content of each faulty file, by the name of the option and of the file."""
