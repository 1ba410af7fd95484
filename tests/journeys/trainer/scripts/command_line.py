"""Arguments from a command line and from a JSON file, with the user's own dataclasses."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from transformers import HfArgumentParser, IntervalStrategy, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Where the model lies."})
    cache_dir: str | None = field(default=None, metadata={"help": "Where downloads are kept."})
    use_fast_tokenizer: bool = field(default=True, metadata={"help": "Whether to use the fast tokenizer."})


@dataclass
class DataArguments:
    task_name: str | None = field(default=None, metadata={"help": "The task."})
    max_seq_length: int = field(default=128, metadata={"help": "Longest sample, in tokens."})
    splits: list[str] = field(default_factory=lambda: ["train"], metadata={"help": "Splits to use."})


WORDS = [
    "--model_name_or_path",
    "bert",
    "--task_name",
    "mrpc",
    "--do_train",
    "--do_eval",
    "--max_seq_length",
    "64",
    "--splits",
    "train",
    "dev",
    "--per_device_train_batch_size",
    "32",
    "--learning_rate",
    "2e-5",
    "--num_train_epochs",
    "3",
    "--output_dir",
    "out/mrpc",
    "--use_cpu",
    "--eval_strategy",
    "steps",
    "--eval_steps",
    "10",
    "--logging_steps",
    "10",
    "--no_use_fast_tokenizer",
    "--bf16",
    "false",
    "--report_to",
    "none",
    "--lr_scheduler_type",
    "cosine",
    "--lr_scheduler_kwargs",
    '{"num_cycles":0.5}',
    "--label_names",
    "a",
    "b",
    "--seed",
    "5",
]
parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
model_args, data_args, args = parser.parse_args_into_dataclasses(WORDS)
kept = parser.parse_args_into_dataclasses([*WORDS, "--mine", "1"], return_remaining_strings=True)[-1]
Path("settings.json").write_text(
    json.dumps({"output_dir": "out/file", "max_steps": 7, "use_cpu": True, "optim": "sgd"})
)
(from_file,) = HfArgumentParser(TrainingArguments).parse_json_file("settings.json")
(from_dict,) = HfArgumentParser(TrainingArguments).parse_dict({"output_dir": "out/dict", "warmup_steps": 0.1})
told = args.to_dict()
outcome = {
    "model": vars(model_args),
    "data": vars(data_args),
    "kept": kept,
    "told": {name: told[name] for name in ("learning_rate", "eval_strategy", "lr_scheduler_kwargs", "label_names")},
    "types": [args.eval_strategy is IntervalStrategy.STEPS or args.eval_strategy == "steps", args.do_eval, args.bf16],
    "sizes": [args.train_batch_size, args.eval_batch_size, args.n_gpu, args.world_size, args.process_index],
    "file": [from_file.max_steps, str(from_file.optim.value), from_file.output_dir],
    "warmup": [from_dict.get_warmup_steps(95), from_dict.output_dir],
    "text": json.loads(args.to_json_string())["seed"],
    "plain": {type(value).__name__ for value in args.to_sanitized_dict().values()} <= {"bool", "int", "float", "str"},
}
Path("outcome.json").write_text(json.dumps(outcome))
