"""Table of wrong inputs: the fault, files that contain it, the command, and what the single message must say.

`test_refusals.py` puts the files of a row into a copy of a small working directory (raw/, data/, run/ and a valid
config for each command), runs the command line, and checks the answer.
"""

# ruff: noqa: E501 - a table reads by the row
from __future__ import annotations

import gzip
from typing import NamedTuple

USER, WORLD = 2, 1
"""Exit codes: the request cannot be carried out as written; the disk, the network or another process prevents it."""

CUT, FLIP, GONE = "<cut in half>", "<one bit flipped>", "<removed>"
"""Damages of a file of the working directory, used instead of its content."""

PREPRO = "{\n  data_source: raw\n  data_dir: data\n  processor: single\n  loader: single\n  tokenizer: space\n  max_len: 8\n}\n"
TRAIN = """{
  __parent__: data/meta.hjson
  data_dir: data
  save_dir: run
  model: cls_cnn
  embedding_dim: 4
  hidden_size: 8
  loss: cross_entropy
  learning_rate: 0.01
  batch_size: 8
  max_update: 4
  log_interval: 1
  eval_interval: 2
  major_metric: acc
  save_full_checkpoint: true
}
"""
EVAL = "{\n  save_dir: run\n  valid_subset: dev\n}\n"
PREDICT = "{\n  save_dir: run\n  predict_file_map: {\n    raw/dev.txt: out.tsv\n  }\n}\n"
VISUALISE = "{\n  save_dir: run\n}\n"

DESK = {
    "prepro.hjson": PREPRO,
    "train.hjson": TRAIN,
    "eval.hjson": EVAL,
    "pred.hjson": PREDICT,
    "viz.hjson": VISUALISE,
    "raw/train.txt": "good fine film\tpos\nbad poor film\tneg\n" * 24,
    "raw/dev.txt": "good film\tpos\npoor film\tneg\n" * 8,
}
"""Files that every row starts with, in addition to data/ from x-prepro and run/ from x-train."""

Files = dict[str, "str | bytes"]


class Row(NamedTuple):
    """One wrong input. The message must match all of `says` (regular expressions)."""

    what: str
    command: str
    says: list[str]
    files: Files = {}
    code: int = USER
    faults: int = 1


def config(parent: str, *lines: str) -> Files:
    """Return a config `c.hjson` that adds lines to a valid one."""
    return {"c.hjson": "{\n  __parent__: " + parent + "\n" + "".join(f"  {line}\n" for line in lines) + "}\n"}


def train(*lines: str) -> Files:
    """Return an x-train config in which only these lines are wrong."""
    return config("train.hjson", "save_dir: new", *lines)


def prepro(*lines: str, **raw: str | bytes) -> Files:
    """Return an x-prepro config, and raw files in their own folder `bad/`; dots in their names are written as `_`."""
    folder = ("data_source: bad",) if raw else ()
    files: Files = {f"bad/{name.replace('_', '.')}": content for name, content in raw.items()}
    return {**config("prepro.hjson", "data_dir: new", *folder, *lines), **files}


def evaluate(*lines: str) -> Files:
    """Return a config of x-eval."""
    return config("eval.hjson", *lines)


def predict(*lines: str) -> Files:
    """Return a config of x-pred."""
    return config("pred.hjson", *lines)


ONE = "good film\tpos\n"

WORDS = [
    Row("a misspelt command", "x-trian train", ["x-trian: no such command", "Did you mean 'x-train'"]),
    Row("no command", "", ["command: is missing", "--help"]),
    Row("no config", "x-train", ["x-train: has no config", r"x-train <config>"]),
    Row("a misspelt flag", "x-train train --dyr", ["--dyr: no such flag", "Did you mean '--dry'"]),
    Row("a flag with no number", "x-train train --jobs two", ["--jobs: is 'two'", "whole number"]),
    Row("two configs", "x-train train eval.hjson", ["eval.hjson: is not expected here", "key=value"]),
    Row("a config that is not there", "x-train trian", ["'trian'", "nearest file", "'train.hjson'"]),
    Row("a config that is a folder", "x-train raw", ["raw", "director|folder"]),
    Row("help on an unknown topic", "x-train --help batch_sise", ["batch_sise", "batch_size"]),
    Row("a verb that x-io has not", "x-io copytre a b", ["copytre", "copytree"]),
    Row("too few words for x-io", "x-io copy raw", ["copy"]),
    Row("a file that x-io cannot find", "x-io size raw/tset.txt", ["raw/tset.txt"], code=WORLD),
    Row("a script that is not there", "x-script dif_params run run", ["dif_params", "diff_params"]),
    Row("a script with a wrong argument", "x-script diff_params run nowhere", ["nowhere"]),
    Row("an override with a misspelt key", "x-train train save_dir=new batch_sise=4", ["batch_sise", "batch_size"]),
    Row("an override that is malformed", "x-train train save_dir=new tolerance=[1", ["tolerance", "command line"]),
    Row(
        "an override of the wrong type",
        "x-train train save_dir=new batch_size=many",
        ["batch_size", "'many'", "integer"],
    ),
    Row(
        "a later command of the line",
        "x-eval eval x-pred pred predict_fil_map=1",
        ["predict_fil_map", "predict_file_map"],
    ),
]

