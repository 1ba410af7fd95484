"""A clean corpus and faults to plant in it, each with the code that x-check has for it.

`python -m tests.datasets.examining.planted FOLDER` writes all of them, each in a folder with its config.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
SIZES = {"train": 600, "dev": 160, "test": 160}
Row = tuple[str, ...]
Splits = dict[str, list[Row]]


def vocabulary(random: Random, count: int) -> list[str]:
    """Return made-up words."""
    words: set[str] = set()
    while len(words) < count:
        words.add("".join(random.choice(SYLLABLES) for _ in range(random.randint(2, 4))))
    return sorted(words)


def sentence(random: Random, own: list[str], others: list[str], length: tuple[int, int] = (15, 26)) -> str:
    """Return a made-up text; a third of its words indicate its label."""
    words = [random.choice(own if random.random() < 0.35 else others) for _ in range(random.randint(*length))]
    return " ".join(words)


def clean(labels: tuple[str, ...] = ("neg", "pos"), seed: int = 1) -> Splits:
    """Return rows (text, label) of three splits without faults."""
    random = Random(seed)
    words = vocabulary(random, 300 + 60 * len(labels))
    random.shuffle(words)
    own = {label: words[60 * index : 60 * index + 60] for index, label in enumerate(labels)}
    others = words[60 * len(labels) :]
    return {
        split: [
            (sentence(random, own[label], others), label)
            for label in (labels[index % len(labels)] for index in range(size))
        ]
        for split, size in SIZES.items()
    }


def clean_pairs(seed: int = 2) -> Splits:
    """Return rows (text, text, label): 1 if the second is the first with other words inserted."""
    random = Random(seed)
    words = vocabulary(random, 500)
    found: Splits = {}
    for split, size in SIZES.items():
        rows: list[Row] = []
        for index in range(size):
            first = sentence(random, words, words, (8, 14)).split()
            second = sentence(random, words, words, (8, 14)).split()
            if index % 2:
                second = random.sample(first, len(first) // 2) + second[: len(second) // 2]
            rows.append((" ".join(first), " ".join(second), str(index % 2)))
        found[split] = rows
    return found


def clean_tags(seed: int = 3) -> Splits:
    """Return rows (words, tags) with entities of one kind."""
    random = Random(seed)
    words = vocabulary(random, 400)
    found: Splits = {}
    for split, size in SIZES.items():
        found[split] = []
        for _ in range(size):
            text = sentence(random, words, words).split()
            tags = ["O"] * len(text)
            start = random.randrange(len(text) - 3)
            tags[start : start + 2] = ["B-PER", "I-PER"]
            found[split].append((" ".join(text), " ".join(tags)))
    return found


def clean_numbers(seed: int = 4) -> Splits:
    """Return rows (text, number)."""
    random = Random(seed)
    return {
        split: [(text, f"{random.uniform(0, 5):.2f}") for text, _ in rows] for split, rows in clean(seed=seed).items()
    }


@dataclass
class Corpus:
    """Raw files, and the x-prepro keys to read them."""

    splits: Splits
    keys: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """Files that replace those of the splits."""

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the files, and return the x-prepro values."""
        raw = folder / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        for split, rows in self.splits.items():
            text = "".join("\t".join(row) + "\n" for row in rows)
            (raw / f"{split}.tsv").write_bytes(self.files.get(split, text.encode("utf-8", "surrogatepass")))
        names = {f"{split}.tsv": split for split in self.splits}
        return {
            "data_source": str(raw), "data_files": names, "data_dir": str(folder / "data"), "loader": "single",
            "parser": "csv", "processor": "single", "tokenizer": "space", "max_len": 64, **self.keys,
        }  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A planted fault: how to plant it, and the code that x-check must report."""

    name: str
    code: str
    plant: Callable[[Random], Corpus]


FAULTS: list[Fault] = []


def fault(code: str) -> Callable[[Callable[[Random], Corpus]], Callable[[Random], Corpus]]:
    """Register a function that plants a fault."""

    def note(plant: Callable[[Random], Corpus]) -> Callable[[Random], Corpus]:
        FAULTS.append(Fault(plant.__name__, code, plant))
        return plant

    return note


def changed(rows: list[Row], numbers: list[int], change: Callable[[str], str], column: int = 0) -> None:
    """Change the texts of some rows in place."""
    for number in numbers:
        row = list(rows[number])
        row[column] = change(row[column])
        rows[number] = tuple(row)


def in_words(text: str, word: str) -> str:
    """Insert a word in the middle of a text."""
    words = text.split()
    return " ".join([*words[:5], word, *words[5:]])


def rows_of(count: int) -> list[int]:
    return list(range(7, 7 + 11 * count, 11))


# ---- files that are read differently from how they were written


@fault("header")
def header_row_became_a_sample(random: Random) -> Corpus:
    splits = clean()
    splits["train"].insert(0, ("text", "label"))
    return Corpus(splits)


@fault("header")
def headers_of_files_that_were_put_together(random: Random) -> Corpus:
    splits = clean()
    for place in (200, 400):
        splits["train"].insert(place, ("text", "label"))
    return Corpus(splits)


@fault("delimiter")
def another_delimiter(random: Random) -> Corpus:
    splits = clean()
    files = {split: "".join(f"{text},{label}\n" for text, label in rows).encode() for split, rows in splits.items()}
    return Corpus(splits, files=files)


@fault("quotes")
def quotes_wrap_every_cell(random: Random) -> Corpus:
    splits = {split: [(f'"{text}"', label) for text, label in rows] for split, rows in clean().items()}
    return Corpus(splits)


@fault("bad_lines")
def lines_of_another_width(random: Random) -> Corpus:
    splits = clean()
    for place in (100, 200, 300):
        splits["train"].insert(place, ("a", "b", "c", "neg"))
    return Corpus(splits)


@fault("bad_lines")
def bytes_that_are_no_utf8(random: Random) -> Corpus:
    splits = clean()
    lines = ["\t".join(row) for row in splits["train"]]
    data = "\n".join(lines).encode().replace(b"\tneg\n", b" caf\xe9\tneg\n", 5)
    return Corpus(splits, files={"train": data})


@fault("swallowed_rows")
def a_quote_that_was_never_closed(random: Random) -> Corpus:
    splits = clean()
    lines = ["\t".join(row) for row in splits["train"]]
    lines[50] = '"' + lines[50]
    lines[58] = lines[58].replace("\t", '"\t')
    return Corpus(splits, {"quotechar": '"'}, {"train": ("\n".join(lines) + "\n").encode()})


# ---- labels


@fault("one_label")
def all_labels_are_the_same(random: Random) -> Corpus:
    return Corpus({split: [(text, "pos") for text, _ in rows] for split, rows in clean().items()})


@fault("no_labels")
def training_without_labels(random: Random) -> Corpus:
    splits = clean()
    splits["train"] = [(text,) for text, _ in splits["train"]]
    return Corpus(splits)


@fault("many_labels")
def the_label_is_the_number_of_the_row(random: Random) -> Corpus:
    splits = clean()
    return Corpus(
        {split: [(text, f"r{index}") for index, (text, _) in enumerate(rows)] for split, rows in splits.items()}
    )


@fault("label_spelling")
def labels_that_differ_in_case(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(9), str.upper, column=1)
    return Corpus(splits)


@fault("label_spelling")
def labels_with_a_sign_that_cannot_be_seen(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(9), lambda label: label + "\u200b", column=1)
    return Corpus(splits)


@fault("no_labels")
def labels_that_programs_write_for_nothing(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(12), lambda label: "NaN", column=1)
    return Corpus(splits)


@fault("imbalance")
def one_label_of_nearly_all_rows(random: Random) -> Corpus:
    splits = clean()
    return Corpus({
        split: [row for index, row in enumerate(rows) if row[1] == "pos" or index % 24 == 0]
        for split, rows in splits.items()
    })  # fmt: skip


@fault("imbalance")
def a_label_of_two_rows(random: Random) -> Corpus:
    splits = clean(("a", "b", "c"))
    kept = [index for index, row in enumerate(splits["train"]) if row[1] != "c" or index < 6]
    splits["train"] = [splits["train"][index] for index in kept]
    for split in ("dev", "test"):
        splits[split] = [row for row in splits[split] if row[1] != "c"]
    return Corpus(splits)


@fault("label_shift")
def labels_are_rarer_in_the_test(random: Random) -> Corpus:
    splits = clean()
    splits["test"] = [row for index, row in enumerate(splits["test"]) if row[1] == "pos" or index % 4 == 0]
    return Corpus(splits)


@fault("unseen_label")
def a_label_that_training_does_not_have(random: Random) -> Corpus:
    splits = clean(("a", "b", "c"))
    splits["train"] = [row for row in splits["train"] if row[1] != "c"]
    return Corpus(splits)


@fault("label_noise")
def five_percent_of_flipped_labels(random: Random) -> Corpus:
    splits = clean()
    flip = {"pos": "neg", "neg": "pos"}
    changed(splits["train"], random.sample(range(600), 30), flip.__getitem__, column=1)
    return Corpus(splits)


@fault("weak_slice")
def one_split_of_another_source_is_mostly_wrong(random: Random) -> Corpus:
    splits = clean()
    flip = {"pos": "neg", "neg": "pos"}
    changed(splits["test"], random.sample(range(160), 70), flip.__getitem__, column=1)
    return Corpus(splits)


@fault("odd_numbers")
def a_number_that_stands_for_nothing(random: Random) -> Corpus:
    splits = clean_numbers()
    changed(splits["train"], rows_of(8), lambda number: "-999", column=1)
    return Corpus(splits, {"target_type": "number"})


@fault("tag_order")
def tags_that_never_began(random: Random) -> Corpus:
    splits = clean_tags()
    changed(splits["train"], rows_of(9), lambda tags: tags.replace("B-PER", "O"), column=1)
    return Corpus(splits, {"loader": "tagged", "processor": "bert_token", "vocab_subset": "*"})


@fault("odd_numbers")
def a_mark_of_a_missing_number_in_a_third_of_all_rows(random: Random) -> Corpus:
    splits = clean_numbers()
    splits["train"] = [(text, "-999" if row % 3 == 0 else number) for row, (text, number) in enumerate(splits["train"])]
    return Corpus(splits, {"target_type": "number"})


@fault("tag_form")
def comments_among_the_words(random: Random) -> Corpus:
    splits = clean_tags()
    splits["train"] = [(f"# {words}", f"domain=en {tags}") for words, tags in splits["train"]]
    return Corpus(splits, {"loader": "tagged", "processor": "bert_token", "vocab_subset": "*"})


@fault("leakage")
def queries_with_candidates_in_two_splits(random: Random) -> Corpus:
    splits = {
        split: [(f"{split}{index}", *row) for index, row in enumerate(rows)] for split, rows in clean_pairs().items()
    }
    candidates = [row[2] for row in splits["dev"]]
    splits["dev"] = [(*row[:2], text, "0") for row, text in zip(splits["train"], candidates, strict=False)]
    return Corpus(splits, {"loader": "rank", "processor": "pair", "target_type": "number"})


@fault("query_names")
def one_name_for_several_queries(random: Random) -> Corpus:
    splits = {
        split: [(f"q{index // 8}", *row) for index, row in enumerate(rows)] for split, rows in clean_pairs().items()
    }
    return Corpus(splits, {"loader": "rank", "processor": "pair", "target_type": "number"})


# ---- duplicates


@fault("duplicates")
def rows_that_stand_twice_in_training(random: Random) -> Corpus:
    splits = clean()
    splits["train"] += splits["train"][:30]
    return Corpus(splits)


@fault("leakage")
def test_rows_that_stand_in_training(random: Random) -> Corpus:
    splits = clean()
    splits["train"] += splits["test"][:12]
    return Corpus(splits)


@fault("contradictions")
def one_text_under_two_labels(random: Random) -> Corpus:
    splits = clean()
    splits["train"] += [(text, "pos" if label == "neg" else "neg") for text, label in splits["train"][:6]]
    return Corpus(splits)


@fault("near_duplicates")
def rows_that_differ_in_a_word(random: Random) -> Corpus:
    splits = clean()
    splits["train"] += [(in_words(text, "tavoli"), label) for text, label in splits["train"][:20]]
    return Corpus(splits)


@fault("near_leakage")
def test_rows_that_differ_in_case_and_signs(random: Random) -> Corpus:
    splits = clean()
    splits["train"] += [(text.capitalize().replace(" ", ", ", 2) + ".", label) for text, label in splits["test"][:12]]
    return Corpus(splits)


@fault("near_contradictions")
def nearly_the_same_text_under_two_labels(random: Random) -> Corpus:
    splits = clean()
    flip = {"pos": "neg", "neg": "pos"}
    splits["train"] += [(in_words(text, "tavoli"), flip[label]) for text, label in splits["train"][:9]]
    return Corpus(splits)


# ---- content of texts


@fault("no_text")
def empty_texts(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: "  ")
    return Corpus(splits)


@fault("placeholder")
def texts_that_say_that_there_is_none(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: "null")
    return Corpus(splits)


@fault("no_letters")
def texts_of_digits_alone(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: f"{random.randrange(10**9)} !!!")
    return Corpus(splits)


@fault("cut_tokens")
def texts_that_are_far_too_long(random: Random) -> Corpus:
    return Corpus(clean(), {"max_len": 12})


@fault("giant_text")
def a_whole_book_in_one_row(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], [77], lambda text: " ".join(row[0] for row in clean(seed=9)["train"][:80]))
    return Corpus(splits)


@fault("length_shift")
def tests_of_far_longer_texts(random: Random) -> Corpus:
    splits, other = clean(), clean(seed=8)
    splits["test"] = [
        (" ".join([text, *(row[0] for row in other["train"][4 * index : 4 * index + 3])]), label)
        for index, (text, label) in enumerate(splits["test"])
    ]
    return Corpus(splits, {"max_len": 512})


@fault("unknown_tokens")
def a_vocabulary_of_other_texts(random: Random) -> Corpus:
    splits = clean()
    half = sorted({word for row in splits["train"] for word in row[0].split()})[::3]
    corpus = Corpus(splits, {"vocab_file": "vocab.txt"})
    corpus.files["vocab.txt"] = "\n".join(["[PAD]", "[UNK]", *half, ""]).encode()
    return corpus


@fault("long_tokens")
def chinese_texts_cut_at_blanks(random: Random) -> Corpus:
    splits = clean()
    signs = [chr(0x4E00 + number) for number in range(0, 3000, 7)]
    chinese = {word: random.choice(signs) for row in splits["train"] for word in row[0].split()}
    return Corpus({
        split: [("".join(chinese.get(word, "的") for word in text.split()), label) for text, label in rows]
        for split, rows in splits.items()
    })  # fmt: skip


@fault("encoding")
def utf8_read_as_cp1252(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "café".encode().decode("cp1252")))
    return Corpus(splits)


@fault("encoding")
def chinese_read_twice(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "锟斤拷锟斤拷"))
    return Corpus(splits)


@fault("lost_characters")
def bytes_that_were_replaced(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "caf\ufffd"))
    return Corpus(splits)


@fault("control_characters")
def control_characters(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "a\x07b"))
    return Corpus(splits)


@fault("invisible_characters")
def signs_that_cannot_be_seen(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "ta\u200bvoli"))
    return Corpus(splits)


@fault("unicode_forms")
def accents_behind_their_letters(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "cafe\u0301"))
    return Corpus(splits)


@fault("markup")
def tags_and_entities_of_html(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "<br /> tavoli &amp; vino"))
    return Corpus(splits)


@fault("escapes")
def escapes_as_text(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: in_words(text, "caf\\u00e9"))
    return Corpus(splits)


@fault("mixed_scripts")
def cyrillic_letters_in_latin_words(random: Random) -> Corpus:
    splits = clean()
    changed(splits["train"], rows_of(10), lambda text: text.replace("a", "\u0430", 2))
    return Corpus(splits)


@fault("other_script")
def some_rows_of_another_language(random: Random) -> Corpus:
    splits = clean()
    changed(
        splits["train"],
        rows_of(10),
        lambda text: "Это совсем другой язык и другие буквы, чем во всех остальных строках",
    )
    changed(splits["train"], rows_of(10), lambda text: text + str(random.randrange(10**6)))
    return Corpus(splits)


# ---- columns with another meaning than expected


@fault("label_in_text")
def the_label_stands_in_the_text(random: Random) -> Corpus:
    return Corpus(
        {split: [(in_words(text, f"class_{label}"), label) for text, label in rows] for split, rows in clean().items()}
    )


@fault("shortcut")
def one_label_has_the_short_texts(random: Random) -> Corpus:
    splits = clean()
    return Corpus({
        split: [(" ".join(text.split()[:10]) if label == "neg" else text, label) for text, label in rows]
        for split, rows in splits.items()
    })  # fmt: skip


@fault("swapped_columns")
def some_rows_have_their_columns_swapped(random: Random) -> Corpus:
    splits = clean()
    for number in rows_of(8):
        splits["train"][number] = splits["train"][number][::-1]
    return Corpus(splits)


@fault("id_text")
def the_text_is_the_number_of_the_row(random: Random) -> Corpus:
    splits = clean()
    return Corpus({
        split: [(f"{split[0]}{index:05d}", label) for index, (_, label) in enumerate(rows)]
        for split, rows in splits.items()
    }, {"vocab_subset": "*"})  # fmt: skip


PAIRS = {"loader": "pair", "processor": "pair"}


@fault("constant_text")
def one_text_of_all_pairs_is_the_same(random: Random) -> Corpus:
    splits = clean_pairs()
    return Corpus({split: [(row[0], "tavoli", row[2]) for row in rows] for split, rows in splits.items()}, PAIRS)


@fault("equal_texts")
def pairs_of_a_text_with_itself(random: Random) -> Corpus:
    splits = clean_pairs()
    for number in rows_of(12):
        text, _, label = splits["train"][number]
        splits["train"][number] = (text, text, label)
    return Corpus(splits, PAIRS)


@fault("reversed_pairs")
def test_pairs_the_other_way_round(random: Random) -> Corpus:
    splits = clean_pairs()
    splits["test"] += [(second, first, label) for first, second, label in splits["train"][:12]]
    return Corpus(splits, PAIRS)


CLEAN: dict[str, Callable[[], Corpus]] = {
    "texts": lambda: Corpus(clean()),
    "three labels": lambda: Corpus(clean(("a", "b", "c"), seed=5)),
    "pairs": lambda: Corpus(clean_pairs(), PAIRS),
    "tags": lambda: Corpus(clean_tags(), {"loader": "tagged", "processor": "bert_token"}),
    "numbers": lambda: Corpus(clean_numbers(), {"target_type": "number"}),
}


def main() -> None:
    """Write all of them into a folder."""
    root = Path(sys.argv[1])
    corpora = {each.name: each.plant(Random(7)) for each in FAULTS} | {
        f"clean_{name}": make() for name, make in CLEAN.items()
    }
    for name, corpus in corpora.items():
        folder = root / name.replace(" ", "_")
        values = corpus.write(folder)
        (folder / "prepro.hjson").write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
