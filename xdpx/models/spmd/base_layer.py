"""Base of all layers and models: a flax module built from a template, whose weights have named axes."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import meta
from jax.typing import DTypeLike

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, Configurable, build, from_fiddle
from xdpx.config.hparams_types import made_by
from xdpx.logger import log
from xdpx.models.spmd.initialisers import WeightInit, draw
from xdpx.models.spmd.layer_fields import checking_fields, declare_nested_fields
from xdpx.models.spmd.sharding import Axes, axes_from_mapping
from xdpx.utils.nested_map import NestedMap

PARAMS, NON_TRAINABLE, SUMMARIES, AUX_LOSS = "params", "non_trainable", "summaries", "aux_loss"
DECODER_CACHE = "decoder_cache"
RANDOM = "random"


def _sorted_items(tree: NestedMap) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tree[name]) for name in sorted(tree))


def _register_nested_map() -> None:
    """Register NestedMap as a pytree; keys are sorted, as in dicts."""
    jax.tree_util.register_pytree_with_keys(
        NestedMap,
        lambda tree: ([(jax.tree_util.DictKey(n), v) for n, v in _sorted_items(tree)], tuple(sorted(tree))),
        lambda names, leaves: NestedMap(zip(names, leaves, strict=True)),
        lambda tree: ([v for _, v in _sorted_items(tree)], tuple(sorted(tree))),
    )


_register_nested_map()

_evaluating: contextvars.ContextVar[bool] = contextvars.ContextVar("evaluating", default=False)


@contextlib.contextmanager
def eval_context(evaluating: bool = True) -> Generator[None]:
    """Trace the code inside for evaluation (no dropout, no noise) or, with False, for training."""
    token = _evaluating.set(evaluating)
    try:
        yield
    finally:
        _evaluating.reset(token)


@dataclass(frozen=True)
class Weight:
    """One weight: its shape, its initialisation, and the logical axis of each dimension.

    Attributes:
        shape: of the weight.
        init: initialisation; None: the layer's `params_init`.
        axes: one logical axis (sharding.py) per dimension; None: no dimension is split.
        dtype: None: the layer's `dtype`.
        trainable: False puts it into the collection "non_trainable".
        keep_dtype: True: `theta` returns it as stored, not in `fprop_dtype`.
        num_in: number of dimensions, after the batch ones, that count for fan-in.
        num_batch: number of leading dimensions that index independent weights.
        tensor_split_dims_mapping: as in Pax, instead of `axes`: the mesh axes that split each dimension, by name or
            number, or several; -1 or None for none.

    Raises:
        ConfigError: both `axes` and `tensor_split_dims_mapping` are given.
    """

    shape: Sequence[int]
    init: WeightInit | None = None
    axes: Axes | None = None
    dtype: Any = None
    trainable: bool = True
    keep_dtype: bool = False
    num_in: int = 1
    num_batch: int = 0
    tensor_split_dims_mapping: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.tensor_split_dims_mapping is None:
            return
        if self.axes is not None:
            raise refusal(
                "Weight",
                f"axes {self.axes} and tensor_split_dims_mapping {self.tensor_split_dims_mapping} both specify how it "
                "is split.",
                "Give one of them.",
            )
        object.__setattr__(self, "axes", axes_from_mapping(self.tensor_split_dims_mapping))


def WeightHParams(
    shape: Sequence[int],
    init: WeightInit | None = None,
    dtype: DTypeLike | None = None,
    collections: Sequence[str] | None = None,
    mesh_shape: Sequence[int] | None = None,
    tensor_split_dims_mapping: Sequence[Any] | None = None,
) -> Weight:
    """Return a `Weight` from the arguments used by layers of Pax.

    Args:
        shape: see Weight.
        init: see Weight.
        dtype: see Weight.
        collections: "non_trainable" or nothing; others are not supported.
        mesh_shape: ignored: the experiment defines the mesh.
        tensor_split_dims_mapping: see Weight.

    Raises:
        ConfigError: a collection is not supported.
    """
    del mesh_shape
    unknown = [name for name in collections or () if name != NON_TRAINABLE]
    if unknown:
        remedy = "Learners exclude weights by pattern (bprop_variable_exclusion); optimizers decay all that they train."
        raise refusal("WeightHParams.collections", f"'{unknown[0]}' has no meaning here.", remedy)
    trainable = NON_TRAINABLE not in (collections or ())
    split = tensor_split_dims_mapping
    return Weight(shape, init, dtype=dtype, trainable=trainable, tensor_split_dims_mapping=split)


class _Theta:
    """The weights of one layer by name, in the layer's `fprop_dtype`."""

    def __init__(self, layer: BaseLayer) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> jax.Array:
        return self._layer.weight(name)

    __getitem__ = __getattr__