KEYS = [
    Row("a misspelt key of x-prepro", "x-prepro c", ["c.hjson:4", "data_sorce", "Did you mean 'data_source'"], prepro("data_sorce: raw")),
    Row("a misspelt key of x-train", "x-train c", ["c.hjson:4", "learning_rte", "Did you mean 'learning_rate'"], train("learning_rte: 1")),
    Row("a misspelt key of x-eval", "x-eval c", ["valid_subst", "Did you mean 'valid_subset'"], evaluate("valid_subst: dev")),
    Row("a misspelt key of x-pred", "x-pred c", ["max_predcit", "Did you mean 'max_predict'"], predict("max_predcit: 3")),
    Row("a misspelt key of x-viz", "x-viz c", ["waltime", "Did you mean 'walltime'"], config("viz.hjson", "waltime: true")),
    Row("a misspelt key of the model", "x-train c", ["hiden_size", "Did you mean 'hidden_size'"], train("hiden_size: 8")),
    Row("a misspelt key of the loss", "x-train c", ["f1_avrage", "Did you mean 'f1_average'"], train("f1_avrage: macro")),
    Row("a misspelt key of the optimizer", "x-train c", ["weight_decai", "Did you mean 'weight_decay'"], train("weight_decai: 0.1")),
    Row("a misspelt key of the schedule", "x-train c", ["warmup_step", "Did you mean 'warmup_steps'"], train("lr_scheduler: warmup_constant", "warmup_step: 5")),
    Row("a misspelt key of the tokenizer", "x-prepro c", ["rm_pnc", "Did you mean 'rm_punc'"], prepro("rm_pnc: true")),
    Row("a misspelt key of the parser", "x-prepro c", ["delimeter", "Did you mean 'delimiter'"], prepro("delimeter: ','")),
    Row("a misspelt special key", "x-train c", ["__parents__", "Did you mean '__parent__'"], train("__parents__: x")),
    Row("a key of another module", "x-train c", ["warmup_steps", "lr_scheduler", "constant_with_warmup"], train("warmup_steps: 10")),
    Row("a key that is switched off", "x-train c", ["opt_level", "fp16"], train("opt_level: O2")),
    Row("a required key is missing", "x-train c", ["eval_interval: is missing", "integer"], {"c.hjson": TRAIN.replace("  eval_interval: 2\n", "").replace("save_dir: run", "save_dir: new")}),
    Row("a required key of the processor is missing", "x-prepro c", ["max_len: is missing", "integer"], {"c.hjson": PREPRO.replace("  max_len: 8\n", "").replace("data_dir: data", "data_dir: new")}),
]  # fmt: skip

NAMES = [
    Row("a misspelt parser", "x-prepro c", ["no 'cvs'", "Did you mean 'csv'"], prepro("parser: cvs")),
    Row("a misspelt loader", "x-prepro c", ["no 'singel'", "Did you mean 'single'"], prepro("loader: singel")),
    Row("a misspelt tokenizer", "x-prepro c", ["no 'char_hz'", "Did you mean 'char_zh'"], prepro("tokenizer: char_hz")),
    Row("a misspelt processor", "x-prepro c", ["no 'pairs'", "Did you mean 'pair'"], prepro("processor: pairs")),
    Row("a misspelt task", "x-train c", ["no 'defualt'", "Did you mean 'default'"], train("task: defualt")),
    Row("a misspelt model", "x-train c", ["no 'cls_cn'", "Did you mean 'cls_cnn'"], train("model: cls_cn")),
    Row("a misspelt loss", "x-train c", ["no 'cross_entrpy'", "Did you mean 'cross_entropy'"], train("loss: cross_entrpy")),
    Row("a misspelt optimizer", "x-train c", ["no 'adm'", "Did you mean 'adam'"], train("optimizer: adm")),
    Row("an optimizer of a package that is missing", "x-train c", ["optimizer", "is 'adamw_anyprecision', which needs the package torchdistx", "adamw_torch"], train("optimizer: adamw_anyprecision")),
    Row("an optimizer that takes the backward pass", "x-train c", ["optimizer", "steps each layer within the backward pass", "adafactor"], train("optimizer: galore_adamw_layerwise")),
    Row("settings of an optimizer that are not pairs", "x-train c", ["optim_args", "'momentum' is not a pair", "momentum=0.9"], train("optimizer: sgd", "optim_args: momentum")),
    Row("a schedule that waits for scores that never come", "x-train c", ["eval_interval", "waits for scores", "a number of updates"], train("lr_scheduler: reduce_lr_on_plateau", "eval_interval: -1")),
    Row("a misspelt schedule", "x-train c", ["no 'onecycle'", "Did you mean 'one_cycle'"], train("lr_scheduler: onecycle")),
    Row("a misspelt dataset", "x-train c", ["'defalt'", "Did you mean 'default'"], train("dataset: defalt")),
    Row("a misspelt sampler", "x-train c", ["'defaul'", "Did you mean 'default'"], train("sampler: defaul")),
    Row("a loader and a processor that do not fit", "x-prepro c", ["processor", "'pair' takes 2", "'single' gives 1"], prepro("processor: pair")),
]  # fmt: skip

