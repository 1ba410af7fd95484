"""Build the parts of a run from an experiment and options: processes, mesh, task, engine, inputs. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh

from xdpx.checkpoints.folders import Ranks
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hparams import BaseHParams, build_a
from xdpx.datasets.inputs.ahead_of_time import build_input
from xdpx.datasets.inputs.base_input import BaseInput, name_of, with_hosts
from xdpx.engines.spmd import world
from xdpx.engines.spmd.engine import SpmdEngine
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import infeed
from xdpx.engines.spmd.peaks import Efficiency, device_named
from xdpx.engines.spmd.planning import rows_and_tokens
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.planning import PlannedTask, efficiency_of, engine_options, rules_of, specs_of, structs_of
from xdpx.experiments.running.options import SOURCE, RunOptions
from xdpx.models.spmd.base_layer import layers_noted
from xdpx.models.spmd.base_model import BaseModel
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.utils.nested_map import NestedMap

TEMPLATE = "Return its template, {}.HParams(...), which is built in each process."
"""What to return instead of the object itself."""


@dataclass(frozen=True)
class Parts:
    """The components of a run.

    Attributes:
        mesh: the devices.
        rules: logical axis -> mesh axes that shard it.
        spec: a global batch of `ShapeDtypeStruct`, with maps inside if a batch has them, such as `src` and `tgt`.
        ranks: communication of the processes while saving.
        host: (index, count) of the inputs that this process reads.
    """

    experiment: BaseExperiment
    options: RunOptions
    task: SingleTask
    mesh: Mesh
    rules: Any
    spec: NestedMap
    ranks: Ranks
    host: tuple[int, int]

    @property
    def folder(self) -> str:
        """The folder of the job."""
        return self.options.job_log_dir

    @property
    def train(self) -> Any:
        """The training settings: `TrainHParams`."""
        return self.task.hparams.train

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files that are written only once."""
        return self.ranks.rank == 0

    @property
    def engine(self) -> SpmdEngine:
        """The engine for training and evaluation."""
        return self._planned[0]

    @cached_property
    def num_ids(self) -> Mapping[str, int]:
        """How many ids each integer array of a batch may hold; see `BaseModel.num_ids`."""
        return self.task.model.num_ids() if isinstance(self.task.model, BaseModel) else {}

    @property
    def rows(self) -> int:
        """Rows of an update over all processes: those of a global batch, times the batches of an update."""
        return rows_and_tokens(self.spec)[0] * int(self.train.accumulate_batches)

    @property
    def layers(self) -> Mapping[str, str]:
        """Path of each layer -> its fields as built."""
        return self._planned[1]

    @cached_property
    def _planned(self) -> tuple[SpmdEngine, Mapping[str, str]]:
        # The engine traces the model for its plan; a second trace for the layers would take seconds for a large model.
        with layers_noted() as layers:
            return self._engine(averaged=self.train.eval_use_ema_states), layers

    @cached_property
    def decoding_engine(self) -> SpmdEngine:
        """The engine for decoding; the same one, unless only one of the two uses averaged weights."""
        if self.train.decode_use_ema_states == self.train.eval_use_ema_states:
            return self.engine
        return self._engine(averaged=self.train.decode_use_ema_states)

    def _engine(self, *, averaged: bool) -> SpmdEngine:
        options = engine_options(self.train, averaged=averaged)
        options = replace(options, sizes=self.options.inspect_gradient and self.options.trains)
        task: Any = self.task  # its named tuples are what the engine's protocols describe
        identity = self.task.hparams.to_text()
        return SpmdEngine(task, mesh=self.mesh, rules=self.rules, options=options, spec=self.spec, identity=identity)

    def efficiency(self) -> Efficiency:
        """Return the converter from seconds per update to MFU and rates."""
        device = None if self.options.device is None else device_named(self.options.device)
        planned = PlannedTask(self.task.hparams, self.task, self.engine.plan)
        return efficiency_of(self.experiment, self.mesh, spec=self.spec, device=device, planned=planned)

    def inputs(self, templates: Any) -> list[BaseInput]:
        """Build inputs for this process; the caller closes them.

        Raises:
            ConfigError: the tokenizer of an input has more tokens than the model.
        """
        built = [build_input(with_hosts(template, *self.host)) for template in templates]
        for data in built:
            self._refuse_more_tokens(data)
        return built

    def _refuse_more_tokens(self, data: BaseInput) -> None:
        """Reject tokenizers with ids outside of the embedding table: JAX would silently use another row."""
        codec = getattr(data, "codec", None)
        rows = min((count for name, count in self.num_ids.items() if name.rpartition(".")[2] == "ids"), default=0)
        if codec is not None and rows and codec.vocab_size > rows:
            problem = f"is {rows} in the model; the tokenizer of input '{data.name}' has {codec.vocab_size} tokens."
            remedy = f"Make it {codec.vocab_size} or more, e.g. --set VOCAB_SIZE={-(-codec.vocab_size // 128) * 128}."
            raise fault_of(self.experiment, "vocab_size", problem, remedy)

    def training_input(self) -> BaseInput:
        """Build the training input.

        Raises:
            ConfigError: there is not exactly one.
        """
        return self.inputs([training_template(self.experiment)])[0]

    def eval_inputs(self) -> list[BaseInput]:
        """Build the evaluation inputs."""
        return self.inputs([template for template in self.experiment.datasets() if not template.is_training])

    def decode_inputs(self) -> list[BaseInput]:
        """Build the inputs that are decoded."""
        return self.inputs(self.experiment.decode_datasets())


