"""Query a trained model at a prompt: type a text, get its label and probabilities.

Usage: x-script serve SAVE_DIR [CHECKPOINT]    (or: python xdpx/serve.py SAVE_DIR [CHECKPOINT])

A line is the input of one row: a text, or for a model that reads several texts, a Python list of them:
['a text', 'another']. The best checkpoint is used, unless you name another: a file, <best> or <last>. The arrow keys
recall earlier lines, also from earlier sessions. Ctrl-D ends. For programs there is x-serve.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.answers import Prediction

NAME = "serve"
USAGE = "x-script serve SAVE_DIR [CHECKPOINT]"
PROMPT = "> "
HISTORY = io.join("~", ".cache", "xdpx", "serve_history")
REMEMBERED = 1_000
"""Number of lines kept in the history."""
SHOWN_LABELS = 10
BAR = 30
"""Length in characters of the bar for a probability of 1."""
_PLAIN = str.maketrans("【［（】］），‘’“”＂＇", "[[(])],''\"\"\"'")
"""Full-width characters of Chinese input methods, and the ASCII characters that Python expects."""


def main(argv: Sequence[str]) -> int:
    """Answer line by line until the end of the input. Return the exit code."""
    words = read_arguments(NAME, argv)
    need_paths(NAME, words, USAGE, exactly=min(max(len(words.paths), 1), 2))
    from xdpx.inference.session import load_run

    run = load_run(words.paths[0], checkpoint=words.paths[1] if len(words.paths) > 1 else None)
    reads = run.text_fields
    wanted = "a text" if len(reads) == 1 else f"a list: [{', '.join(f'{name!r}' for name in reads)}]"
    print(f"{run.checkpoint}\nType {wanted}. Ctrl-D ends.")
    for line in _lines():
        try:
            told = "\n".join(answer_lines(run.predict([row_of(line, len(reads))])[0]))
        except ConfigError as error:
            told = "\n".join(f"  {fault}" for fault in error.faults)
        print(told, flush=True)
    return 0


def row_of(line: str, num_texts: int) -> str | list[str]:
    """Return the texts of a line: those of a Python list, or the line itself.

    Args:
        line: as typed; brackets, quotes and commas of a list may be full-width.
        num_texts: number of texts in a row of the model. If it is one, a line that is not a list is a text.

    Raises:
        ConfigError: the line is not a list, but the model reads several texts.
    """
    text = line.strip()
    found = _as_list(text)
    if found is not None:
        return found
    if num_texts == 1:
        return text
    wanted = f"[{', '.join(['...'.join(chr(39) * 2)] * num_texts)}]"
    problem = f"is '{text[:40]}', which is not a Python list of {num_texts} texts."
    raise ConfigError("serve", [Fault("the line", problem, f"Write: {wanted}, with a quote around each text.")])


def _as_list(text: str) -> list[str] | None:
    """Return the texts of a list or tuple in Python syntax, None for anything else."""
    for form in (text, text.translate(_PLAIN)):
        if form[:1] in {"[", "("}:
            with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                found = ast.literal_eval(form)
                if isinstance(found, list | tuple) and all(isinstance(each, str) for each in found):
                    return list(found)
    return None


def answer_lines(answer: Prediction) -> Iterator[str]:
    """Yield the lines of an answer: the label, then the probabilities, highest first."""
    if answer.score is not None:
        yield f"  {answer.score:.6g}"
        return
    yield f"  {answer.label}" if answer.label is not None else "  (no answer: the text is too short for this model)"
    ranked = sorted(answer.probabilities.items(), key=lambda each: -each[1])
    width = max((len(name) for name, _ in ranked[:SHOWN_LABELS]), default=0)
    for name, share in ranked[:SHOWN_LABELS]:
        yield f"    {name:<{width}}  {share:.4f}  {'█' * round(share * BAR)}".rstrip()
    if len(ranked) > SHOWN_LABELS:
        yield f"    and {len(ranked) - SHOWN_LABELS:,} more"


def _lines() -> Iterator[str]:
    """Yield the lines typed or piped in, without empty ones."""
    if not sys.stdin.isatty():
        yield from (line for line in sys.stdin if line.strip())
        return
    with _history():
        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                print()
                return
            if line.strip():
                yield line


@contextmanager
def _history() -> Generator[None]:
    """Enable the history of earlier lines, if Python was built with readline."""
    try:
        import readline
    except ImportError:  # Windows
        yield
        return
    path = os.path.expanduser(HISTORY)
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(REMEMBERED)
        with suppress(OSError):  # a read-only home folder only loses the history
            io.makedirs(io.parent(path))
            readline.write_history_file(path)
