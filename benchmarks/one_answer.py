"""Consistency of answers: real rows in batches of several sizes, through five interfaces, in exact and default mode.

Compares x-pred, Python, x-serve and an ONNX export row by row, and the scores of evaluation in training and x-eval.
Answers are probabilities, a number, or tags, which are compared by their indices.
`XDPX_BENCH_ANSWERS=cls_cnn,re2` selects models.
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Row
from benchmarks.serving import FOLDER, Served, started
from benchmarks.work import DATA, REPOSITORY, WORK, minilm

ROWS = int(os.environ.get("XDPX_BENCH_ROWS", "10000"))
SIZES = (1, 7, 32, 64)
Numbers = NDArray[np.float32]
SERVED_AT_ONCE = (7, 64)
UPDATES, TRAINED = 10, 640
OF_TAGS = {"max_update": 200, "eval_interval": 200, "max_epoch": 20, "learning_rate": 0.02}
"""After few updates, every word gets the same tag, so that differences would not show."""
MOST_DIFFERENT = 1e-6
MOST_COST = 1.3


def measure() -> Iterator[Row]:
    """Train each model for a few updates, and predict the same rows in every way."""
    asked = os.environ.get("XDPX_BENCH_ANSWERS", "").split(",")
    for name, family, tables, keys in models():
        if asked == [""] or family in asked:
            yield from of_model(name, family, tables, keys)


def models() -> Iterator[tuple[str, str, list[Path], dict[str, Any]]]:
    """Yield name, family, tables of raw rows and x-prepro keys of each model whose data are available."""
    texts = there("sst2/train.tsv", "sst2/dev.tsv", "sst2/test.tsv", "online_shopping/all.csv.xz")
    pairs = there("lcqmc/dev.tsv", "bq/dev.tsv")
    of_bert = {
        "processor": "bert_single",
        "tokenizer": "bert",
        "vocab_file": str(minilm() / "vocab.txt"),
        "max_len": 128,
    }
    of_words = {"processor": "single", "tokenizer": "space", "max_len": 64}
    if texts:
        yield "cls_cnn", "cls_cnn", texts, {"parent": "classification_prepro", **of_words}
    if pairs:
        of_pairs = {"processor": "pair", "tokenizer": "char_zh", "max_len": 64}
        yield "re2", "re2", pairs, {"parent": "matching_prepro", **of_pairs}
    if texts:
        yield "MiniLM", "bert_classification", texts, {"parent": "classification_prepro", **of_bert}
        numbers = {"parent": "classification_prepro", "target_type": "number", **of_words}
        yield "cnn_regression", "cnn_regression", texts, numbers
    if tagged := there("msra_ner/dh_msra.txt.xz"):
        yield "lstm_token", "lstm_token", tagged, {"parent": "tagging_words_prepro", "max_len": 64}


def there(*names: str) -> list[Path]:
    """Return those of the named data files that exist."""
    return [DATA / name for name in names if (DATA / name).exists()]


def of_model(name: str, family: str, tables: list[Path], keys: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of one model."""
    import xdpx

    folder = WORK / f"one_answer_{family}"
    run, texts = trained(folder, family, tables, keys)
    found = {exact: [*all_ways(folder, run, texts, exact=exact)] for exact in (True, False)}
    tags = tags_of(xdpx.load_run(run.save_dir))
    for exact in found:
        found[exact] += [served(run.save_dir, texts, size, tags=tags, exact=exact) for size in SERVED_AT_ONCE]
    num = len({hashlib.sha256(each.tobytes()).hexdigest() for each in found[True]})
    ways = f"{len(found[True])} ways of predicting {len(texts):,} rows"
    yield Row(f"{name}: different hashes of {ways}, exact", f"{num}", "1", num == 1)
    yield from differences(name, family, found[False][0], [*found[False], *found[True]])
    yield scores_row(name, run)
    yield from of_export(name, family, folder, run.save_dir, texts, found[False][0])
    ratio = cost(run.save_dir, texts)
    yield Row(f"{name}: CPU seconds, exact over as batches come", f"{ratio:.2f}", f"<= {MOST_COST}", ratio <= MOST_COST)


def differences(name: str, family: str, first: Numbers, others: Sequence[Numbers]) -> Iterator[Row]:
    """Yield how far answers in default mode differ between batch sizes and interfaces."""
    if not is_tagger(family):
        most = max(float(np.abs(each - first).max()) for each in others)
        yield Row(f"{name}: largest difference, as batches come", f"{most:.1e}", "<= 1e-06", most <= MOST_DIFFERENT)
    if not is_regression(family):
        changed = max(rows_changed(family, each, first) for each in others)
        what = f"{name}: rows with another tag (there are {len(np.unique(first)) - 1})" if is_tagger(family) else ""
        yield Row(what or f"{name}: labels changed", f"{changed}", "0", changed == 0)