def build_parts(experiment: BaseExperiment, options: RunOptions) -> Parts:
    """Join the other processes, arrange the devices, and build the task. No array is allocated.

    Raises:
        ConfigError: the request is invalid.
    """
    joined = world.start(options.server_addr, options.num_hosts, options.host_idx)
    _refuse_to_be_alone(options, joined)
    devices = jax.devices()
    experiment.use_devices(len(devices))
    experiment.validate()
    _refuse_inputs(experiment)
    task = experiment.task()
    if isinstance(task, SingleTask):
        raise fault_of(experiment, "task", "gave a task that is built already.", TEMPLATE.format("SingleTask"))
    built = build_a(SingleTask, task, f"{type(experiment).__name__}.task", TEMPLATE.format("SingleTask"))
    shape = experiment.mesh_shape(len(devices))
    if world.process_count() == 1:
        devices = devices[: shape.num_devices]  # a mesh may be smaller than the machine
    mesh = make_mesh(shape.ici, shape.dcn, shape.names, devices)
    rules = rules_of(experiment)
    host = infeed(rules, mesh)
    return Parts(
        experiment, options, built, mesh, rules, _specs(experiment, host),
        ranks_for("save", options), host,
    )  # fmt: skip


def _specs(experiment: BaseExperiment, host: tuple[int, int]) -> NestedMap:
    """Return the shapes of a global batch; where the experiment leaves them to its input, those are of one process."""
    if type(experiment).input_specs is not BaseExperiment.input_specs:
        return specs_of(experiment)
    of_host = structs_of(experiment.specs_of_host(*host))
    return of_host.Transform(lambda leaf: jax.ShapeDtypeStruct(of_all(leaf.shape, host[1]), leaf.dtype))


def of_all(shape: tuple[int, ...], inputs: int) -> tuple[int, ...]:
    """Return the shape over all inputs of an array of one of them; single numbers have no rows."""
    return (shape[0] * inputs, *shape[1:]) if shape else ()


def _refuse_to_be_alone(options: RunOptions, joined: bool) -> None:
    """Reject a process that found no others: each would train a job of its own into the same folder."""
    if options.multiprocess_gpu and not joined and options.num_hosts != 1:
        problem = "is set, but this process found no others."
        remedy = "Give server_addr (host:port), num_hosts and host_idx, or leave it out if one process trains."
        raise ConfigError(SOURCE, [Fault("multiprocess_gpu", problem, remedy)])


def ranks_for(part: str, options: RunOptions) -> Ranks:
    """Return the communication of the processes for one part of a run; concurrent parts need one each."""
    patience = options.async_timeout_secs
    talk = world.Talk(part, seconds=world.PATIENCE_SECONDS if patience is None else patience)
    return Ranks(
        world.process_index(), world.process_count(), world.local_index(), talk.barrier, talk.broadcast, talk.gather
    )


def _refuse_inputs(experiment: BaseExperiment) -> None:
    """Reject inputs that are not templates, and several of one name."""
    defined: dict[str, Any] = {"datasets": experiment.datasets(), "decode_datasets": experiment.decode_datasets()}
    for kind, templates in defined.items():
        if isinstance(templates, BaseHParams) or not isinstance(templates, Iterable):
            raise fault_of(experiment, kind, f"gave {templates!r:.60}, not a list.", "Return a list of templates.")
        listed = list(templates)
        built = next((each for each in listed if not isinstance(each, BaseHParams)), None)
        if built is not None:
            kind_of = built.__name__ if isinstance(built, type) else type(built).__name__
            raise fault_of(experiment, kind, f"{built!r:.60} is no template.", TEMPLATE.format(kind_of))
        names = [name_of(template) for template in listed]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            remedy = "Give each input a name of its own: files and summaries are named after it."
            raise fault_of(experiment, kind, f"two inputs are named '{twice[0]}'.", remedy)


def training_template(experiment: BaseExperiment) -> Any:
    """Return the template of the training input. Raises ConfigError if there is not exactly one."""
    found = [template for template in experiment.datasets() if template.is_training]
    if len(found) != 1:
        names = ", ".join(name_of(template) for template in found) or "none"
        remedy = "Give one with is_training=True; join several by MultiInput."
        raise fault_of(experiment, "datasets", f"{len(found)} inputs are for training ({names}).", remedy)
    return found[0]


def fault_of(experiment: BaseExperiment, key: str, problem: str, remedy: str) -> ConfigError:
    """Return the error for one field of an experiment."""
    return ConfigError(type(experiment).__name__, [Fault(key, problem, remedy)])
