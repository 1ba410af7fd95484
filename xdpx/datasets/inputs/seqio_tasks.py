"""SeqIO-like tasks: a source of examples, their preprocessing and encoding, and metrics; and mixtures of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from xdpx.config.faults import did_you_mean, refusal
from xdpx.config.hparams import BaseHParams, Configurable, sub_config_field
from xdpx.datasets.inputs.codecs import Codec
from xdpx.datasets.inputs.sources import Columns, Source

Preprocess = Callable[[Columns], Columns]
"""Converts the columns of many examples of the source at once."""

Postprocess = Callable[..., Any]
"""Called with a text or token ids and `example=`, `is_target=`; returns the value for metric functions."""

Metrics = Mapping[str, Any]
MetricFunction = Callable[[list[Any], list[Any]], Metrics]
"""Called with (targets, predictions) or (targets, scores), in the order of the examples."""


class Task(Configurable):
    """A dataset with its preprocessing and its metrics."""

    class HParams(BaseHParams):
        """Fields of a task.

        Attributes:
            name: in logs.
            source: of the examples: a template of a `Source`, or one per split.
            vocabulary: template of the codec for columns of texts, and for displaying ids.
            features: feature -> column of the source (after `preprocess`); by default the column of the same name.
            add_eos: features to which `eos_id` is appended after trimming.
            eos_id: id of the end of a text.
            chunk: concatenate all examples of the (only) feature, and split them into pieces of this many tokens.
            preprocess: converts the columns of the source, many examples at once.
            postprocess: converts a target or a prediction to the value for metric functions.
            predict_metric_fns: functions of (targets, predictions) that return metrics.
            score_metric_fns: functions of (targets, scores) that return metrics.
        """

        name: str = ""
        source: Source.HParams | dict[str, Any] | None = sub_config_field(None)
        vocabulary: Codec.HParams | None = sub_config_field(None)
        features: dict[str, str] = field(default_factory=dict)
        add_eos: tuple[str, ...] = ()
        eos_id: int = 1
        chunk: int | None = None
        preprocess: Callable[..., Any] | None = None
        postprocess: Callable[..., Any] | None = None
        predict_metric_fns: tuple[Callable[..., Any], ...] = ()
        score_metric_fns: tuple[Callable[..., Any], ...] = ()

    def source_of(self, split: str) -> Source:
        """Return the source of a split.

        Raises:
            ConfigError: there is no such split, or no source.
            TypeError: it is not a source.
        """
        source = self.hparams.source
        if isinstance(source, dict):
            if split not in source:
                problem = f"has no split '{split}', only {', '.join(source) or 'none'}."
                raise refusal(f"task {self.hparams.name}", problem, "Write another split_name.")
            source = source[split]
        if source is None:
            raise refusal(f"task {self.hparams.name}", "has no source.", "Give source=TextFiles.HParams(...).")
        built = source.Instantiate() if isinstance(source, BaseHParams) else source
        if not isinstance(built, Source):
            problem = f"is a {type(built).__name__}."
            raise refusal(f"Task {self.hparams.name}.source", problem, "Use a template of a source.")
        return built

    def codec(self) -> Codec | None:
        """Return the codec; None without a vocabulary."""
        template = self.hparams.vocabulary
        return None if template is None else template.Instantiate()

    @property
    def has_predict_metrics(self) -> bool:
        """Whether it has metrics for predictions."""
        return bool(self.hparams.predict_metric_fns)

    @property
    def has_score_metrics(self) -> bool:
        """Whether it has metrics for scores of the targets."""
        return bool(self.hparams.score_metric_fns)


class Mixture(Configurable):
    """Several tasks mixed by weight."""

    class HParams(BaseHParams):
        """Fields of a mixture.

        Attributes:
            name: in logs.
            tasks: template or registered name of each task.
            rates: frequencies of the tasks, in any unit; empty: in proportion to their sizes.
        """

        name: str = ""
        tasks: tuple[Any, ...] = ()
        rates: tuple[float, ...] = ()

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        if not hparams.tasks or (hparams.rates and len(hparams.rates) != len(hparams.tasks)):
            problem = f"has {len(hparams.tasks)} tasks and {len(hparams.rates)} rates."
            remedy = "Give at least one task, and a rate for each or none."
            raise refusal(f"mixture {hparams.name}", problem, remedy)
        self.tasks: list[Task] = [task_of(task) for task in hparams.tasks]


_REGISTERED: dict[str, Any] = {}


def register_task(task: Task | Mixture | BaseHParams) -> Any:
    """Register a task or mixture by its name, so that inputs can use it, and return its template.

    Raises:
        ValueError: it has no name, or another one with this name is registered.
    """
    template: Any = task if isinstance(task, BaseHParams) else task.hparams
    name = template.name
    if not name:
        raise ValueError("A task that is registered needs a name: Task.HParams(name='...').")
    if name in _REGISTERED and _REGISTERED[name].to_text() != template.to_text():
        raise ValueError(f"There is a task or mixture '{name}' already. Give this one another name.")
    _REGISTERED[name] = template.clone()
    return template


def find(name_or_template: object) -> Task | Mixture:
    """Return the task or mixture with a registered name, or built from a template.

    Raises:
        ConfigError: the name is not registered.
        TypeError: it is neither a task nor a mixture.
    """
    if isinstance(name_or_template, Task | Mixture):
        return name_or_template
    if isinstance(name_or_template, str):
        if name_or_template not in _REGISTERED:
            known = did_you_mean(name_or_template, _REGISTERED, f"Registered are: {', '.join(_REGISTERED) or 'none'}.")
            problem = f"no '{name_or_template}' is registered."
            raise refusal("mixture_name", problem, f"{known} register_task adds one.")
        name_or_template = _REGISTERED[name_or_template]
    built = name_or_template.Instantiate() if isinstance(name_or_template, BaseHParams) else name_or_template
    if not isinstance(built, Task | Mixture):
        problem = f"is a {type(built).__name__}."
        raise refusal("mixture_or_task", problem, "Give a template of a Task or a Mixture.")
    return built


def task_of(name_or_template: object) -> Task:
    """Return a task by name or template. Raises ConfigError for a mixture, because mixtures do not nest."""
    found = find(name_or_template)
    if isinstance(found, Mixture):
        problem = "is a mixture, inside a mixture."
        remedy = "List its tasks with their rates instead."
        raise refusal(found.hparams.name or "tasks", problem, remedy)
    return found