def is_tagger(family: str) -> bool:
    """Return whether a model answers with a tag for each word."""
    return family.endswith("_token")


def is_regression(family: str) -> bool:
    """Return whether a model answers with a number."""
    return family.endswith("_regression")


def rows_changed(family: str, one: Numbers, other: Numbers) -> int:
    """Return the number of rows whose label, or the tag of any word, differs; 0 for numbers."""
    if is_regression(family):
        return 0
    if is_tagger(family):
        return int((one != other).any(axis=1).sum())
    return int((one.argmax(1) != other.argmax(1)).sum())


def scores_row(name: str, run: Any) -> Row:
    """Return how far the exact scores of x-eval are from those logged in training, which also scored exactly."""
    import xdpx

    scores = xdpx.load_run(run.save_dir, exact=True).evaluate()
    apart = max(abs(value - run.scores[key]) for key, value in scores.items() if key in run.scores)
    what = f"{name}: scores of x-eval beside those of training, exact (the log has eight digits)"
    return Row(what, f"{apart:.1e}", "<= 1e-08", apart <= 1e-8)


def of_export(
    name: str, family: str, folder: Path, save_dir: str, texts: list[Any], expected: Numbers
) -> Iterator[Row]:
    """Yield the rows of an ONNX export, run by onnxruntime."""
    import xdpx
    from xdpx.run import main

    place = folder / "onnx"
    if main(["x-script", "export_onnx", f"save_dir={save_dir}", f"out_dir={place}", "num_rows=20"]) != 0:
        yield Row(f"{name}: export to ONNX", "none", "one hash", False)
        return
    found = {exact: [*by_sizes(xdpx.load_run(place, exact=exact), texts)] for exact in (True, False)}
    num = len({hashlib.sha256(each.tobytes()).hexdigest() for each in found[True]})
    yield Row(f"{name}, exported: different hashes of {len(SIZES)} sizes of batches, exact", f"{num}", "1", num == 1)
    most = max(float(np.abs(each - expected).max()) for each in found[False])
    changed = max(rows_changed(family, each, expected) for each in found[False])
    told = f"{most:.1e}, {changed} labels"
    yield Row(f"{name}, exported: largest difference from the run", told, "<= 1e-4, 0", most <= 1e-4 and not changed)


