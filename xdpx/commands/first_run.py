"""`x-run FILE`: from a labelled file to a trained and scored model. `x-init FILE` only writes its configs.

Usage: x-run FILE [save_dir=FOLDER] [model=DIR] [key=value ...] [--json]
       x-init FILE [...]      write the rows of each split and four configs, and train nothing
       x-run --demo           the same on text that comes with Python: docstrings of its library, by topic
       x-init --list          the families of configs that come with XDPX, a line each

FILE is a .csv, .tsv, .txt, .jsonl, .json, .xlsx or .parquet, optionally with .gz, .bz2 or .xz; words and tags (CoNLL);
or a folder with train, dev and test in one of these formats. What is detected is printed, each line with the key that
overrides it: encoding, delimiter, header, sheet, text, label, label_separator, task; dev=0.1 and test=0.1 are shares of
the texts. Every other key goes into the config of the command that takes it: max_epoch=3, max_len=64.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, fields
from io import StringIO
from shlex import quote
from textwrap import shorten
from typing import Any

from xdpx.commands import batch
from xdpx.commands.chain import runs_of
from xdpx.commands.command_line import Job
from xdpx.commands.flags import with_settings
from xdpx.commands.starting_configs import Place, compose, fields_of
from xdpx.config.families import families
from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.data_files import split_of
from xdpx.datasets.findings.finding import FILE as FINDINGS
from xdpx.datasets.guessing.columns import Columns
from xdpx.datasets.guessing.decision import Decision, Wishes
from xdpx.datasets.guessing.looking import SHARE, Found, look_at
from xdpx.metrics import share_interval
from xdpx.tokenizers.target_map import folded, number_of
from xdpx.utils import commit, hub, io

DEMO = "--demo"
FLAGS = ("--json", DEMO, "--list", "--help", "-h", "--verbose", "--quiet", "--version")
WISHES = tuple(item.name for item in fields(Wishes))
MAIN_SCORES = {"class": ("acc",), "several": ("f1", "acc"), "tags": ("f1", "acc"), "number": ("spearman", "pearson")}
WARNINGS_SHOWN = 4
"""Number of warnings about the data that are repeated beside the score."""

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass
class FirstRunOptions:
    """The options given on the command line."""

    path: str
    wishes: Wishes
    place: Place
    model: str | None = None
    shares: dict[str, float] = field(default_factory=lambda: {"dev": SHARE, "test": SHARE})
    settings: list[str] = field(default_factory=list)
    json: bool = False


def main(words: Sequence[str]) -> int:
    """Do all steps: detect the format, split, write configs, preprocess, train, score, predict. Return an exit code."""
    if not words or {"--help", "-h"} & set(words):
        print((__doc__ or "").strip())
        return 0
    options = read_words("x-run", words)
    if options.json:
        with redirect_stdout(sys.stderr):
            told = _run(options)
        print(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        _run(options)
    return 0


def init(words: Sequence[str]) -> int:
    """Write the configs of a file, or list the families. Return the exit code."""
    if "--list" in words:
        width = max(map(len, families()), default=0)
        for name, purpose in families().items():
            print(f"{name:<{width}}  {shorten(purpose, 100, placeholder=' ...')}")
        return 0
    if not words or {"--help", "-h"} & set(words):
        print((__doc__ or "").strip())
        return 0
    options = read_words("x-init", words)
    found = look(options)
    _tell(options.path, found.decisions)
    names = write(options, found)
    commands = zip(("x-prepro", "x-train", "x-eval", "x-pred"), names, strict=True)
    print("\nwritten; next:\n  " + " ".join(f"{command} {options.place.path(name)}" for command, name in commands))
    return 0


def read_words(command: str, words: Sequence[str]) -> FirstRunOptions:
    """Parse the words of a command line.

    Raises:
        ConfigError: with every fault found.
    """
    words = _with_demo(with_settings(words, flags=FLAGS))
    plain = [word for word in words if not word.startswith("-") and "=" not in word]
    flags = [word for word in words if word.startswith("-")]
    faults = [Fault(word, "no such flag.", f"Use one of: {', '.join(FLAGS)}.") for word in flags if word not in FLAGS]
    if len(plain) != 1:
        faults.append(Fault(command, "takes one file or folder.", f"Write: {command} reviews.csv [key=value ...]"))
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    if faults:
        raise ConfigError("command line", faults)
    wishes: dict[str, Any] = {key: given.pop(key) for key in WISHES if key in given}
    if "header" in wishes:
        if wishes["header"] not in {"true", "false"}:
            raise ConfigError("command line", [Fault("header", f"is '{wishes['header']}'.", "Use true or false.")])
        wishes["header"] = wishes["header"] == "true"
    place = Place(_folder(given.pop("save_dir", "") or io.join("out", split_of(io.abspath(plain[0]).rstrip("/")))))
    options = FirstRunOptions(
        plain[0], Wishes(**wishes), place, model=_model(given.pop("model", None)), json="--json" in flags
    )
    options.shares |= {split: _share(split, given.pop(split)) for split in ("dev", "test") if split in given}
    options.settings = [f"{key}={value}" for key, value in given.items()]
    return options


def _with_demo(words: Sequence[str]) -> list[str]:
    """Replace the flag --demo by the path of the demo file, which is written into the folder of the results."""
    if DEMO not in words:
        return list(words)
    from xdpx.commands.stdlib_docstrings import write_csv

    given = dict(word.split("=", 1) for word in words if "=" in word)
    folder = _folder(given.get("save_dir") or io.join("out", "demo"))
    path = io.join(folder, "docstrings.csv")
    if not io.isfile(path):
        write_csv(path)
    place = [] if "save_dir" in given else [f"save_dir={folder}"]
    return [path, *(word for word in words if word != DEMO), *place]


def _model(path: str | None) -> str | None:
    """Return the folder of an encoder: the path itself, or that of a model in the cache of the Hugging Face hub.

    Raises:
        ConfigError: it is neither; the remedy says how to download it.
    """
    if path is None or io.exists(path):
        return path
    kept = hub.kept_folder(path)
    if kept is None:
        remedy = hub.how_to_fetch(path) or "Name a folder in Hugging Face format."
        raise ConfigError("command line", [Fault("model", f"is '{path}', which does not exist.", remedy)])
    return kept


def _folder(path: str) -> str:
    """Return a path that every config can use: in configs `./` and `../` are relative to the config's folder."""
    return io.abspath(path) if path.startswith(("./", "../")) else path.rstrip("/")


