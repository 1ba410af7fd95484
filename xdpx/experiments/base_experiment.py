"""What an experiment is: a class whose upper-case fields say everything; its methods build templates from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.experiments.fields import check_class, check_value, fields_of, is_field_name
from xdpx.experiments.meshes import FILL, MeshShape, filled


class BaseExperiment:
    """One experiment. Variants are subclasses that set fields; a field nobody declared is refused where it is written.

    Attributes:
        ICI_MESH_SHAPE: devices along [replica, data, mdl], a fourth in front for stages of a pipeline; one may be -1,
            all that are left. As it stands: plain data parallelism over whatever is there.
        DCN_MESH_SHAPE: how often that mesh is repeated along each axis over slices; None for one slice.
        MESH_AXIS_NAMES: None for the usual names.
        PLAN_DEVICES: what -1 stands for where no device is at hand, in plans.
        CALLBACKS: those of the Trainer that hear the events of a training: registered names, module:Class,
            {name: {argument: value}}, classes or objects.
        REPORT_TO: trackers of a training by their names, as `report_to` of the Trainer; functions `(values, step)`.
    """

    ICI_MESH_SHAPE: Sequence[int] = (FILL, 1, 1)
    DCN_MESH_SHAPE: Sequence[int] | None = None
    MESH_AXIS_NAMES: Sequence[str] | None = None
    PLAN_DEVICES: int = 1
    CALLBACKS: Sequence[Any] = ()
    REPORT_TO: Sequence[Any] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse undeclared fields and values of other types, at the definition of the class."""
        super().__init_subclass__(**kwargs)
        check_class(cls)

    def __init__(self, **values: Any) -> None:
        """Set some fields for this one experiment: `Mine(MODEL_DIMS=32)`."""
        for name, value in values.items():
            check_value(type(self).__qualname__, fields_of(type(self)), name, value)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a field that is not declared."""
        if is_field_name(name):
            check_value(type(self).__qualname__, fields_of(type(self)), name, value)
        super().__setattr__(name, value)

    # ---- what a subclass says

    def task(self) -> Any:
        """Return the template of the task: model, learner and how it is trained (`SingleTask.HParams`)."""
        raise NotImplementedError(f"{type(self).__qualname__}: define task(), which gives a SingleTask template.")

    def datasets(self) -> list[Any]:
        """Return the templates of the inputs, told apart by `is_training`; their names differ."""
        return []

    def decode_datasets(self) -> list[Any]:
        """Return the templates of the inputs to decode."""
        return []

    def validate(self) -> None:
        """Raise ConfigError when the fields do not go together."""
        self.mesh_shape()

    def input_specs(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return (shape, dtype) of every array of one batch over all processes, without touching data.

        As it stands the training input is built and asked; a subclass that knows its shapes says so itself.
        """
        training = next((one for one in self.datasets() if one.is_training), None)
        if training is None:
            raise NotImplementedError(f"{type(self).__qualname__}: define input_specs() or a training input.")
        data = training.Instantiate()
        try:
            return dict(data.spec())
        finally:
            data.close()

    def search_space(self) -> Any:
        """Return what a study searches, `{FIELD: {type: ..., values: [...]}}` or a `Space`; None without any."""
        return None

    def search_options(self) -> dict[str, Any]:
        """Return how a study searches: `tuner`, `schedule`, `direction`, `seed`, and their parameters, e.g. `eta`."""
        return {"tuner": "random", "schedule": "asha", "direction": "minimize"}

    def search_score(self, metrics: Mapping[str, float]) -> float:
        """Return how good a trial of a study is.

        Args:
            metrics: `<program>/<name>` of the last evaluation; unless overridden, log_pplx counts, else total_loss.
        """
        names = ((wanted, name) for wanted in ("log_pplx", "total_loss") for name in metrics)
        found = next((metrics[name] for wanted, name in names if name.rpartition("/")[2] == wanted), None)
        if found is None:
            there = ", ".join(metrics) or "nothing"
            raise ValueError(f"{type(self).__qualname__}: define search_score(); the metrics are {there}.")
        return found

    def counted_task(self) -> Any:
        """Return the template whose forward pass is the model's work: `task()`, unless that computes nothing."""
        return self.task()

    def rules(self) -> Any:
        """Return the rules from logical axes to mesh axes; None for those of transformers."""
        return None

    # ---- what follows from the fields

    def mesh_shape(self, num_devices: int | None = None) -> MeshShape:
        """Return the mesh, with -1 filled up for so many devices: when not said, those of `use_devices`.

        Raises:
            ConfigError: the numbers cannot be a mesh.
        """
        given = num_devices if num_devices is not None else self.__dict__.get("_devices", self.PLAN_DEVICES)
        return filled(type(self).__name__, self.ICI_MESH_SHAPE, self.DCN_MESH_SHAPE, self.MESH_AXIS_NAMES, given)

    def use_devices(self, count: int) -> None:
        """Say how many devices are at hand: what -1 in the mesh fills up to; `PLAN_DEVICES` until somebody says."""
        self._devices = count

    @property
    def num_devices(self) -> int | None:
        """How many devices the mesh takes; None when it takes all there are."""
        return None if FILL in self.ICI_MESH_SHAPE else self.mesh_shape().num_devices