class BaseLayer(nn.Module, Configurable, kw_only=True):
    """A flax module with a template. `setup` declares weights and children, `__call__` computes.

    Fields may be declared in the class body or in a nested `class HParams(BaseLayer.HParams)`; both become fields of
    the module and of `Cls.HParams`.

    Attributes:
        dtype: of the weights.
        fprop_dtype: of the computation; None: `dtype`. Children inherit both, and `params_init`, unless they set them.
        params_init: initialisation of weights without their own; None: Xavier.
        weight_split_dims_mapping: mesh axes instead of logical ones: a list for the first weight of the layer, or a
            dict by weight name.
        shared_weight_layer_id: layers of one model with the same id are one layer with shared weights.
    """

    dtype: Any = jnp.float32
    fprop_dtype: Any = None
    params_init: WeightInit | None = None
    weight_split_dims_mapping: Any = None
    shared_weight_layer_id: str = ""

    class HParams(BaseHParams):
        """The fields of a layer; `name` is that of the module, for the root layer."""

        name: str = ""

    _keeps_field_attributes: ClassVar[bool] = True
    _inherited: ClassVar[tuple[str, ...]] = ("dtype", "fprop_dtype", "params_init")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        declare_nested_fields(cls)
        super().__init_subclass__(kw_only=True, **kwargs)
        cls.__init__ = checking_fields(cls.__init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        for field in _fields_of(type(self)):
            value = getattr(self, field.name)
            if _holds_layer(value):
                object.__setattr__(self, field.name, _held(value))
        super().__post_init__()

    @classmethod
    def from_template(cls, hparams: BaseHParams) -> Any:
        """Return an unbound layer from a frozen template."""
        values = dict(hparams.fields_and_values())
        return cls(**{**values, "name": values["name"] or None})

    @property
    def hparams(self) -> Any:
        """The frozen template of this layer."""
        values = {field.name: _thawed(getattr(self, field.name)) for field in _fields_of(type(self))}
        template = self.HParams(**values, name=self.name or "")
        return template.mark_given(template.not_default()).freeze()

    @property
    def compute_dtype(self) -> Any:
        """The dtype of the computation."""
        return self.dtype if self.fprop_dtype is None else self.fprop_dtype

    @property
    def theta(self) -> _Theta:
        """The weights by name, cast to the dtype of the computation."""
        return _Theta(self)

    @property
    def do_eval(self) -> bool:
        """Whether the program being traced is for evaluation: no dropout, no noise."""
        return _evaluating.get()

    def create_variable(self, name: str, weight: Weight) -> None:
        """Declare one weight, in `setup`; in `__call__` it is `self.theta.<name>`."""
        self._refuse_taken(name)
        axes = self._axes_of(name, weight)
        if 0 in weight.shape:
            where = "/".join((*self.path, name))
            log.warning(f"{where}: has no elements, its shape is {list(weight.shape)}. Was a size not set?", once=True)
        dtype = self.dtype if weight.dtype is None else weight.dtype
        drawn = draw(
            weight.init or self.params_init or WeightInit.Xavier(), num_in=weight.num_in, num_batch=weight.num_batch
        )
        boxed = nn.with_logical_partitioning(lambda key: drawn(key, weight.shape, dtype), axes)  # type: ignore[arg-type]
        if weight.trainable:
            self.param(name, boxed, unbox=False)
        else:
            self.variable(NON_TRAINABLE, name, lambda: boxed(self.make_rng(PARAMS)), unbox=False)
        self.__dict__.setdefault("_declared_weights", {})[name] = weight

    def _axes_of(self, name: str, weight: Weight) -> Axes:
        mapping = self.weight_split_dims_mapping
        if isinstance(mapping, Mapping):
            mapping = mapping.get(name)
        elif self.__dict__.get("_declared_weights"):
            mapping = None
        axes = weight.axes if mapping is None else axes_from_mapping(mapping)
        axes = (None,) * len(weight.shape) if axes is None else axes
        if len(axes) != len(weight.shape):
            problem = f"has shape {tuple(weight.shape)}, but {len(axes)} axes {axes}."
            remedy = "Give one entry per dimension, None where it is not split."
            raise refusal(f"{type(self).__name__}.{name}", problem, remedy)
        return axes

    def weight(self, name: str) -> jax.Array:
        """Return a declared weight or state in the dtype of the computation."""
        declared = self.__dict__.get("_declared_weights", {}).get(name)
        if declared is None:
            known = ", ".join(self.__dict__.get("_declared_weights", {})) or "none"
            raise AttributeError(f"{type(self).__name__} has declared no weight '{name}'. Declared: {known}.")
        value = self.get_var(name) if not declared.trainable else opened(self.get_variable(PARAMS, name))
        floating = jnp.issubdtype(value.dtype, jnp.floating)
        cast: jax.Array = value if declared.keep_dtype or not floating else value.astype(self.compute_dtype)
        return cast

    def stored_weights(self) -> dict[str, tuple[jax.Array, Axes]]:
        """Return the trainable weights as stored, with the axes of their dimensions."""
        declared = self.__dict__.get("_declared_weights", {}).items()
        return {
            name: (opened(self.get_variable(PARAMS, name)), self._axes_of(name, weight))
            for name, weight in declared
            if weight.trainable
        }

    def get_var(self, name: str) -> jax.Array:
        """Return a non-trainable variable as stored."""
        value: jax.Array = opened(self.get_variable(NON_TRAINABLE, name))
        return value

    def update_var(self, name: str, value: jax.Array) -> None:
        """Replace a non-trainable variable, if the collection is mutable; not in `init`, whose batch is no data.

        Raises:
            ConfigError: there is no such variable, or its shape or kind of number is another.
        """
        if self.is_mutable_collection(NON_TRAINABLE) and not self.is_initializing():
            boxed: Any = self.get_variable(NON_TRAINABLE, name)
            value = self._like_stored(name, None if boxed is None else opened(boxed), value)
            new = boxed.replace_boxed(value) if isinstance(boxed, meta.AxisMetadata) else value
            self.put_variable(NON_TRAINABLE, name, new)

    def _like_stored(self, name: str, stored: jax.Array | None, value: Any) -> jax.Array:
        """Return a new value in the type of the stored one, which would change from update to update otherwise."""
        where = f"{type(self).__name__}.update_var('{name}')"
        if stored is None:
            declared = self.__dict__.get("_declared_weights", {})
            known = ", ".join(each for each, weight in declared.items() if not weight.trainable) or "none"
            raise refusal(where, f"has no such variable; those without training are: {known}.", "Declare it in setup.")
        new: jax.Array = jnp.asarray(value)
        floats = jnp.issubdtype(stored.dtype, jnp.floating)
        if new.shape != stored.shape or (not floats and jnp.issubdtype(new.dtype, jnp.inexact)):
            problem = f"gets {new.dtype}{list(new.shape)}, but is {stored.dtype}{list(stored.shape)}."
            raise refusal(where, problem, "Give a value of its shape, or declare another one in setup.")
        return new if new.dtype == stored.dtype else new.astype(stored.dtype)

    def create_child(self, name: str, template: object, **overrides: Any) -> None:
        """Build a child in `setup` and assign it to `self.<name>`; fields that it does not set are inherited.

        Args:
            name: the attribute, and the component in the weights' paths.
            template: HParams, a Fiddle config, a built layer, or None for no child.
            overrides: fields of the template to set.

        Raises:
            ConfigError: the name is already a field, a weight or another child.
        """
        self._refuse_taken(name)
        self._attach(name, None if template is None else self._child(template, overrides))

    def create_children(self, name: str, templates: Sequence[Any], **overrides: Any) -> None:
        """Build a list of children: `self.<name>` is a tuple, the weights' paths have `<name>_0`, `<name>_1`, ..."""
        self._refuse_taken(name)
        for index, template in enumerate(templates):
            self._attach(f"{name}_{index}", self._child(template, overrides))
        children = tuple(getattr(self, f"{name}_{index}") for index in range(len(templates)))
        object.__setattr__(self, name, children)

    def _attach(self, name: str, child: BaseLayer | None) -> None:
        # flax would move a shared layer below this one, but its weights are below the root.
        shared = child is not None and "_sharing_parent" in child.__dict__
        (object.__setattr__ if shared else setattr)(self, name, child)

    def _child(self, template: object, overrides: dict[str, Any]) -> Any:
        child = as_template(template).set(**overrides)
        for field in self._inherited:
            if field in child._field_table and field not in child.given():
                setattr(child, field, getattr(self, field))
        if "name" in child._field_table:
            child.name = ""
        return self._shared(child) if getattr(child, "shared_weight_layer_id", "") else build(child)

    def _shared(self, child: BaseHParams) -> Any:
        """Return the single layer of its shared id below the root of this model."""
        shared_id = child.shared_weight_layer_id
        root = sharing_root(self)
        layers: dict[str, Any] = root.__dict__.setdefault("_shared_layers", {})
        if shared_id not in layers:
            scope = root.scope.push(shared_id, reuse=True)
            values = {name: value for name, value in child.fields_and_values() if name != "name"}
            owner: Any = child._owner
            layer = owner(**values, parent=scope)
            layer.__dict__["_sharing_parent"] = root
            layers[shared_id] = (child.clone().freeze(), layer)
        template, layer = layers[shared_id]
        if template != child:
            problem = f"'{shared_id}' refers to two different layers:\n{template.diff(child)}\n"
            raise refusal("shared_weight_layer_id", problem, "Give them the same fields, or two ids.")
        return layer

    def _refuse_taken(self, name: str) -> None:
        is_field = any(field.name == name for field in _fields_of(type(self)))
        if is_field or name in self._state.children or hasattr(type(self), name):
            problem = f"'{name}' is already a field, a method, a weight or a child."
            raise refusal(type(self).__name__, problem, "Use another name.")

    def add_summary(self, name: str, value: jax.Array) -> None:
        """Record a value of this step, if the caller collects "summaries"."""
        self.sow(SUMMARIES, name, value, reduce_fn=lambda _, new: new, init_fn=lambda: None)

    def add_aux_loss(self, name: str, value: jax.Array, weight: float | jax.Array = 1.0) -> None:
        """Add to the loss, if the caller collects "aux_loss"; several calls are summed."""
        pair = {"value": jnp.asarray(value, jnp.float32), "weight": jnp.asarray(weight, jnp.float32)}

        def added(old: Any, new: Any) -> Any:
            return new if old is None else jax.tree.map(jnp.add, old, new)

        self.sow(AUX_LOSS, name, pair, reduce_fn=added, init_fn=lambda: None)

    def next_prng_key(self) -> jax.Array:
        """Return a key that is unique within this step."""
        key: jax.Array = self.make_rng(RANDOM)
        return key


def opened(value: object) -> Any:
    """Return the array in a box with axis names, without adding the sharding constraint of flax's `unbox`."""
    box: Any = value
    while isinstance(box, meta.AxisMetadata):
        box = box.value  # type: ignore[attr-defined]
    return box


def as_template(thing: object) -> Any:
    """Return an unfrozen template from a template, a Fiddle config, or a built layer."""
    if isinstance(thing, BaseHParams):
        return thing.clone()
    if made_by(thing) is not None:
        return from_fiddle(thing)
    if isinstance(thing, BaseLayer):
        return thing.hparams.clone()
    raise TypeError(f"a child is built from HParams, a Fiddle config or a layer; this is a {type(thing).__name__}.")


def sharing_root(layer: nn.Module) -> Any:
    """Return the topmost layer of a model, or the body of a scan: the root of its shared layers."""
    while True:
        above = layer.__dict__.get("_sharing_parent") or layer.parent
        if not isinstance(above, nn.Module) or getattr(above, "_repeats_children", False):
            return layer
        layer = above


def total_aux_loss(collection: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
    """Return the sums of a collection "aux_loss", whether stacked by scans or not.

    Returns:
        (sum of values, sum of weights), float32 scalars, zeros if nothing was added.
    """
    value = weight = jnp.zeros((), jnp.float32)
    for path, leaf in jax.tree_util.tree_leaves_with_path(collection):
        if path[-1].key == "value":
            value = value + jnp.sum(leaf)
        else:
            weight = weight + jnp.sum(leaf)
    return value, weight


def _fields_of(cls: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return tuple(field for field in dataclasses.fields(cls) if field.name not in {"parent", "name"})


def _thawed(value: object) -> Any:
    """Return a plain dict for a frozen one of flax."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return {name: _thawed(item) for name, item in value.items()}
    return value


def _holds_layer(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_layer(item) for item in value)
    return isinstance(value, BaseLayer)


def _held(value: object) -> Any:
    """Return the template of a built layer passed to a field, since every parent builds its own children.

    Raises:
        ConfigError: the same built layer was passed twice, so that its shared weights would have no unique path.
    """
    if isinstance(value, list | tuple):
        return tuple(_held(item) for item in value)
    if not isinstance(value, BaseLayer):
        return value
    if value.__dict__.setdefault("_given_away", False):
        raise refusal(
            type(value).__name__,
            "the same built layer is given to two fields.",
            "Share it by its template: build(config) instead of fdl.build(config), or one shared_weight_layer_id in "
            "both templates.",
        )
    value.__dict__["_given_away"] = True
    return value.hparams


@contextlib.contextmanager
def layers_noted() -> Generator[dict[str, str]]:
    """Record the fields of every layer called inside, as text by path."""
    found: dict[str, str] = {}

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer = context.module
        path = "/".join(layer.path) or "model"
        if isinstance(layer, BaseLayer) and path not in found:
            found[path] = layer.hparams.to_text()
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        yield found
