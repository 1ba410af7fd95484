"""The base class of experiments: upper-case fields are the settings, and methods build templates from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.inputs.base_input import with_hosts
from xdpx.experiments.fields import check_class, check_value, fields_of, is_field_name
from xdpx.experiments.meshes import MeshShape, filled
from xdpx.utils.axis_splits import FILL


class BaseExperiment:
    """One experiment. Variants are subclasses that override fields; undeclared fields raise when they are set.

    Attributes:
        ICI_MESH_SHAPE: devices along [replica, data, mdl], optionally preceded by pipeline stages; one size may be -1,
            which takes the remaining devices. The default is plain data parallelism over all devices.
        DCN_MESH_SHAPE: how often that mesh is repeated along each axis across slices; None for a single slice.
        MESH_AXIS_NAMES: None for the default names.
        PLAN_DEVICES: number of devices from which -1 is filled in plans, where no devices are available; rounded up to
            one that the other sizes divide.
        CALLBACKS: Trainer callbacks that receive the training events: registered names, module:Class,
            {name: {argument: value}}, classes or objects.
        REPORT_TO: trackers of a training, by name as in the Trainer's `report_to`, or functions `(values, step)`.
    """

    ICI_MESH_SHAPE: Sequence[int] = (FILL, 1, 1)
    DCN_MESH_SHAPE: Sequence[int] | None = None
    MESH_AXIS_NAMES: Sequence[str] | None = None
    PLAN_DEVICES: int = 1
    CALLBACKS: Sequence[Any] = ()
    REPORT_TO: Sequence[Any] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Reject undeclared fields and values of the wrong type when the class is defined."""
        super().__init_subclass__(**kwargs)
        check_class(cls)

    def __init__(self, **values: Any) -> None:
        """Create an experiment, overriding some fields: `Mine(MODEL_DIMS=32)`."""
        for name, value in values.items():
            check_value(type(self).__qualname__, fields_of(type(self)), name, value)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Reject undeclared fields."""
        if is_field_name(name):
            check_value(type(self).__qualname__, fields_of(type(self)), name, value)
        super().__setattr__(name, value)

    # ---- what a subclass defines

    def task(self) -> Any:
        """Return the template of the task: model, learner and training settings (`SingleTask.HParams`)."""
        raise NotImplementedError(f"{type(self).__qualname__}: define task(), which returns a SingleTask template.")

    def datasets(self) -> list[Any]:
        """Return the templates of the inputs: for training if `is_training`, else for evaluation; names are unique."""
        return []

    def decode_datasets(self) -> list[Any]:
        """Return the templates of the inputs to decode."""
        return []

    def validate(self) -> None:
        """Raise ConfigError if fields are inconsistent."""
        self.mesh_shape()

    def input_specs(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return (shape, dtype) of each array of a global batch, without reading data.

        The default builds the training input and reads its spec; a subclass that knows its shapes can override this.
        """
        return self.specs_of_host(0, 1)

    def specs_of_host(self, index: int, count: int) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return (shape, dtype) of each array of a batch of one host, from its training input.

        Raises:
            ConfigError: there is none.
        """
        training = next((one for one in self.datasets() if one.is_training), None)
        if training is None:
            problem = "has no training input, and input_specs() is not defined, so the shapes of a batch are unknown."
            remedy = "Give one with is_training=True, or define input_specs()."
            raise ConfigError(type(self).__qualname__, [Fault("datasets", problem, remedy)])
        data = with_hosts(training, index, count).Instantiate()
        try:
            return dict(data.spec())
        finally:
            data.close()

    def search_space(self) -> Any:
        """Return the search space of a study, `{FIELD: {type: ..., values: [...]}}` or a `Space`; None without one."""
        return None

    def search_options(self) -> dict[str, Any]:
        """Return the options of a study: `tuner`, `schedule`, `direction`, `seed`, and their options, e.g. `eta`."""
        return {"tuner": "random", "schedule": "asha", "direction": "minimize"}

    def search_score(self, metrics: Mapping[str, float]) -> float:
        """Return the score of a trial in a study.

        Args:
            metrics: `<program>/<name>` -> value, of the last evaluation. By default the score is log_pplx, or else
                total_loss.
        """
        names = ((wanted, name) for wanted in ("log_pplx", "total_loss") for name in metrics)
        found = next((metrics[name] for wanted, name in names if name.rpartition("/")[2] == wanted), None)
        if found is None:
            listed = ", ".join(metrics) or "nothing"
            problem = f"finds neither log_pplx nor total_loss; the metrics are {listed}."
            raise ConfigError(type(self).__qualname__, [Fault("search_score", problem, "Define search_score().")])
        return found

    def counted_task(self) -> Any:
        """Return the template whose forward pass is the model's work: `task()`, unless that does redundant work."""
        return self.task()

    def rules(self) -> Any:
        """Return the rules from logical axes to mesh axes; None for the default rules of transformers."""
        return None

    # ---- derived from the fields

    def mesh_shape(self, num_devices: int | None = None) -> MeshShape:
        """Return the mesh, with -1 filled from `num_devices` (default: the number passed to `use_devices`).

        While the number is unknown it is `PLAN_DEVICES`, or the next one that the other sizes divide.

        Raises:
            ConfigError: the numbers do not form a mesh.
        """
        given = num_devices if num_devices is not None else self.__dict__.get("_devices")
        if given is None:
            each = abs(math.prod((*self.ICI_MESH_SHAPE, *(self.DCN_MESH_SHAPE or ())))) or 1  # -1 counts as 1
            given = -(-self.PLAN_DEVICES // each) * each
        return filled(type(self).__name__, self.ICI_MESH_SHAPE, self.DCN_MESH_SHAPE, self.MESH_AXIS_NAMES, given)

    def use_devices(self, count: int) -> None:
        """Set the number of available devices, from which -1 in the mesh is filled; the default is `PLAN_DEVICES`."""
        self._devices = count

    @property
    def num_devices(self) -> int | None:
        """The number of devices of the mesh; None if it uses all available ones."""
        return None if FILL in self.ICI_MESH_SHAPE else self.mesh_shape().num_devices