def _share(key: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 0.4:
        problem = f"is '{text}', but must be a share of the texts above 0, at most 0.4."
        raise ConfigError("command line", [Fault(key, problem, "Use e.g. 0.1.")])
    return share


def look(options: FirstRunOptions) -> Found:
    """Detect the content of the file, and split its rows. Raises ConfigError if it is ambiguous."""
    return look_at(options.path, options.wishes, options.shares)


def _tell(path: str, decisions: Sequence[Decision]) -> None:
    """Print each decision on a line: what, the value, how certain it is, and the key that overrides it."""
    print(path)
    for each in decisions:
        override = f"   [{each.override}]" if each.override and each.sure != "given" else ""
        print(f"  {each.what:<9} {each.value}  ({each.sure}){override}")


# ------------------------------------------------------------------------------------------------ writing


def write(options: FirstRunOptions, found: Found) -> list[str]:
    """Write the rows of each split and the configs. Return the names of the configs, in the order of their commands.

    Raises:
        ConfigError: the folder holds other files of these names, or edited configs; nothing is overwritten.
    """
    sizes = {split: len(rows) for split, rows in found.rows.items()}
    sample = [text for row in found.rows["train"][:5000] for text in row[:-1]]
    pieces = 2 if options.model and not found.columns.characters else 1  # tokens of a rare word
    lengths = [len(text) if found.columns.characters else pieces * len(_TOKEN.findall(text)) for text in sample]
    configs = compose(
        options.place, found.columns, sizes, source=options.path, lengths=lengths, model=options.model,
        settings=options.settings,
    )  # fmt: skip
    tags = found.columns.task == "tags"
    files = {
        f"raw/{split}.{'txt' if tags else 'jsonl'}": _raw(rows, found.columns) for split, rows in found.rows.items()
    }
    files |= configs
    changed = [name for name in files if _differs(options.place.path(name), files[name])]
    if changed:
        problem = (
            f"'{options.place.folder}' holds another {changed[0]} already, of other data or settings or edited by hand."
        )
        remedy = (
            f"Choose another folder: save_dir=...; or continue by hand: x-train {options.place.path('train.hjson')}."
        )
        raise ConfigError("x-run", [Fault("save_dir", problem, remedy)])
    for name, text in files.items():
        path = options.place.path(name)
        if not io.exists(path):
            io.makedirs(io.parent(path), exist_ok=True)
            commit.write_text(path, text)
    return list(configs)


def _differs(path: str, text: str) -> bool:
    if not io.isfile(path):
        return False
    with io.open(path, encoding="utf-8", newline="") as file:
        return bool(file.read() != text)


def _raw(rows: Sequence[Sequence[str]], columns: Columns) -> str:
    """Return the text of a raw file: a JSON object per row, or for tags a word and its tag per line."""
    if columns.task != "tags":
        names = fields_of(columns)
        return "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    sentences = (zip(words.split(), tags.split(), strict=True) for words, tags in rows)
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences)


