"""What the documents say is true: their configs parse and name real keys, their commands exist, their code runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tests.tiers import nightly
from xdpx.config import catalogue
from xdpx.config.faults import Fault
from xdpx.config.hjson_reader import read_hjson
from xdpx.config.reading import read_runs
from xdpx.config.registry import ROOMS
from xdpx.config.source_text import SourceText

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("README*.md"), *(REPOSITORY / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITHOUT_EFFECT = re.compile(r"without effect|not supported|no effect|spelt correctly|misspelling is kept|from meta")
"""What the meaning of a key says that no counterpart in the Trainer is needed for."""
SPOKEN_OF = {"EarlyStoppingCallback", "callbacks", "compute_loss", "compute_loss_func", "data_collator", "eval_dataset",
             "should_save", "should_training_stop", "train", "train_dataset"}  # fmt: skip
"""What stands among the arguments in the table of the two vocabularies, and is none."""
ASIDE = {"auto", "early_stopping_patience", "jsonl", "on_evaluate", "on_log"}
"""What its last column names beside arguments and keys."""
COMMANDS = {
    "x-run",
    "x-init",
    "x-check",
    "x-prepro",
    "x-train",
    "x-tune",
    "x-eval",
    "x-pred",
    "x-viz",
    "x-io",
    "x-script",
    "x-exp",
} | {"x-submit", "x-board", "x-serve"}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if found == language:
                yield f"{page.name}-{number}", text


def params(language: str) -> list[object]:
    return [pytest.param(text, id=name) for name, text in blocks(language)]


def known_keys() -> set[str]:
    return {item.key for kind in catalogue.kinds() for entry in catalogue.entries(kind) for item in entry.parameters}


@pytest.mark.parametrize("text", params("hjson"))
def test_every_documented_config_is_read_without_a_fault(text: str) -> None:
    faults: list[Fault] = []
    read_hjson(SourceText(text, "block.hjson"), faults)
    assert [str(fault) for fault in faults] == []


def test_no_documented_config_is_passed_over() -> None:
    assert sum(page.read_text(encoding="utf-8").count("```hjson") for page in PAGES) == len(params("hjson")) >= 25


@pytest.mark.parametrize("text", params("hjson"))
def test_every_key_in_a_documented_config_exists(text: str, tmp_path: Path) -> None:
    alone = re.sub(r"__parent__: *\[.*?^  \]|__parent__: [^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "block.hjson").write_text(alone, encoding="utf-8")
    run = read_runs(str(tmp_path / "block.hjson"))[0]
    assert not set(run.values) - known_keys()


@pytest.mark.parametrize("text", params("bash"))
def test_every_documented_command_exists(text: str) -> None:
    words = [line.split()[0] for line in text.splitlines() if line.startswith(("x-", "make "))]
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert all(word in COMMANDS | {"make"} for word in words)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_readme_prints_the_tree_as_it_is(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    tree = re.search(r"^xdpx/\n(.*?)^examples/", text, re.MULTILINE | re.DOTALL)
    assert tree is not None
    printed = {line.split()[0].strip("/") for line in tree.group(1).splitlines()}
    rooms = {path.name for path in (REPOSITORY / "xdpx").iterdir() if path.suffix != ".typed" and path.name[0] != "_"}
    assert printed == rooms


def test_the_chinese_readme_has_the_parts_blocks_and_links_of_the_english_one() -> None:
    english, chinese = ((REPOSITORY / page).read_text(encoding="utf-8") for page in ("README.md", "README.zh.md"))
    for part in (r"^(##) ", r"^\| (`[^`]+`)?.*\|$", r"^!\[.*\]\((.+)\)$"):
        rows, translated = (re.findall(part, text, re.MULTILINE) for text in (english, chinese))
        assert len(rows) == len(translated) > 0
    code, translated = ([(kind, text) for kind, text in BLOCK.findall(page)] for page in (english, chinese))
    assert [(kind, commands(text)) for kind, text in code] == [(kind, commands(text)) for kind, text in translated]
    links = [set(re.findall(r"\]\(([^)]+\.md)\b", text)) for text in (english, chinese)]
    assert links[0] - {"README.zh.md"} == links[1] - {"README.md"}


def commands(text: str) -> list[str]:
    """Return the lines of a block without comments."""
    return [line for row in text.splitlines() if (line := row.partition("#")[0].strip())]


EXTENSION_GUIDE = (REPOSITORY / "docs/extend.md").read_text(encoding="utf-8")


def code_of(*headings: str) -> list[str]:
    """Return the Python blocks that stand below these headings of the extension guide."""
    parts = [part for part in re.split("^## ", EXTENSION_GUIDE, flags=re.MULTILINE) if part.startswith(headings)]
    assert len(parts) == len(headings)
    return [text for part in parts for language, text in BLOCK.findall(part) if language == "python"]


def ran(words: list[str], folder: Path, **environment: str) -> str:
    """Run Python in a folder and return what it says; it must end well."""
    settings = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **environment}
    line = [sys.executable, *words]
    done = subprocess.run(line, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def a_desk_for_the_extensions(folder: Path) -> None:
    """Write raw data in the guide's own format, and configs that select everything which the guide adds."""
    (folder / "raw").mkdir()
    rows = "\n\n".join(f"title {i % 2}\nsome text {i % 2} of row {i}\n{'ab'[i % 2]}" for i in range(40))
    for split in ("train", "dev"):
        (folder / f"raw/{split}.txt").write_text(rows, encoding="utf-8")
    prepro = {"data_source": "raw", "data_dir": "data", "parser": "stanzas", "loader": "titled", "title_weight": 3}
    prepro |= {"tokenizer": "letters", "processor": "clipped", "max_len": 16, "keep": "tail"}
    train = {"__parent__": "data/meta", "data_dir": "data", "save_dir": "run", "model": "bag_of_words"}
    train |= {"loss": "my_focal", "task": "twice", "focal_gamma": 1.0, "embedding_dim": 8, "batch_size": 8}
    train |= {"learning_rate": 0.1, "max_epoch": 2, "eval_interval": -1, "major_metric": "sureness"}
    train |= {"optimizer": "nesterov", "momentum": 0.8, "lr_scheduler": "half_cosine", "sampler": "even_first"}
    train |= {"dataset": "enough", "min_samples": 10}
    train |= {"callbacks": [{"keep_good": {"at_least": 0.5}}, "my_tracker"], "log_interval": 5}
    for name, values in (("prepro", prepro), ("train", train)):
        (folder / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


EXTENSIONS = (
    "From a file to batches",
    "From batches to weights",
    "Callbacks and trackers",
    "Tuners and search schedules",
)
CHAIN = ["-m", "xdpx.run", "x-prepro", "prepro.json", "x-train", "train.json"]


def test_the_code_of_the_extension_guide_trains(tmp_path: Path) -> None:
    modules = tmp_path / "user/modules"
    modules.mkdir(parents=True)
    for number, text in enumerate(code_of(*EXTENSIONS)):
        (modules / f"own_{number}.py").write_text(text, encoding="utf-8")
    a_desk_for_the_extensions(tmp_path)
    told = ran(CHAIN, tmp_path)
    assert "best sureness" in told
    assert (tmp_path / "run/my_tracker.jsonl").exists()


def test_the_extension_guide_shows_every_kind_that_a_config_selects() -> None:
    rooms = set(
        re.findall(r"^from (xdpx[\w.]*) import (?:\w+, )*register", "\n".join(code_of(*EXTENSIONS)), re.MULTILINE)
    )
    assert rooms == set(ROOMS.values()) - {"xdpx.commands"}


@pytest.mark.slow
@nightly("test_the_code_of_the_extension_guide_trains")
def test_an_installed_package_offers_what_the_extension_guide_adds(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "installed"
    (source / "our_models").mkdir(parents=True)
    (source / "our_models/__init__.py").write_text("")
    kinds = {f"{room} register": kind for kind, room in ROOMS.items() if kind != "sampler"}
    kinds["xdpx.datasets register_sampler"] = "sampler"
    offered: dict[str, list[str]] = {}
    for number, text in enumerate(code_of(*EXTENSIONS)):
        (source / f"our_models/own_{number}.py").write_text(text, encoding="utf-8")
        [found] = re.findall(r"^from (xdpx[\w.]*) import (?:\w+, )*(register\w*)", text, re.MULTILINE)
        [(name, own)] = re.findall(r'^@register\w*\("(\w+)"\)\nclass (\w+)', text, re.MULTILINE)
        offered.setdefault(f"xdpx.{kinds[' '.join(found)]}", []).append(f'{name} = "our_models.own_{number}:{own}"')
    lines = ["[project]", 'name = "our-models"', 'version = "1.0"']
    for group, entries in offered.items():
        lines += [f'[project.entry-points."{group}"]', *entries]
    (source / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    ran([*install, str(source)], tmp_path)
    a_desk_for_the_extensions(tmp_path)
    ran(CHAIN, tmp_path, PYTHONPATH=os.pathsep.join([str(REPOSITORY), str(target)]))
    assert (tmp_path / "run/my_tracker.jsonl").exists()


def test_the_script_of_the_extension_guide_runs(tmp_path: Path) -> None:
    [script] = code_of("In a script for the Trainer")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    ran(["script.py"], tmp_path)


def test_the_code_of_the_trainer_s_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    code = [text for name, text in blocks("python") if name.startswith("trainer.md")]
    assert len(code) == 6
    (tmp_path / "page.py").write_text("\n".join(code), encoding="utf-8")
    ran(["page.py"], tmp_path)


def test_the_code_of_the_experiments_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    code = [text for name, text in blocks("python") if name.startswith("experiments.md")]
    assert len(code) == 7
    (tmp_path / "page.py").write_text("\n".join(code), encoding="utf-8")
    run = "import runpy, xdpx; runpy.run_path('page.py', run_name='__main__')"  # forked off what has imported JAX
    ran(["-c", run], tmp_path, JAX_NUM_CPU_DEVICES="8")


def test_experiments_and_flags_that_the_pages_name_exist() -> None:
    from xdpx.commands.experiment_line import ALWAYS_SO, OWN_FLAGS, RUN_FLAGS, SWITCHES
    from xdpx.experiments.registry import resolve

    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"x-exp (\w+Replicas\w*|\w+v4_\d+\w*|LmCloud\w+)", text))
    assert len(named) >= 3
    assert all(resolve(name).__name__ == name for name in named)
    lines = re.findall(r"(?:x-exp|xdpx\.main) ([^`\n]*)", text)
    own = [re.split("#|;| --on ", line)[0] for line in lines]  # what follows --on is read by x-submit
    flags = {flag for line in own for flag in re.findall(r"--(\w+)", line)}
    assert not flags - {*OWN_FLAGS, *RUN_FLAGS, *SWITCHES, *ALWAYS_SO}


@pytest.mark.parametrize(
    ("page", "words"), [("README.md", r"(\d+) experiments ship"), ("README.zh.md", r"(\d+) 个实验")]
)
def test_as_many_experiments_ship_as_the_readme_says(page: str, words: str) -> None:
    from xdpx.experiments.shipped import SHIPPED

    told = re.search(words, (REPOSITORY / page).read_text(encoding="utf-8"))
    assert told is not None
    assert int(told[1]) == sum(map(len, SHIPPED.values()))


def test_the_table_of_two_vocabularies_names_what_exists() -> None:
    ours, theirs, minds = vocabularies()
    assert len(ours) > 50
    assert not {name.split(":")[0] for row in ours for name in row} - known_keys()
    counterparts, mentioned = (
        {re.split(r"[=(]", name)[0] for row in column for name in row if re.match(r"[A-Za-z]\w+$|\w+[=(]", name)}
        for column in (theirs, minds)
    )
    assert counterparts - names_of_arguments() == SPOKEN_OF
    assert mentioned - names_of_arguments() - known_keys() == ASIDE
    assert not (SPOKEN_OF | ASIDE) - names_of_the_trainer() - {"auto", "jsonl"}
    values = {name for row in theirs for name in row if re.fullmatch(r'\w+="\w+"', name)}
    assert not [value for value in values if not accepted(*value.replace('"', "").split("="))]


def vocabularies() -> list[list[list[str]]]:
    """Return the words in code type of each column of the table of the two vocabularies, row by row."""
    page = (REPOSITORY / "docs/trainer.md").read_text(encoding="utf-8")
    table = page.split("| x-train | TrainingArguments | note |", 1)[1].split("\n\n", 1)[0]
    cells = [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return [list(column) for column in zip(*cells, strict=True)]


def names_of_arguments() -> set[str]:
    """Return the names of the arguments, those of earlier years too."""
    from xdpx import TrainingArguments
    from xdpx.trainer.arguments.legacy import OLD_NAMES

    return {item.name for item in fields(TrainingArguments)} | set(OLD_NAMES)


def names_of_the_trainer() -> set[str]:
    """Return what a Trainer, a callback and its control have, and what is logged under another name."""
    import inspect

    import xdpx
    from xdpx.reports.run_tables import COLUMNS

    classes = (xdpx.Trainer, xdpx.TrainerCallback, xdpx.TrainerControl)
    made = (xdpx.Trainer, xdpx.EarlyStoppingCallback)
    known = {*COLUMNS, *xdpx.__all__} | {name for each in classes for name in dir(each)}
    return known | {name for each in made for name in inspect.signature(each).parameters}


def accepted(name: str, value: str) -> bool:
    """Tell whether an argument takes a value, alone or with what it needs."""
    from xdpx import TrainingArguments
    from xdpx.reports.trackers.choosing import trackers_for

    arguments = TrainingArguments("out", **{name: value}, metric_for_best_model="loss")
    return bool(trackers_for(value)) if name == "report_to" else getattr(arguments, name) == value


def test_the_callbacks_that_the_page_names_are_those_that_are_shipped() -> None:
    from xdpx.trainer.hooks import callbacks

    page = (REPOSITORY / "docs/trainer.md").read_text(encoding="utf-8")
    told = re.search(r"with what is shipped \(([^)]+)\)", page)
    assert told is not None
    assert re.findall(r"`(\w+)`", told.group(1)) == sorted(callbacks.shipped)


def test_every_key_of_x_train_has_its_place_among_the_two_vocabularies() -> None:
    named = {name.split(":")[0] for row in vocabularies()[0] for name in row}
    parameters = catalogue.entry("command", "x-train").parameters
    effective = {item.key for item in parameters if not WITHOUT_EFFECT.search(item.doc)}
    low_level = {"device_id", "distributed_rank", "fp16_init_scale", "fp16_scale_tolerance", "min_loss_scale",
                 "threshold_loss_scale", "fp16_backend", "optimizer", "lr_scheduler"}  # fmt: skip
    assert effective - named <= low_level


def test_arguments_that_callbacks_read_in_x_train_are_those_of_the_table() -> None:
    from xdpx import TrainingArguments
    from xdpx.runs.callback_arguments import RunArguments
    from xdpx.runs.parameters import TrainParameters

    keys = {"data_dir": "data", "save_dir": "run", "processor": "single", "batch_size": 4, "eval_interval": 5}
    values = {**keys, "major_metric": "acc", "learning_rate": 0.1, "max_update": 9, "hidden_size": 3}
    arguments = RunArguments(TrainParameters(**{key: values[key] for key in values if key != "hidden_size"}), values, 9)
    assert (arguments.output_dir, arguments.max_steps, arguments.eval_steps) == ("run", 9, 5)
    told = {name for row in vocabularies()[1] for name in (re.split(r"[=(]", each)[0] for each in row)}
    own = {"logging_strategy", "load_best_model_at_end"}
    changed = {name for name in vars(arguments) if name in {item.name for item in fields(type(arguments))}}
    plain = vars(TrainingArguments("run"))
    assert {name for name in changed if vars(arguments)[name] != plain[name]} - own <= told | {"eval_strategy"}


def test_the_page_shows_every_example_of_the_trainer() -> None:
    text = (REPOSITORY / "docs/trainer.md").read_text(encoding="utf-8")
    for script in re.findall(r"examples/trainer/\w+\.py", text):
        assert (REPOSITORY / script).exists()
