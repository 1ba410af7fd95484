"""Tasks: where examples come from, how they become token rows, how answers are judged; and mixtures of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, nearest
from xdpx.config.hparams import BaseHParams, Configurable, sub_config_field
from xdpx.datasets.inputs.codecs import Codec
from xdpx.datasets.inputs.sources import Columns, Source

Preprocess = Callable[[Columns], Columns]
"""Makes the columns of some examples from those of the source; called with many examples at once."""

Postprocess = Callable[..., Any]
"""Called with a text or token ids and `example=`, `is_target=`: gives what metric functions compare."""

Metrics = Mapping[str, Any]
MetricFunction = Callable[[list[Any], list[Any]], Metrics]
"""Called with (targets, predictions) or (targets, scores), in the order of the examples."""


class Task(Configurable):
    """One dataset, and what is asked of a model on it."""

    class HParams(BaseHParams):
        """What makes a task.

        Attributes:
            name: how it is called in logs.
            source: where examples come from: a template of a `Source`, or one per split.
            vocabulary: template of the codec for columns of texts, and for showing ids.
            features: feature -> column of the source (after `preprocess`); the same name where it is not given.
            add_eos: features that end with `eos_id`, put there after trimming.
            eos_id: the end of a text.
            chunk: lay all examples of the one feature behind one another and cut them into pieces of so many tokens.
            preprocess: makes columns from those of the source, many examples at once.
            postprocess: makes of a target, or of an answer, what metric functions compare.
            predict_metric_fns: each gives metrics from (targets, predictions).
            score_metric_fns: each gives metrics from (targets, scores).
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
        """Build the source of a split.

        Raises:
            ConfigError: there is none.
        """
        source = self.hparams.source
        if isinstance(source, dict):
            if split not in source:
                problem = f"has no split '{split}', only {', '.join(source) or 'none'}."
                raise ConfigError(THIS_RUN, [Fault(f"task {self.hparams.name}", problem, "Write another split_name.")])
            source = source[split]
        if source is None:
            raise ConfigError(
                THIS_RUN, [Fault(f"task {self.hparams.name}", "has no source.", "Give source=TextFiles.HParams(...).")]
            )
        built = source.Instantiate() if isinstance(source, BaseHParams) else source
        if not isinstance(built, Source):
            raise TypeError(f"Task {self.hparams.name}: the source is a {type(built).__name__}. Use a template of one.")
        return built

    def codec(self) -> Codec | None:
        """Build the codec; None where all columns are numbers and nobody asked for texts."""
        template = self.hparams.vocabulary
        return None if template is None else template.Instantiate()

    @property
    def has_predict_metrics(self) -> bool:
        """Whether decoded answers are judged."""
        return bool(self.hparams.predict_metric_fns)

    @property
    def has_score_metrics(self) -> bool:
        """Whether scores of the targets are judged."""
        return bool(self.hparams.score_metric_fns)


class Mixture(Configurable):
    """Several tasks mixed by weight."""

    class HParams(BaseHParams):
        """What makes a mixture.

        Attributes:
            name: how it is called in logs.
            tasks: template or registered name of each task.
            rates: how often each is drawn, in any unit; empty: in proportion to their sizes.
        """

        name: str = ""
        tasks: tuple[Any, ...] = ()
        rates: tuple[float, ...] = ()

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        if not hparams.tasks or (hparams.rates and len(hparams.rates) != len(hparams.tasks)):
            problem = f"has {len(hparams.tasks)} tasks and {len(hparams.rates)} rates."
            remedy = "Give at least one task, and a rate for each or none."
            raise ConfigError(THIS_RUN, [Fault(f"mixture {hparams.name}", problem, remedy)])
        self.tasks: list[Task] = [task_of(task) for task in hparams.tasks]


_REGISTERED: dict[str, Any] = {}


def register_task(task: Task | Mixture | BaseHParams) -> Any:
    """Let inputs find a task or a mixture by its name; a name that is taken is an error. Gives its template back."""
    template: Any = task if isinstance(task, BaseHParams) else task.hparams
    name = template.name
    if not name:
        raise ValueError("A task that is registered needs a name: Task.HParams(name='...').")
    if name in _REGISTERED and _REGISTERED[name].to_text() != template.to_text():
        raise ValueError(f"There is a task or mixture '{name}' already. Give this one another name.")
    _REGISTERED[name] = template.clone()
    return template


def find(name_or_template: object) -> Task | Mixture:
    """Build a task or mixture from its name or its template.

    Raises:
        ConfigError: nobody registered that name.
    """
    if isinstance(name_or_template, Task | Mixture):
        return name_or_template
    if isinstance(name_or_template, str):
        if name_or_template not in _REGISTERED:
            near = nearest(name_or_template, _REGISTERED)
            known = f"Did you mean '{near}'?" if near else f"Registered are: {', '.join(_REGISTERED) or 'none'}."
            problem = f"no '{name_or_template}' is registered."
            raise ConfigError(THIS_RUN, [Fault("mixture_name", problem, f"{known} register_task adds one.")])
        name_or_template = _REGISTERED[name_or_template]
    built = name_or_template.Instantiate() if isinstance(name_or_template, BaseHParams) else name_or_template
    if not isinstance(built, Task | Mixture):
        raise TypeError(f"mixture_or_task is a {type(built).__name__}. Give a template of a Task or a Mixture.")
    return built


def task_of(name_or_template: object) -> Task:
    """Build a task; a mixture is refused: mixtures do not nest."""
    found = find(name_or_template)
    if isinstance(found, Mixture):
        problem = "is a mixture, inside a mixture."
        remedy = "List its tasks with their rates instead."
        raise ConfigError(THIS_RUN, [Fault(found.hparams.name or "tasks", problem, remedy)])
    return found