# ------------------------------------------------------------------------------------------------ running


def _run(options: FirstRunOptions) -> dict[str, Any]:
    """Do all steps, and return decisions and scores."""
    from xdpx.config.user_modules import load_user_modules

    load_user_modules()
    found = look(options)
    _tell(options.path, found.decisions)
    place = options.place
    write(options, found)
    if not io.exists(place.path("run/status.json")):  # once training has begun, preprocessing is complete
        _perform("x-prepro", place.path("prepro.hjson"))
    _perform("x-train", place.path("train.hjson"))
    with redirect_stdout(StringIO()):
        _perform("x-eval", place.path("eval.hjson"))
    _perform("x-pred", place.path("predict.hjson"))
    told = _result(options, found)
    print(_in_words(told, options))
    return told


def _perform(command: str, config: str) -> None:
    """Perform a command, unless the run has already finished.

    Raises:
        SystemExit: with its exit code, if it fails or is interrupted.
    """
    runs = runs_of(Job(command, config))
    if command == "x-train" and batch.has_finished(runs[0]):
        return
    code = batch.run_all(runs)
    if code:
        raise SystemExit(code)


def _result(options: FirstRunOptions, found: Found) -> dict[str, Any]:
    """Return decisions, scores and files in a form for JSON."""
    place, test = options.place, [folded(row[-1]) for row in found.rows["test"]]
    with io.open(place.path("scores.tsv"), encoding="utf-8", newline="") as file:
        rows = [dict(row) for row in csv.DictReader(file, delimiter="\t")]
    scores = {row.pop("split"): {key: _number(value) for key, value in row.items()} for row in rows}
    commonest = Counter(folded(row[-1]) for row in found.rows["train"]).most_common(1)[0][0]
    return {
        "file": options.path,
        "task": found.columns.task,
        "decisions": {each.what: {"value": each.value, "sure": each.sure} for each in found.decisions},
        "rows": {split: len(each) for split, each in found.rows.items()},
        "scores": scores,
        "majority": test.count(commonest) / len(test) if found.columns.task == "class" and test else None,
        "mean_squared_error_of_the_mean": _error_of_the_mean(found) if found.columns.task == "number" else None,
        "folder": place.folder,
        "predictions": place.path("predictions.tsv"),
        "page": _newest_page(place.path("run/eval")),
        "warnings": _warnings(place),
    }


