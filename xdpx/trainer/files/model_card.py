"""The `README.md` of a model on the hub, from the facts of its training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io
from xdpx.utils.manifests import versions

MARK = "<!-- Written by the Trainer from what it knew. -->"
_THEIR_MARK = "<!-- This model card has been generated automatically"
SHOWN_ARGUMENTS = (
    "learning_rate", "per_device_train_batch_size", "per_device_eval_batch_size", "seed", "gradient_accumulation_steps",
    "optim", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "lr_scheduler_type",
    "warmup_steps", "num_train_epochs", "max_steps", "fp16", "bf16", "label_smoothing_factor", "neftune_noise_alpha",
)  # fmt: skip
_SPEED = ("runtime", "per_second", "preparation_time")
Words = str | Sequence[str] | None
LISTS = ("language", "license", "tags", "tasks", "dataset", "dataset_tags", "dataset_args")


@dataclass(frozen=True)
class ModelCard:
    """The content of a card; every field is optional.

    Attributes:
        model_name, finetuned_from, language, license, tags, tasks, dataset, dataset_tags, dataset_args: arguments of
            `Trainer.create_model_card`.
        model_tags: those that the model brings (`add_model_tags`).
        arguments: of the run, by name.
        log_history: as in the trainer state.
        library: the library that loads the model.
    """

    model_name: str = "model"
    finetuned_from: str | None = None
    language: Words = None
    license: str | None = None
    tags: Words = None
    tasks: Words = None
    dataset: Words = None
    dataset_tags: Words = None
    dataset_args: Words = None
    model_tags: Sequence[str] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    log_history: Sequence[Mapping[str, Any]] = ()
    library: str = "transformers"

    def __post_init__(self) -> None:
        """Raise ConfigError, naming each, for values that are neither a name nor a list of names."""
        given = {name: getattr(self, name) for name in LISTS}
        wrong = [name for name, value in given.items() if not (value is None or isinstance(value, Iterable))]
        if wrong:
            remedy = "Give a name, or a list of names."
            raise ConfigError("create_model_card", [Fault(name, f"is {given[name]!r}.", remedy) for name in wrong])

    def write(self, folder: str) -> bool:
        """Write `README.md` unless there is a handwritten one; return whether it was. Tags of an old card are kept."""
        path = io.join(folder, "README.md")
        old = io.store(path).read_bytes(path).decode("utf-8", "replace") if io.isfile(path) else ""
        if old and MARK not in old and _THEIR_MARK not in old:
            return False
        commit.write_text(path, self.text(_header_of(old).get("tags") or ()))
        return True

    def text(self, more_tags: Iterable[str] = ()) -> str:
        """Return the card as Markdown with its YAML header."""
        header = yaml.safe_dump(self._header(more_tags), sort_keys=False, allow_unicode=True)
        source = f"Fine-tuned from [{self.finetuned_from}](https://huggingface.co/{self.finetuned_from})"
        beginning = source if self.finetuned_from else "Trained"
        where = f" on {', '.join(_words(self.dataset))}" if self.dataset else ""
        blocks = [
            f"---\n{header}---",
            MARK,
            f"# {self.model_name}",
            f"{beginning}{where}.",
            _results(self.results()),
            _arguments(self.arguments),
            _table(self.log_history),
            "## Versions\n\n" + "\n".join(f"- {name} {version}" for name, version in versions().items()),
        ]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def results(self) -> dict[str, float]:
        """Return the scores of the last evaluation, without those of its speed."""
        empty: Mapping[str, Any] = {}
        last = next((row for row in reversed(self.log_history) if any(name.startswith("eval_") for name in row)), empty)
        return {
            name.removeprefix("eval_"): float(value)
            for name, value in last.items()
            if name.startswith("eval_") and isinstance(value, int | float) and not name.endswith(_SPEED)
        }

    def _header(self, more_tags: Iterable[str]) -> dict[str, Any]:
        tags = dict.fromkeys([*_words(self.tags), *self.model_tags, *more_tags, "generated_from_trainer"])
        header: dict[str, Any] = {
            "library_name": self.library,
            "language": _words(self.language),
            "license": self.license,
            "base_model": self.finetuned_from,
            "tags": list(tags),
            "datasets": _words(self.dataset_tags),
            "metrics": [name for name in self.results() if name != "loss"],
            "model-index": [{"name": self.model_name, "results": self._index()}],
        }
        return {name: value for name, value in header.items() if value}

    def _index(self) -> list[dict[str, Any]]:
        metrics = [{"name": name, "type": name, "value": value} for name, value in self.results().items()]
        tasks, tags, names, arguments = map(_words, (self.tasks, self.dataset_tags, self.dataset, self.dataset_args))
        if not (tasks and tags and metrics):
            return []  # the hub accepts only results of a known task on a known dataset
        dataset = {"name": (names or tags)[0], "type": tags[0], **({"args": arguments[0]} if arguments else {})}
        return [{"task": {"name": task, "type": task}, "dataset": dataset, "metrics": metrics} for task in tasks]


def origin_of(model: object) -> str | None:
    """Return the name on the hub of the model that this one was loaded from; None for a folder, and for a new one."""
    name = getattr(getattr(model, "config", None), "_name_or_path", None)
    return name if isinstance(name, str) and name and not io.isdir(name) else None


def _words(value: Words) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _header_of(card: str) -> Mapping[str, Any]:
    parts = card.split("---\n", 2)
    if len(parts) < 3 or parts[0]:
        return {}
    try:
        found = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _results(results: Mapping[str, float]) -> str:
    if not results:
        return ""
    return "## Results\n\n" + "\n".join(f"- {name}: {value:.4f}" for name, value in results.items())


def _arguments(arguments: Mapping[str, Any]) -> str:
    lines = [f"- {name}: {arguments[name]}" for name in SHOWN_ARGUMENTS if arguments.get(name) is not None]
    return "## Training arguments\n\n" + "\n".join(lines) if lines else ""


def _table(history: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with one row per evaluation, with the last training loss logged before it."""
    rows, loss = [], "-"
    for entry in history:
        loss = f"{entry['loss']:.4f}" if isinstance(entry.get("loss"), int | float) else loss
        scores = {name[5:]: value for name, value in entry.items() if name.startswith("eval_")}
        shown = {name: value for name, value in scores.items() if not name.endswith(_SPEED)}
        if shown:
            rows.append({"step": entry.get("step", ""), "training loss": loss, **shown})
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    return "## Training\n\n" + "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)