def trained(folder: Path, family: str, tables: list[Path], keys: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return a run of a few updates, and the texts of its held-out rows."""
    import xdpx

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines = raw_rows(family, tables)
    held_out = min(ROWS, len(lines) - TRAINED)
    ending = "txt" if is_tagger(family) else "tsv"
    for split, rows in (("train", lines[held_out:]), ("dev", lines[:held_out]), ("test", lines[:9])):
        (folder / f"{split}.{ending}").write_text("".join(rows), encoding="utf-8")
    families = REPOSITORY / "examples" / "families"
    prepro = {"__parent__": str(families / keys.pop("parent")), "data_source": str(folder), "workers": 1, **keys}
    prepro |= {"data_dir": str(folder / "data")}
    config: dict[str, Any] = {
        "__parent__": str(families / family),
        "data_dir": xdpx.preprocess(prepro),
        "save_dir": str(folder / "run"),
    }
    config |= {"max_update": UPDATES, "eval_interval": UPDATES, "overwrite": True, "plots": False, "exact": True}
    config |= OF_TAGS if is_tagger(family) else {}
    config |= {"pretrained_model": str(minilm())} if family.startswith("bert") else {}
    run = xdpx.train(config)
    if is_tagger(family):
        return run, [" ".join(word.split("\t")[0] for word in row.splitlines() if word) for row in lines[:held_out]]
    cells = [line.rstrip("\n").split("\t") for line in lines[:held_out]]
    return run, [row[0] if len(row) == 2 else tuple(row[:2]) for row in cells]


def raw_rows(family: str, tables: list[Path]) -> list[str]:
    """Return the first rows of some tables, unchanged: lines, or sentences followed by a blank line."""
    lines = chain.from_iterable(map(lines_of, tables))
    if not is_tagger(family):
        return list(islice(lines, ROWS + TRAINED))
    sentences = ("".join(found) for filled, found in groupby(lines, key=lambda line: bool(line.strip())) if filled)
    return [f"{sentence}\n" for sentence in islice(sentences, ROWS + TRAINED)]


def lines_of(table: Path) -> Iterator[str]:
    """Yield the lines of a table; of reviews in a csv file, text and label separated by a tab."""
    with lzma.open(table, "rt", encoding="utf-8") if table.suffix == ".xz" else table.open(encoding="utf-8") as file:
        if ".csv" in table.suffixes:
            yield from (f"{' '.join(row['review'].split())}\t{row['label']}\n" for row in csv.DictReader(file))
        else:
            yield from (line.rstrip("\n") + "\n" for line in file)  # some files end without a line break


def all_ways(folder: Path, run: Any, texts: list[Any], *, exact: bool) -> Iterator[Numbers]:
    """Yield the answers for all rows, in batches of each size, from Python and x-pred."""
    import torch

    import xdpx
    from xdpx.run import main

    opened = xdpx.load_run(run.save_dir, exact=exact)
    tags = tags_of(opened)
    lines = [text if isinstance(text, str) else "\t".join(text) for text in texts]
    rows = [f"{line}\n" for line in lines] if not tags else ["\n".join(line.split(" ")) + "\n\n" for line in lines]
    plain, target = (folder / name for name in (("plain.txt", "tags.tsv") if tags else ("plain.tsv", "plain.pt")))
    plain.write_text("".join(rows), encoding="utf-8")
    yield from by_sizes(opened, texts)
    for size in SIZES:
        asked = {"save_dir": run.save_dir, "exact": exact, "batch_size": size, "concat_origin": False}
        asked |= {"binary": not tags, "predict_file_map": {str(plain): str(target)}}
        (folder / "predict.json").write_text(json.dumps(asked), encoding="utf-8")
        if main(["x-pred", str(folder / "predict.json")]) != 0:
            raise RuntimeError(f"x-pred failed: {asked}")
        if tags:
            yield as_numbers([{"label": line} for line in target.read_text(encoding="utf-8").splitlines()[1:]], tags)
        else:
            found = torch.load(target, weights_only=True)
            yield found["prob"].numpy() if "prob" in found else found["score"].numpy()[:, None]


def by_sizes(run: Any, texts: list[Any]) -> Iterator[Numbers]:
    """Yield the answers for all rows from Python, in batches of each size."""
    rows, tags = run.encode(texts), tags_of(run)
    for size in SIZES:
        answers = [one for start in range(0, len(rows), size) for one in run.answer(rows[start : start + size])]
        yield as_numbers([asdict(one) for one in answers], tags)


def tags_of(run: Any) -> list[str]:
    """Return the tags of a tagger; [] for other models."""
    return list(run.labels) if is_tagger(run.config["model"]) else []


def as_numbers(said: Sequence[Mapping[str, Any]], tags: Sequence[str]) -> Numbers:
    """Return a row of numbers per answer: its probabilities, its number, or the indices of its tags.

    Args:
        said: the answer for each row, in the format of x-serve.
        tags: all tags; rows are padded with -1. Empty if the model does not predict tags.
    """
    if tags:
        places = [[tags.index(tag) for tag in one["label"].split()] for one in said]
        longest = max(map(len, places))
        return np.array([row + [-1] * (longest - len(row)) for row in places], np.float32)
    return np.array([[*one["probabilities"].values()] or [one["score"]] for one in said], np.float32)


def served(save_dir: str, texts: list[Any], size: int, *, tags: Sequence[str], exact: bool) -> Numbers:
    """Return the answers of x-serve for all rows, `size` rows per request."""
    words = [sys.executable, "-m", "xdpx.run", "x-serve", save_dir, "--port", "PORT", *(["--exact"] if exact else [])]
    key = "texts" if isinstance(texts[0], str) else "pairs"
    found: list[dict[str, Any]] = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    asks = Served("one_answer", words, body=lambda text: {"text": text} if key == "texts" else {"pair": [text, text]})
    with started(asks) as (address, _):
        for start in range(0, len(texts), size):
            body = json.dumps({key: texts[start : start + size]}).encode()
            asked = urllib.request.Request(f"{address}/predict_batch", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=600) as answer:
                found += json.load(answer)
    return as_numbers(found, tags)


def cost(save_dir: str, texts: list[Any]) -> float:
    """Return the CPU time of exact mode divided by that of default mode: the best of three, alternating."""
    import xdpx

    runs = {exact: xdpx.load_run(save_dir, exact=exact) for exact in (True, False)}
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(3):
        for exact, run in runs.items():
            begun = time.process_time()
            run.predict(texts)
            seconds[exact] = min(seconds[exact], time.process_time() - begun)
    return seconds[True] / seconds[False]