TRAPS = [
    Row("hjson swallows a comma and the next key", "x-train c", ["c.hjson:4", "model", "comma|line of its own"], train("model: cls_cnn, batch_size: 4")),
    Row("a bracket without its partner", "x-train c", ["c.hjson", "save_dir", "that has no partner", "Quote"], {"c.hjson": "{ __parent__: train.hjson, save_dir: new) }"}),
    Row("True", "x-train c", ["c.hjson:4", "overwrite", "'True'", "write true"], train("overwrite: True")),
    Row("yes", "x-train c", ["overwrite", "'yes'", "write true"], train("overwrite: yes")),
    Row("010", "x-train c", ["batch_size", "010", "write 10"], train("batch_size: 010")),
    Row(".5 for a number", "x-train c", ["learning_rate", "'.5'", "write 0.5"], train("learning_rate: .5")),
    Row(".5 for an integer", "x-train c", ["batch_size", "'.5'", "integer"], train("batch_size: .5")),
    Row("1_000", "x-train c", ["batch_size", "1_000", "write 1000"], train("batch_size: 1_000")),
    Row("1e-4 as quoted text", "x-train c", ["learning_rate", "'1e-4'", "without quotes"], train("learning_rate: '1e-4'")),
    Row("1e400", "x-train c", ["c.hjson:4", "learning_rate", "1e400"], train("learning_rate: 1e400")),
    Row("None", "x-train c", ["tolerance", "'None'", "null"], train("tolerance: None")),
    Row("a duplicate key in hjson", "x-train c", ["batch_size", "written twice", "4 and on line 5"], train("batch_size: 2", "batch_size: 4")),
    Row("a duplicate key in a JSON file", "x-train c.json", ["batch_size", "written twice"], {"c.json": '{"__parent__": "train.hjson", "save_dir": "new",\n"batch_size": 2, "batch_size": 4}'}),
    Row("a duplicate key in YAML", "x-train c.yaml", ["batch_size", "twice"], {"c.yaml": "__parent__: train.hjson\nsave_dir: new\nbatch_size: 2\nbatch_size: 4\n"}),
    Row("no in YAML", "x-train c.yaml", ["c.yaml:3", "model"], {"c.yaml": "__parent__: train.hjson\nsave_dir: new\nmodel: no\n"}),
    Row("a time in YAML", "x-train c.yaml", ["c.yaml:3", "batch_size", "12:30:00"], {"c.yaml": "__parent__: train.hjson\nsave_dir: new\nbatch_size: 12:30:00\n"}),
    Row("a tab in YAML", "x-train c.yaml", ["c.yaml:3", "tab"], {"c.yaml": "__parent__: train.hjson\nsave_dir: new\n\tbatch_size: 4\n"}),
    Row("a Python tag in YAML", "x-train c.yaml", ["c.yaml:3", "tag|!!python"], {"c.yaml": "__parent__: train.hjson\nsave_dir: new\nbatch_size: !!python/object/apply:os.system ['touch hacked']\n"}),
    Row("an alias bomb in YAML", "x-train c.yaml", ["c.yaml", "alias|large|values"], {"c.yaml": "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))}),
    Row("nesting 10,000 deep in hjson", "x-train c", ["c.hjson", "nested deeper", "64"], train("tolerance: " + "[" * 10_000 + "]" * 10_000)),
    Row("nesting 10,000 deep in YAML", "x-train c.yaml", ["c.yaml", "nested deeper", "64"], {"c.yaml": "a: " + "[" * 10_000 + "]" * 10_000}),
    Row("a file over 1 MB", "x-train c", ["c.hjson", "1.* MB|1 MiB|bytes"], {"c.hjson": "{\n" + "// nothing\n" * 120_000 + "}"}),
    Row("an empty file", "x-train c", ["c.hjson", "empty"], {"c.hjson": ""}),
    Row("nothing but comments", "x-train c", ["c.hjson", "only comments"], {"c.hjson": "# later\n"}),
    Row("bad UTF-8", "x-train c", ["c.hjson:2", "UTF-8"], {"c.hjson": b"{\n  save_dir: new\xff\n}"}),
    Row("UTF-16", "x-train c", ["c.hjson", "UTF-8"], {"c.hjson": TRAIN.encode("utf-16")}),
    Row("a NUL byte", "x-train c", ["c.hjson:2"], {"c.hjson": b"{\n  save_dir: ne\x00w\n  __parent__: train.hjson\n}"}),
    Row("a brace that is never closed", "x-train c", ["c.hjson:1", "never closed"], {"c.hjson": "{\n  __parent__: train.hjson\n"}),
    Row("a quote that is never closed", "x-train c", ["c.hjson:4", "quote|closed"], train('model: "cls_cnn')),
    Row("typographic quotes", "x-train c", ["c.hjson:4", "model", "“"], train("model: “cls_cnn”")),
    Row("a misspelt key behind a byte order mark", "x-train c", ["c.hjson:2", "learning_rte"], {"c.hjson": "\ufeff{__parent__: train.hjson\nlearning_rte: 3, save_dir: 'new'}"}),
]  # fmt: skip

VALUES = [
    Row("text for a number", "x-train c", ["c.hjson:4", "learning_rate", "is 'fast'", "number"], train("learning_rate: fast")),
    Row("a float for an integer", "x-train c", ["batch_size", "is 8.5", "integer"], train("batch_size: 8.5")),
    Row("a truth value for an integer", "x-train c", ["batch_size", "is true", "not a truth value"], train("batch_size: true")),
    Row("a number for a truth value", "x-train c", ["save", "is 1", "write true"], train("save: 1")),
    Row("null for a number", "x-train c", ["batch_size", "null", "integer"], train("batch_size: null")),
    Row("a list for a number", "x-train c", ["learning_rate", r"\[0.1, 0.2\]", "loop"], train("learning_rate: [0.1, 0.2]")),
    Row("zero where more is due", "x-train c", ["batch_size", "is 0", "above 0|greater than 0|> 0"], train("batch_size: 0")),
    Row("a negative learning rate", "x-train c", ["learning_rate", "-0.1", "0"], train("learning_rate: -0.1")),
    Row("texts cut by the wrong command", "x-train c", ["max_len", "is 2, but x-prepro cut the samples to", "config of x-prepro"], train("max_len: 2")),
    Row("a seed of more than 63 bits", "x-train c", ["seed", "9999999999999999999", "< 9.22337e\\+18"], train("seed: 9999999999999999999")),
    Row("an average that decays by more than one", "x-train c", ["ema_decay", "1.5", "1"], train("ema_decay: 1.5")),
    Row("no such choice", "x-prepro c", ["save_format", "'toch'", "Did you mean 'torch'"], prepro("save_format: toch")),
    Row("a list with a wrong item", "x-train c", ["adam_betas", "0.9|item"], train("adam_betas: ['a', 0.9]")),
    Row("a mapping with a wrong value", "x-pred c", ["predict_file_map", "3"], config("pred.hjson", "predict_file_map: {raw/dev.txt: 3}".replace("{", "{\n").replace("}", "\n}"))),
    Row("a metric that is not there", "x-train c", ["major_metric", "'accurcy'"], train("major_metric: accurcy")),
    Row("a metric turned around", "x-train c", ["ascending_metric", "a higher acc is better"], train("ascending_metric: false")),
    Row("a relative number without end", "x-train c", ["log_interval", "@{"], train('log_interval: "@{batch_size:64/50"')),
    Row("a relative number of an unknown key", "x-train c", ["log_interval", "batch_sise", "Did you mean 'batch_size'"], train('log_interval: "@{batch_sise:64}/50"')),
    Row("a key that cannot be relative", "x-train c", ["batch_size", "@{"], train('batch_size: "@{seed:1}/8"')),
]  # fmt: skip

REFERENCES = [
    Row("an unknown reference", "x-train c", ["c.hjson:4", r"\$\{embeding_dim\}|embeding_dim", "Did you mean.*embedding_dim"], train("hidden_size: ${embeding_dim}")),
    Row("references in a circle", "x-train c", ["circle|cycle", "seed", "batch_size"], train("batch_size: ${seed}", "seed: ${batch_size}")),
    Row("parents in a circle", "x-train c", ["circle|cycle", "c.hjson", "d.hjson"], {"c.hjson": "{\n__parent__: d.hjson\n}", "d.hjson": "{\n__parent__: c.hjson\n}"}),
    Row("a parent that is not there", "x-train c", ["c.hjson:2", "__parent__", "trian.hjson", "train"], {"c.hjson": "{\n  __parent__: trian.hjson\n  save_dir: new\n}"}),
    Row("a parent that is broken", "x-train c", ["d.hjson:1", "never closed"], {"c.hjson": "{\n  __parent__: d.hjson\n  save_dir: new\n}", "d.hjson": "{ a: [1,\n"}),
    Row("a save_dir that two runs of a loop share", "x-train c", ["save_dir", "'new'", "runs 1, 2", r"\$\{"], {"c.hjson": "{\n __parent__: ['train.hjson', [{seed: 1}, {seed: 2}]]\n save_dir: new\n}"}),
    Row("the same run twice", "x-train c", ["runs 1, 2", "are identical"], {"c.hjson": "{\n __parent__: ['train.hjson', [{save_dir: 'new1'}, {save_dir: 'new2'}]]\n}"}),
    Row("a loop without its brackets", "x-train c", ["__parent__", "seed of this table is overridden", r"\[ \]"], {"c.hjson": "{\n __parent__: ['train.hjson', {seed: 1}, {seed: 2}]\n save_dir: new\n}"}),
    Row("a misspelt macro on the command line", "x-train c __def__.flod=2", ["__def__.flod", "Did you mean 'fold'"], {"c.hjson": "{\n __parent__: train.hjson\n __def__: {fold: 1}\n save_dir: new${fold}\n}"}),
    Row("a key without the macro that names its folder", "x-train c seed=5", ["seed", "__def__.seed=..."], {"c.hjson": "{\n __parent__: train.hjson\n __def__: {seed: 1}\n seed: ${seed}\n save_dir: new${seed}\n}"}),
    Row("a reference as another language writes it", "x-train c", ["save_dir", "not replaced", r"Write \$\{seed\}"], {"c.hjson": "{\n __parent__: train.hjson\n save_dir: new$(seed)\n}"}),
    Row("typographic quotes around a path", "x-train train save_dir=“new”", ["save_dir", "a quote at one end"]),
    Row("one bad run of a loop", "x-train c", ["learning_rate", "'x'", "in run 2 of 2"], {"c.hjson": "{\n __parent__: ['train.hjson', [{save_dir: 'new1', learning_rate: 0.1}, {save_dir: 'new2', learning_rate: 'x'}]]\n}"}),
]  # fmt: skip

PATHS = [
    Row("no data_source", "x-prepro c", ["data_source", "'rwa'", "Did you mean 'raw'"], prepro("data_source: rwa")),
    Row("a data_source that is a file", "x-prepro c", ["data_source", "is a file"], prepro("data_source: raw/dev.txt")),
    Row("no raw file", "x-prepro c", ["data_files", r"\*.csv", "dev.txt"], prepro('data_files: "*.csv"')),
    Row("no vocabulary", "x-prepro c", ["vocab_file", "'vocb.txt'"], prepro("vocab_file: vocb.txt")),
    Row("no target map", "x-prepro c", ["target_map_file", "'labels.txt'"], prepro("target_map_file: labels.txt")),
    Row("no word vectors", "x-prepro c", ["pretrained_embeddings", "'glove.txt'"], prepro("pretrained_embeddings: glove.txt")),
    Row("no data_dir", "x-train c", ["data_dir", "'dat'", "Did you mean 'data'"], train("data_dir: dat")),
    Row("a data_dir that is a file", "x-prepro prepro data_dir=raw/dev.txt", ["data_dir", "is a file"]),
    Row("no meta in data_dir", "x-train c", ["meta.hjson", "x-prepro"], {**train(), "data/meta.hjson": GONE}),
    Row("a data_dir without meta", "x-train train data_dir=raw save_dir=new", ["data_dir", "raw", "meta.hjson"]),
    Row("no run to score", "x-eval c", ["save_dir", "'rnu'", "run"], evaluate("save_dir: rnu")),
    Row("a save_dir to score that is not a run", "x-eval c", ["save_dir", "raw", "args.py"], evaluate("save_dir: raw")),
    Row("no checkpoint", "x-eval c", ["checkpoint", "checkpoint-3.pt", "<best> or <last>"], evaluate("checkpoint: checkpoint-3.pt")),
    Row("a misspelt alias", "x-eval c", ["checkpoint", "<bset>", "<best>"], evaluate("checkpoint: <bset>")),
    Row("a split that is not there, to score", "x-eval c", ["valid_subset", "'tset'", "dev"], evaluate("valid_subset: tset")),
    Row("a file to predict that is not there", "x-pred c", ["predict_file_map", "raw/tset.txt"], {"c.hjson": PREDICT.replace("raw/dev.txt", "raw/tset.txt")}),
    Row("a run to draw that is not there", "x-viz c", ["save_dir", "'rnu'", "run"], config("viz.hjson", "save_dir: rnu")),
    Row("nothing drawn can be", "x-viz c", ["save_dir", "raw"], config("viz.hjson", "save_dir: raw")),
    Row("a reference run that is not there", "x-viz c", ["ref_dir", "rnu"], config("viz.hjson", "ref_dir: rnu")),
    Row("pretrained weights that are not there", "x-train c", ["pretrained_model", "run/checkpoint-3.pt"], train("pretrained_model: run/checkpoint-3.pt")),
]  # fmt: skip

CONFLICTS = [
    Row("to continue and to replace", "x-train c", ["resume", "contradicts overwrite"], train("resume: true", "overwrite: true")),
    Row("a run is there already", "x-train train", ["save_dir", "'run' already contains a run", "resume: auto", "overwrite: true"]),
    Row("nothing to continue", "x-train c", ["save_dir", "'new'", "no run to resume", "resume: auto"], train("resume: true")),
    Row("files that are not a run, even with overwrite", "x-train c", ["save_dir", "'raw'", "not belong to a run", "never deleted"], config("train.hjson", "save_dir: raw", "overwrite: true")),
    Row("preprocessed data, even with overwrite", "x-train c", ["save_dir", "'data'", "not belong to a run", "never deleted"], config("train.hjson", "save_dir: data", "overwrite: true")),
    Row("no end", "x-train c", ["max_epoch", "max_update"], {"c.hjson": TRAIN.replace("  max_update: 4\n", "").replace("save_dir: run", "save_dir: new")}),
    Row("a warm-up of evaluations that never come", "x-train c", ["eval_interval_warmup", "eval_interval: -1"], train("eval_interval: -1", "eval_interval_warmup: 3")),
    Row("evaluation every 0 updates", "x-train c", ["eval_interval", "is 0", "-1"], train("eval_interval: 0")),
    Row("no such split to validate on", "x-train c", ["valid_subset", "'tset'", "dev, train"], train("valid_subset: tset")),
    Row("no such split to train on", "x-train c", ["train_subset", "trian", "train"], train("train_subset: trian")),
    Row("a batch larger than the data", "x-train c", ["batch_size", "100", "48"], train("batch_size: 100")),
    Row("patience longer than training", "x-train c", ["min_steps", "is 9", "at most 4"], train("min_steps: 9")),
    Row("rows dropped and rows kept", "x-pred c", ["skip_bad_lines|concat_origin"], predict("skip_bad_lines: true", "concat_origin: true")),
    Row("rows of text beside arrays", "x-pred c", ["binary|concat_origin"], predict("binary: true", "concat_origin: true")),
    Row("a run and a config to score", "x-eval c", ["config", "save_dir"], evaluate("config: train.hjson")),
    Row("nothing to score with", "x-eval c", ["config", "save_dir"], {"c.hjson": "{\n  valid_subset: dev\n}"}),
    Row("two precisions", "x-train c", ["bf16", "fp16"], train("fp16: true", "bf16: true")),
    Row("a figure in no format", "x-train c", ["figext", "'pgn'", "png"], train("figext: pgn")),
    Row("a model for pairs on single texts", "x-train c", ["c.hjson:4.: 're2' takes tokens1, mask1, tokens2, mask2", "the processor gives tokens, mask", "another processor"], train("model: re2", "blocks: 1", "encoder_layers: 1")),
    Row("a model for pairs to score single texts", "x-eval c", ["model: 're2'", "tokens1", "processor"], {"c.hjson": "{\n  config: d.hjson\n  valid_subset: dev\n}", "d.hjson": "{\n  __parent__: train.hjson\n  model: re2\n  blocks: 1\n  encoder_layers: 1\n}"}),
    Row("query scores without queries", "x-train c", ["query_level_f1", "no query ids"], train("query_level_f1: true")),
    Row("a class beyond the last", "x-train c", ["negative_classes_in_f1", "holds .7.", "0 to 1"], train("negative_classes_in_f1: [7]")),
    Row("a dropout of all", "x-train c", ["dropout", "is 1.5", ">= 0 and < 1"], train("dropout: 1.5")),
    Row("more processes than samples of a batch", "x-train c", ["batch_size", "over all devices", "fewer processes"], train("nproc: 99")),
    Row("a parameter of the run, outside extra_config", "x-eval c", ["hidden_size", "x-eval does not use it. To override the run's own, write extra_config: . hidden_size:"], evaluate("hidden_size: 16")),
    Row("an override of another run's parameter", "x-eval c", ["extra_config.hiden_size", "Did you mean 'hidden_size'"], evaluate("extra_config: {", "hiden_size: 16", "}")),
    Row("an override that the weights contradict", "x-eval c", ["other sizes in 7 weights", "Use the config"], evaluate("extra_config: {", "hidden_size: 16", "}")),
    Row("more runs than anybody means", "x-train c", ["__parent__", "more than 10,000 runs"], {"c.hjson": "{\n __parent__: ['train.hjson', " + ", ".join("[" + ", ".join(f"{{k{i}: {j}}}" for j in range(40)) + "]" for i in range(6)) + "]\n}"}),
    Row("a top level that is text", "x-train c.yaml", ["c.yaml:1", "top level", "one dict"], {"c.yaml": "- a\n- b\n"}),
    Row("TOML", "x-train c.toml", ["c.toml:1", "key: value"], {"c.toml": "batch_size=1"}),
    Row("a parent on the command line", "x-train train __parent__=eval.hjson", ["__parent__", "command line"]),
    Row("fewer labels than the data have", "x-train c", ["num_classes", "is 1, but the data were made with 2", "data/meta"], train("num_classes: 1")),
    Row("a smaller vocabulary than that of the data", "x-train c", ["vocab_size", "is 3, but the data were made with 7"], train("vocab_size: 3")),
    Row("another padding than that of the data", "x-train c", ["pad_index", "is 6, but the data were made with 0"], train("pad_index: 6")),
    Row("another processor than that of the data", "x-train c", ["processor", "is 'pair', but the data were made with 'single'"], train("processor: pair")),
    Row("one word for padding and for the unknown", "x-prepro c", ["unk_word", "'good', as pad_word is", "two different"], prepro("pad_word: good", "unk_word: good")),
    Row("a least width above the greatest", "x-prepro c", ["min_len", "is 9, above max_len 8"], prepro("min_len: 9")),
    Row("a log in another file of x-prepro", "x-prepro c", ["log_file", "'vocab.txt'", "log.txt"], prepro("log_file: vocab.txt")),
    Row("a log in another file of x-train", "x-train c", ["log_file", "'../train.hjson'", "log.txt"], train("log_file: ../train.hjson")),
    Row("data_dir in data_source", "x-prepro prepro data_dir=./raw", ["data_dir", "'./raw' is also data_source", "another folder"]),
    Row("a split with the name of another file", "x-prepro c", ["data_files", "'embeddings' cannot be the name of a split"], prepro("data_files: {\n'train.txt': embeddings\n}")),
    Row("two files for one split", "x-prepro c", ["data_files", "'raw/dev.txt' and 'raw/train.txt'", "'train'"], prepro("data_files: {\n'train.txt': train\n'dev.txt': train\n}")),
    Row("scores over raw data", "x-eval c", ["save_to_file", "'raw/dev.txt' contains something other than scores", "another file"], evaluate("save_to_file: raw/dev.txt", "save_mode: w")),
    Row("scores over a folder", "x-eval c", ["save_to_file", "'raw' is a directory"], evaluate("save_to_file: raw")),
    Row("an empty list to train on", "x-train c", ["c.hjson:4", "train_subset", "is an empty list", "train"], train("train_subset: []")),
    Row("values in a config that is not there", "x-eval c", ["extra_config .c.hjson:3.:", "'nowhere'"], evaluate("extra_config: nowhere")),
    Row("a config to score that is not there", "x-eval c", ["config .c.hjson:2.:", "'nowhere'"], {"c.hjson": "{\n  config: nowhere\n  valid_subset: dev\n}"}),
    Row("values in a config that cannot be read", "x-eval c", ["extra_config", "more.hjson:1", "never closed"], {**evaluate("extra_config: more"), "more.hjson": "{ batch_size: 2"}),
    Row("the parent of values that is not there", "x-eval c", ["extra_config.__parent__", "'nowhere'"], {**evaluate("extra_config: more"), "more.hjson": "{ __parent__: 'nowhere' }"}),
    Row("a folder that is not empty, removed by x-io", "x-io remove raw", ["raw: is a folder that is not empty", "rmtree"]),
    Row("an unknown scheme", "x-io exists zork://a/b", ["'zork://' is not a known kind of path", "s3://, oss://"]),
    Row("a data_source with an unknown scheme", "x-prepro c", ["data_source", "'zork://' is not a known kind of path", "s3://, oss://"], prepro("data_source: zork://a/b")),
    Row("a warm-up longer than training", "x-train c", ["c.hjson:5", "warmup_steps", "is 5, but training has 4 updates", "at most 4"], train("lr_scheduler: warmup_constant", "warmup_steps: 5")),
    Row("an average that begins after training", "x-train c", ["c.hjson:4", "swa_start", "is 5, but training has 4 updates", "at most 4"], train("swa_start: 5")),
    Row("blocks that begin after training", "x-train c", ["warmup_iterations", "is 500, but training has 4 updates", "at most 4"], train("use_bmuf: true")),
    Row("nothing to score", "x-eval c", ["valid_subset", "names nothing"], evaluate("valid_subset: []")),
    Row("predictions over their input", "x-pred c", ["predict_file_map", "replace its input 'raw/dev.txt'"], {"c.hjson": PREDICT.replace("out.tsv", "raw/dev.txt")}),
    Row("predictions of two files in one", "x-pred c", ["predict_file_map", "'out.tsv' twice"], {"c.hjson": PREDICT.replace("out.tsv", "out.tsv\n    raw/train.txt: out.tsv")}),
    Row("a tokenizer in a folder that is not there", "x-prepro c", ["c.hjson:5", "vocab_file", "is './no/where', where no tokenizer was found", "no such folder"], prepro("tokenizer: auto", "vocab_file: ./no/where")),
    Row("a tokenizer that does not exist", "x-prepro c", ["c.hjson:5", "vocab_file", "no such folder", "hub cannot be reached"], prepro("tokenizer: auto", "vocab_file: zork")),
    Row("the best of a folder that is not a run", "x-train c", ["c.hjson:4", "pretrained_model", "'raw/<best>'", "contains no checkpoint"], train("pretrained_model: raw/<best>")),
    Row("the best of no run", "x-train c", ["pretrained_model", "'<best>'", "which run it belongs to"], train("pretrained_model: <best>")),
    Row("a vocabulary without counts of its own", "x-prepro c", ["vocab_file", "bert"], prepro("tokenizer: bert")),
]  # fmt: skip

RAW = [
    Row("an empty raw file", "x-prepro c", ["bad/train.txt", "is empty"], prepro(train_txt="")),
    Row("ragged rows", "x-prepro c", ["bad/train.txt", ":2: ", "3 columns"], prepro(train_txt=ONE + "a\tb\tpos\n" + ONE)),
    Row("a row without its label", "x-prepro c", ["bad/train.txt", ":2: ", "1 column"], prepro(train_txt=ONE + "alone\n" + ONE)),
    Row("too many columns", "x-prepro c", ["bad/train.txt", "3 columns|column"], prepro(train_txt="a\tb\tpos\n" * 3)),
    Row("bad UTF-8 in data", "x-prepro c", ["bad/train.txt", ":2: ", "UTF-8"], prepro(train_txt=ONE.encode() + b"caf\xe9\tpos\n")),
    Row("NUL bytes in data", "x-prepro c", ["bad/train.txt", ":2: ", "NUL"], prepro(train_txt=ONE + "a\x00b\tpos\n")),
    Row("a cut .gz", "x-prepro c", ["bad/train.txt.gz", "cut|truncated|end"], prepro('data_files: "*.gz"', train_txt_gz=gzip.compress((ONE * 999).encode(), mtime=0)[:40])),
    Row("a .gz that is not compressed", "x-prepro c", ["bad/train.txt.gz", "gzip"], prepro('data_files: "*.gz"', train_txt_gz=ONE)),
    Row("a broken parquet", "x-prepro c", ["bad/train.parquet", "parquet"], prepro('data_files: "*.parquet"', "parser: parquet", "fields: [\n'text'\n'label'\n]", train_parquet="PAR1 nothing PAR1")),
    Row("a broken excel sheet", "x-prepro c", ["bad/train.xlsx", "xlsx|Excel|excel"], prepro('data_files: "*.xlsx"', "parser: excel", "sheet_name: one", train_xlsx="PK nothing")),
    Row("broken jsonl", "x-prepro c", ["bad/train.jsonl", ":2: ", "JSON"], prepro('data_files: "*.jsonl"', "parser: jsonl", "fields: [\n'text'\n'label'\n]", train_jsonl='{"text": "a", "label": "x"}\n{"text": "b", \n')),
    Row("jsonl without a field", "x-prepro c", ["bad/train.jsonl", ":2: ", "no field 'label', but 'lable'"], prepro('data_files: "*.jsonl"', "parser: jsonl", "fields: [\n'text'\n'label'\n]", train_jsonl='{"text": "a", "label": "x"}\n{"text": "b", "lable": "x"}\n')),
    Row("labels that are not numbers", "x-prepro c", ["bad/train.txt", "pos", "target_type|index|number"], prepro("target_type: index", train_txt=ONE)),
    Row("a gap in numbered labels", "x-prepro c", ["bad|target", "1"], prepro("target_type: index", train_txt="a\t0\nb\t2\n")),
    Row("a label that the target map lacks", "x-prepro c", ["bad/train.txt", ":2: ", "'meh'", "labels are pos, neg", "target_map_file"], prepro("target_map_file: labels.txt", train_txt=ONE + "so so\tmeh\n") | {"labels.txt": "pos\nneg\n"}),
    Row("a special target that no row has", "x-prepro c", ["special_targets", "'unknown'"], prepro("special_targets: [\n'unknown'\n]", train_txt=ONE)),
    Row("a label only in dev of a finished data_dir", "x-prepro c", ["num_classes: was 2", "target_map.txt", "another data_dir", "target_map_file: data/target_map.txt"], {**config("prepro.hjson", "data_source: bad"), "bad/more.txt": "so so\tmeh\n"}, faults=4),
    Row("a file of nothing but bad lines", "x-prepro c", ["bad/train.txt", "no usable line"], prepro("skip_bad_lines: true", train_txt="a\tb\tc\n" * 3)),
    Row("a length that was promised", "x-prepro c", ["max_len", "is 1", "2"], prepro("max_len: 1", "check_max_len: true", train_txt=ONE)),
    Row("a vocabulary with doubles", "x-prepro c", ["c.hjson:4", "vocab_file", "'good' in lines 3 and 5"], prepro("vocab_file: v.txt") | {"v.txt": "[PAD]\n[UNK]\ngood\nbad\ngood\n"}),
    Row("a BERT vocabulary with doubles", "x-prepro c", ["vocab_file", "'good' in lines 3 and 5, and 1 more"], prepro("tokenizer: bert", "vocab_file: v.txt") | {"v.txt": "[PAD]\n[UNK]\ngood\nbad\ngood\nbad\n"}),
    Row("an empty vocabulary file", "x-prepro c", ["v.txt", "empty|no token"], prepro("vocab_file: v.txt", train_txt=ONE) | {"v.txt": ""}),
    Row("word vectors of two widths", "x-prepro c", ["g.txt", ":2: ", "2 numbers.*not 3"], prepro("pretrained_embeddings: g.txt", train_txt=ONE) | {"g.txt": "good 1 2 3\nfilm 1 2\n"}),
    Row("an unseen label, to score", "x-eval c", ["raw/new.txt", ":2: ", "'meh'", "labels are neg, pos", "ignore_novel_target: true"], {**evaluate("valid_subset: raw/new.txt"), "raw/new.txt": "good\tpos\nso\tmeh\n"}),
    Row("a file to score without labels", "x-eval c", ["raw/new.txt", "label"], {**evaluate("valid_subset: raw/new.txt"), "raw/new.txt": "good\nso\n"}),
    Row("an empty file to score", "x-eval c", ["raw/new.txt", "is empty"], {**evaluate("valid_subset: raw/new.txt"), "raw/new.txt": ""}),
    Row("ragged rows to predict", "x-pred c", ["raw/new.txt", ":2: ", "4 columns"], {"c.hjson": PREDICT.replace("dev.txt", "new.txt"), "raw/new.txt": "good\tpos\na\tb\tc\td\n"}),
    Row("bad UTF-8 to predict", "x-pred c", ["raw/new.txt", ":2: ", "UTF-8"], {"c.hjson": PREDICT.replace("dev.txt", "new.txt"), "raw/new.txt": b"good\tpos\ncaf\xe9\tpos\n"}),
]  # fmt: skip

RESUME = "x-train train resume=true max_update=6"
DAMAGE = [
    Row("a store that was cut short", "x-train c", ["data/train.pt", "x-prepro"], {**train(), "data/train.pt": CUT}, WORLD),
    Row("a store that is not there", "x-train c", ["train.pt", "x-prepro"], {**train(), "data/train.pt": GONE}),
    Row("a meta of another processor", "x-train c", ["processor"], {**train(), "data/meta.hjson": '{"__version__": "1", "processor": "pear", "data_size": {"train": 48, "dev": 16}}'}),
    Row("a meta that is broken", "x-train c", ["data/meta.hjson:1"], {**train(), "data/meta.hjson": '{"__version__": "1", "processor": '}, faults=2),
    Row("data of another processor", "x-prepro c", ["data", "processor|single|char_zh|tokenizer"], config("prepro.hjson", "processor: bert_single"), faults=5),
    Row("weights cut short", "x-eval eval checkpoint=run/checkpoint-4.pt", ["checkpoint-4.pt"], {"run/checkpoint-4.pt": CUT}, WORLD),
    Row("weights with a flipped bit", "x-eval eval checkpoint=run/checkpoint-4.pt", ["checkpoint-4.pt"], {"run/checkpoint-4.pt": FLIP}, WORLD),
    Row("weights of another model", "x-train c", ["pretrained_model", "checkpoint-4.pt"], train("pretrained_model: run/checkpoint-4.pt", "hidden_size: 16")),
    Row("no state to resume from is whole", RESUME, ["run", "2, 4", "intact"], {"run/checkpoint-2.pts": CUT, "run/checkpoint-4.pts": FLIP}, WORLD),
    Row("states without manifests", RESUME, ["run", "manifest|whole"], {"run/checkpoint-2.pts.manifest.json": GONE, "run/checkpoint-4.pts.manifest.json": GONE}, WORLD),
    Row("a run without states", RESUME, ["run", "save_full_checkpoint"], {f"run/checkpoint-{n}.pts{end}": GONE for n in (2, 4) for end in ("", ".manifest.json")}, WORLD),
    Row("an args.py that is damaged", "x-eval eval", ["run/args.py"], {"run/args.py": CUT}, WORLD),
    Row("an args.py that was changed", "x-eval eval", ["run/args.py"], {"run/args.py": "__import__('os').system('touch hacked')"}, WORLD),
    Row("a damaged args.py, with nothing to compare", "x-eval eval", ["run/args.py"], {"run/args.py": CUT, "run/resources.manifest.json": GONE}),
    Row("an args.py with code inside", "x-eval eval", ["run/args.py"], {"run/args.py": "__import__('os').system('touch hacked')", "run/resources.manifest.json": GONE}),
    Row("no args.py", "x-eval eval", ["run", "args.py"], {"run/args.py": GONE}),
    Row("a vocabulary that is gone", "x-pred pred", ["vocab.txt"], {"run/vocab.txt": GONE, "data/vocab.txt": GONE}),
    Row("checkpoints that are all gone", "x-eval eval", ["run", "checkpoint"], {f"run/checkpoint-{n}{end}": GONE for n in (2, 4) for end in (".pt", ".pts", ".manifest.json", ".pts.manifest.json")}),
    Row("a damaged run, verified", "x-script verify run", ["checkpoint-4.pt"], {"run/checkpoint-4.pt": FLIP}, WORLD),
]  # fmt: skip

BRIDGES = [
    Row("a flag without its value", "x-train train --batch_size", ["--batch_size: has no value", "batch_size=VALUE"]),
    Row("a misspelt key as a flag", "x-train train save_dir=new --batch_sise 32", ["batch_sise", "Did you mean 'batch_size'"]),
    Row("a key of the Trainer", "x-train train save_dir=new --num_train_epochs 3", ["num_train_epochs", "It is called 'max_epoch' here"]),
    Row("keys of other tools", "x-train c", ["lr .*'learning_rate'", "max_seq_length .*'max_len'", "early_stopping_patience .*'tolerance'"], train("lr: 0.1", "max_seq_length: 64", "early_stopping_patience: 3"), faults=3),
    Row("a key of another tool for x-run", "x-run r.csv lr=0.1", ["lr", "'learning_rate'"], {"r.csv": "text,label\n" + "".join(f"word{i} a,x\nword{i} b,y\n" for i in range(60))}),
    Row("F1 of a class by its name", "x-train train save_dir=new major_metric=f1_pos --dry", ["gives no 'f1_pos'", "Did you mean 'f1'"]),
    Row("the run of an args.py again, in its own folder", "x-train run/args.py", ["'run' already contains a run", "save_dir|resume"]),
    Row("an args.py for another command", "x-eval run/args.py", ["looks like one for x-train", "Did you mean x-train"]),
    Row("a program as a config", "x-train p.py", ["not a Python literal", "nothing in it was executed"], {"p.py": "import os\nos.system('touch hacked')\n"}),
    Row("predictions that are not there", "x-script confusion_matrix raw/dve.tsv", ["there is no file 'raw/dve.tsv'"]),
    Row("a file that contains no predictions", "x-script confusion_matrix raw/dev.txt", ["no column 'target'", "x-pred|Predict"]),
    Row("a name on the hub that is not here", "x-train train save_dir=new pretrained_model=org/zork-base", ["pretrained_model", "hf download org/zork-base", "HF_ENDPOINT", "modelscope"]),
    Row("a vocabulary by a name on the hub", "x-prepro prepro data_dir=new tokenizer=bert processor=bert_single vocab_file=org/zork-base", ["vocab_file", "hf download org/zork-base"]),
    Row("fewer epochs than the run has done", "x-train train resume=true max_update=2", ["max_update changed", "step 4 of 2", "Raise"]),
]  # fmt: skip

REVIEWS = "text,label\n" + "".join(f"word{i} a,x\nword{i} b,y\n" for i in range(60))
FIRST_HOUR = [
    Row("a file of data for x-train", "x-train r.csv", ["'r.csv' holds data, not a config", "x-run r.csv"], {"r.csv": REVIEWS}),
    Row("a file for x-run that is not there", "x-run reviws.csv", ["does not exist", "Did you mean 'reviews.csv'"], {"reviews.csv": REVIEWS}),
    Row("two files for x-run", "x-run r.csv raw/dev.txt", ["x-run: takes one file or folder"], {"r.csv": REVIEWS}),
    Row("an empty file for x-run", "x-run r.csv", ["is empty"], {"r.csv": ""}),
    Row("a header alone for x-run", "x-run r.csv", ["holds 0 rows with labels"], {"r.csv": "text,label\n"}),
    Row("a picture for x-run", "x-run r.csv", ["neither UTF-8 nor", "text file"], {"r.csv": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"}),
    Row("texts without labels for x-run", "x-run r.csv", ["delimiter: cannot be found", "classifier cannot be trained"], {"r.csv": "only one column\nmore text here\nand more\n"}),
    Row("a pointer of Git LFS for x-run", "x-run r.csv", ["pointer of Git LFS", "git lfs pull"], {"r.csv": "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n"}),
    Row("a label column that is not there", "x-run r.csv label=lable", ["no column 'lable'", "Did you mean 'label'"], {"r.csv": REVIEWS}),
    Row("a misspelt encoding", "x-run r.csv encoding=gkb", ["encoding: there is no 'gkb'", "gb18030"], {"r.csv": REVIEWS}),
    Row("an unknown task", "x-run r.csv task=klass", ["task: is 'klass'", "class, number, several"], {"r.csv": REVIEWS}),
    Row("nearly everything held out", "x-run r.csv dev=0.9", ["dev: is '0.9'", "at most 0.4"], {"r.csv": REVIEWS}),
    Row("an encoder that is not there", "x-run r.csv model=zork/bert", ["model: is 'zork/bert'", "hf download zork/bert"], {"r.csv": REVIEWS}),
    Row("a run in the place of a config", "x-eval run", ["'run' is a folder, not a config", "save_dir=run"]),
    Row("a key and its value with a blank between", "x-train train learning_rate 0.1", ["learning_rate: is not expected", "Write learning_rate=0.1"]),
    Row("a key and its value with a colon between", "x-train train learning_rate:0.1", ["learning_rate:0.1", "Write learning_rate=0.1"]),
    Row("a comma in the place of the point", "x-train train save_dir=new learning_rate=0,001", ["'0,001'", "write a decimal point, 0.001"]),
    Row("epochs in words", "x-train train save_dir=new max_epoch=abc", ["max_epoch", "'abc'", "integer"]),
    Row("a rate that is not a number", "x-train train save_dir=new learning_rate=nan", ["learning_rate", "'nan'", "number"]),
    Row("an empty folder name", "x-train train save_dir=", ["save_dir", "empty path"]),
    Row("a key of LoRA", "x-train train save_dir=new lora_rank=9", ["lora_rank", "no such key"]),
    Row("a key inside a section of another tool", "x-train train save_dir=new --trainer.max_epoch 3", ["trainer", "no such key"]),
    Row("a device by the name of another tool", "x-train train save_dir=new gpus=2", ["gpus", "'device_id'", "nproc=2"]),
    Row("a verb of the shell", "x-io ls raw", ["no verb 'ls'", "Did you mean 'listdir'"]),
    Row("an unknown shell to complete for", "x-train --completion bahs", ["'bahs'", "Did you mean 'bash'"]),
]  # fmt: skip

GROUPS = {
    "The first hour": FIRST_HOUR,
    "Habits from other tools": BRIDGES,
    "The command line": WORDS,
    "Misspelt or misplaced keys": KEYS,
    "Names": NAMES,
    "Traps of the config language": TRAPS,
    "Values": VALUES,
    "Parents, references and loops": REFERENCES,
    "Paths": PATHS,
    "Settings that contradict each other, the data or the disk": CONFLICTS,
    "Raw data": RAW,
    "Damaged files": DAMAGE,
}
"""The rows shown in docs/mistakes.md, in order."""

TABLE = [row for rows in GROUPS.values() for row in rows]


def answer(out: str, err: str, desk: str) -> str:
    """Return what a user sees of a refusal, without log lines and the path of the working directory."""
    lines = [line for line in (err or out).replace(desk, "~/desk").splitlines() if line and not line.startswith("| ")]
    return "\n".join(lines)


def cell(text: str, most: int = 420) -> str:
    """Return a text escaped for a cell of a Markdown table."""
    text = text if len(text) <= most else text[: most - 2].rstrip() + " …"
    for sign, escaped in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("|", "&#124;"),
        ("*", "&#42;"),
        ("_", "&#95;"),
        ("\n", "<br>"),
    ):
        text = text.replace(sign, escaped)
    return text