def _warnings(place: Place) -> list[str]:
    """Return what x-prepro warned of, since its lines are far above the score that they are about."""
    path = place.path(f"data/{FINDINGS}")
    if not io.isfile(path):
        return []
    with io.open(path, encoding="utf-8") as file:
        found = [each for each in json.load(file)["findings"] if each["severity"] == "warning"]
    return [f"{each['place']}: {each['problem']} {each['remedy']}" for each in found]


def _newest_page(folder: str) -> str | None:
    """Return the newest page of x-eval, None if there is none."""
    pages = [path for path in io.listdir(folder, full_path=True) if path.endswith(".html")] if io.isdir(folder) else []
    with suppress(OSError):  # not every server knows when a file was written
        pages.sort(key=io.last_modified)
    return pages[-1] if pages else None


def _error_of_the_mean(found: Found) -> float:
    """Return the mean squared error on test of predicting the mean of train for every row."""
    train, test = ([float(number_of(row[-1]) or 0) for row in found.rows[split]] for split in ("train", "test"))
    mean = sum(train) / len(train)
    return sum((number - mean) ** 2 for number in test) / len(test)


def _number(text: str | None) -> Any:
    try:
        return float(text or "")
    except ValueError:
        return text


def _in_words(told: Mapping[str, Any], options: FirstRunOptions) -> str:
    """Return the result as text: the score on the held-out rows, and what to do next."""
    scores, rows, place = told["scores"]["test"], told["rows"]["test"], options.place
    wanted = MAIN_SCORES[told["task"]]
    main_score = next((key for key in wanted if isinstance(scores.get(key), float)), "loss")
    value = scores[main_score]
    low, high = share_interval(value, rows) if main_score == "acc" else (0.0, 0.0)
    spread = f" (95 % interval {low:.3f} to {high:.3f})" if main_score == "acc" else ""
    others = [f"{key} {scores[key]:.3f}" for key in ("macro_f1", "auc", "mcc") if isinstance(scores.get(key), float)]
    plain = "" if told["majority"] is None else f"; always predicting the most frequent label: {told['majority']:.3f}"
    if (of_the_mean := told["mean_squared_error_of_the_mean"]) is not None:
        plain = f"; mean squared error {scores['loss']:.4g}, of always the mean {of_the_mean:.4g}"
    more = len(told["warnings"]) - WARNINGS_SHOWN
    lines = [
        "",
        f"test: {main_score} {value:.3f}{spread} on {rows:,} held-out rows{plain}",
        *([f"      {', '.join(others)}"] if others else []),
        *[f"warning: {each}" for each in told["warnings"][:WARNINGS_SHOWN]],
        *([f"... {more:,} more warnings: {place.path(f'data/{FINDINGS}')}"] if more > 0 else []),
        *([f"errors, to open in a browser: {told['page']}"] if told["page"] else []),
        f"predictions for these rows: {told['predictions']}; configs to edit: {place.folder}/*.hjson",
    ]
    if main_score == "acc" and told["majority"] is not None and value <= told["majority"]:
        lines.append("this is no better than always predicting the most frequent label: try more epochs or more rows")
    if of_the_mean is not None and scores["loss"] >= of_the_mean:
        lines.append("this is no better than always predicting the mean: try more epochs or more rows")
    if main_score == "f1" and value == 0:
        lines.append("not one was predicted rightly: try more epochs or more rows")
    if options.model is None:
        lines.append(
            f"a pre-trained encoder often does better: x-run {quote(str(options.path))} model=DIR "
            f"{quote(f'save_dir={place.folder}_encoder')}, where DIR has a model in Hugging Face format; a thousand "
            "rows take minutes on a CPU, seconds on a GPU"
        )
    return "\n".join(lines)


ENTRIES: dict[str, Callable[[Sequence[str]], int]] = {"x-run": main, "x-init": init}
