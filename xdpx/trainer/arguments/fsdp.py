"""Read the options of sharding (FSDP) into one object.

Sources are `fsdp` and `fsdp_config`, as scripts of all versions write them, and the environment variables of
accelerate's launcher.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdpx.config.faults import Fault, did_you_mean
from xdpx.logger import log
from xdpx.trainer.arguments.enums import Word
from xdpx.trainer.arguments.fields import Fields
from xdpx.trainer.arguments.values import FALSE_WORDS, read_dict, truth
from xdpx.utils.decisions import TRUE_WORDS


class FSDPOption(Word):
    """The words that `fsdp` may contain."""

    FULL_SHARD = "full_shard"
    SHARD_GRAD_OP = "shard_grad_op"
    NO_SHARD = "no_shard"
    HYBRID_SHARD = "hybrid_shard"
    HYBRID_SHARD_ZERO2 = "hybrid_shard_zero2"
    OFFLOAD = "offload"
    AUTO_WRAP = "auto_wrap"


STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
"""In the order of their numbers in configs of accelerate, from 1."""

WRAPS = {"TRANSFORMER_BASED_WRAP": "transformer", "SIZE_BASED_WRAP": "size", "NO_WRAP": "none"}
STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT")
PREFETCHES = ("backward_pre", "backward_post", "backward_pos", "no_prefetch")  # backward_pos is in the documents
FSDP1_ONLY = ("forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers")
FLAGS = ("activation_checkpointing", "cpu_offload", "cpu_ram_efficient_loading", *FSDP1_ONLY[2:], "forward_prefetch")
XLA = ("xla", "xla_fsdp_settings", "xla_fsdp_v2", "xla_fsdp_grad_ckpt")
KNOWN = frozenset({
    *FLAGS, *FSDP1_ONLY, *XLA, "version", "sharding_strategy", "reshard_after_forward", "state_dict_type",
    "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "ignored_modules", "offload_params",
})  # fmt: skip

ENVIRONMENT = {
    "FSDP_VERSION": "version",
    "FSDP_SHARDING_STRATEGY": "sharding_strategy",
    "FSDP_RESHARD_AFTER_FORWARD": "reshard_after_forward",
    "FSDP_OFFLOAD_PARAMS": "cpu_offload",
    "FSDP_MIN_NUM_PARAMS": "min_num_params",
    "FSDP_AUTO_WRAP_POLICY": "auto_wrap_policy",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "transformer_layer_cls_to_wrap",
    "FSDP_STATE_DICT_TYPE": "state_dict_type",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "cpu_ram_efficient_loading",
    "FSDP_ACTIVATION_CHECKPOINTING": "activation_checkpointing",
    "FSDP_IGNORED_MODULES": "ignored_modules",
}
"""Environment variables of accelerate's launcher, and the key each one sets. It always sets the FSDP1-only options,
too, to their defaults; those have no effect and are not read.
"""


@dataclass(frozen=True)
class FsdpOptions:
    """How model and optimizer are sharded over the processes.

    Attributes:
        strategy: full_shard, shard_grad_op, no_shard, hybrid_shard or hybrid_shard_zero2.
        reshard_after_forward: free the gathered weights of a unit after its forward pass, and gather them again.
        offload: keep the shards in host memory.
        wrap: how units are chosen: transformer (layers by class), size (by number of weights), none (the whole model).
        layer_classes: names of the classes of units; empty: those that the model itself declares.
        min_num_params: smallest number of weights of a unit, for wrap size.
        activation_checkpointing: recompute the activations of each unit in the backward pass.
        state_dict_type: FULL_STATE_DICT (one file that any run can load) or SHARDED_STATE_DICT.
        cpu_ram_efficient_loading: only the first process reads the weights.
        ignored_modules: regular expression for the names of modules that are not sharded.
        xla: settings for torch_xla; None without it.
    """

    strategy: str = "full_shard"
    reshard_after_forward: bool = True
    offload: bool = False
    wrap: str = "transformer"
    layer_classes: tuple[str, ...] = ()
    min_num_params: int = 0
    activation_checkpointing: bool = False
    state_dict_type: str = "FULL_STATE_DICT"
    cpu_ram_efficient_loading: bool = False
    ignored_modules: str | None = None
    xla: Mapping[str, Any] | None = field(default=None)


def normalise(arguments: Fields) -> Iterator[Fault]:
    """Normalise `fsdp` and `fsdp_config` to True and a dict; yield their faults."""
    words = _words(arguments.fsdp)
    if words is None:
        arguments.fsdp = arguments.fsdp and None  # the word "false"
        _warn_of_no_effect(arguments.fsdp_config)
        return
    try:
        config = unprefixed(read_dict(arguments.fsdp_config or {}))
    except ValueError as error:
        yield Fault("fsdp_config", str(error))
        config = {}
    yield from _take_words(words, config)
    _tell_unknown(config)
    yield from _faults(config)
    for key, default in (("min_num_params", 0), ("xla", False), ("xla_fsdp_v2", False), ("xla_fsdp_grad_ckpt", False)):
        config.setdefault(key, default)
    arguments.fsdp, arguments.fsdp_config = True, config  # type: ignore[assignment]  # the declared type is the CLI's


def _warn_of_no_effect(config: Any) -> None:
    """Warn of a config that says how to shard, where neither the arguments nor accelerate's launcher ask for it."""
    says = any(config.values()) if isinstance(config, Mapping) else bool(config)
    if says and launched(os.environ) is None:
        log.warning(
            "fsdp_config: has no effect without fsdp. To shard, set fsdp, e.g. to 'full_shard auto_wrap'.", once=True
        )


def _words(value: Any) -> list[str] | None:
    """Return the words in `fsdp`, None if it is off."""
    if not value or (isinstance(value, str) and value.lower() in FALSE_WORDS):
        return None
    if value is True or (isinstance(value, str) and value.lower() in TRUE_WORDS):
        return []
    if isinstance(value, str):
        value = value.lower().replace("full shard", "full_shard").replace(",", " ").split()  # documents have both
    return [str(getattr(item, "value", item)).lower() for item in value]


def unprefixed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with their short names (without the prefix `fsdp_`), and lists for values that are lists."""
    settings = {key.removeprefix("fsdp_"): value for key, value in config.items()}
    if "offload_params" in settings:
        settings["cpu_offload"] = settings.pop("offload_params")
    layers = settings.get("transformer_layer_cls_to_wrap")
    if isinstance(layers, str):
        settings["transformer_layer_cls_to_wrap"] = [name.strip() for name in layers.split(",") if name.strip()]
    return settings


def _take_words(words: Iterable[str], config: dict[str, Any]) -> Iterator[Fault]:
    for word in words:
        if word in {"full_shard", "shard_grad_op"}:
            config.setdefault("reshard_after_forward", word == "full_shard")
        elif word in STRATEGIES:
            config.setdefault("sharding_strategy", word)
        elif word == "offload":
            config.setdefault("cpu_offload", True)
        elif word != "auto_wrap":
            yield _unknown_word("fsdp", word, [option.value for option in FSDPOption])


def _unknown_word(key: str, word: object, known: Iterable[str]) -> Fault:
    words = list(known)
    return Fault(
        key, f"no '{word}' is known.", did_you_mean(str(word), words, rest=f"Choose from: {', '.join(words)}.")
    )


def _tell_unknown(config: Mapping[str, Any]) -> None:
    for key in sorted(config.keys() - KNOWN):
        told = f"fsdp_config: no key '{key}' is known; it has no effect. {did_you_mean(key, KNOWN)}"
        log.warning(told.rstrip(), once=True)
    idle = [key for key in FSDP1_ONLY if key in config]
    idle += ["version: 1"] if str(config.get("version", 2)) == "1" else []
    if idle:
        log.warning(f"fsdp_config: sharding uses FSDP2, in which {', '.join(idle)} have no effect.", once=True)


def _faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    checks = {
        "sharding_strategy": (_strategy, STRATEGIES),
        "auto_wrap_policy": (str.upper, tuple(WRAPS)),
        "state_dict_type": (str.upper, STATE_DICTS),
        "backward_prefetch": (str.lower, PREFETCHES),
    }
    for key, (spelled, allowed) in checks.items():
        value = config.get(key)
        if value is not None and spelled(str(value)) not in allowed:
            yield _unknown_word(f"fsdp_config.{key}", value, allowed)
    for key in (*FLAGS, "reshard_after_forward", "xla", "min_num_params"):
        yield from _fault_of(key, config.get(key))


def _fault_of(key: str, value: Any) -> Iterator[Fault]:
    if value is None or (key == "reshard_after_forward" and str(value).lower() in STRATEGIES):
        return
    try:
        int(value) if key == "min_num_params" else truth(value)
    except (ValueError, TypeError) as error:
        said = f"is {value!r}. Use a whole number, e.g. 100000000." if key == "min_num_params" else str(error)
        yield Fault(f"fsdp_config.{key}", said)


def _strategy(value: object) -> str:
    word = str(value).lower()
    return STRATEGIES[int(word) - 1] if word.isdigit() and 0 < int(word) <= len(STRATEGIES) else word


def launched(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the FSDP settings requested by accelerate's launcher; None if there are none."""
    if environment.get("ACCELERATE_USE_FSDP", "").lower() not in TRUE_WORDS:
        return None
    found = {key: environment[name] for name, key in ENVIRONMENT.items() if environment.get(name) not in {None, "None"}}
    # FSDP1 has a strategy, FSDP2 only the choice to reshard; the launcher sets both, one of them by default
    found.pop("sharding_strategy" if found.get("version") == "2" else "reshard_after_forward", None)
    return unprefixed({"auto_wrap_policy": "NO_WRAP", **found})


def fsdp_options(arguments: Fields, environment: Mapping[str, str] = os.environ) -> FsdpOptions | None:
    """Return how to shard; None: do not shard.

    With `fsdp` only the arguments count. Without it the launcher's environment may request FSDP, and `fsdp_config`
    overrides its settings.

    Raises:
        ValueError: a setting from the environment is invalid.
        ImportError: torch_xla is requested but not installed.
    """
    words = _words(arguments.fsdp)
    base = launched(environment) if words is None else {}
    if base is None:
        return None
    own = unprefixed(read_dict(arguments.fsdp_config)) if arguments.fsdp_config else {}
    faults = [*_take_words(words or (), own)]  # a script may have set fsdp after the arguments were constructed
    if own.keys() & {"sharding_strategy", "reshard_after_forward"}:
        base = {key: value for key, value in base.items() if key not in {"sharding_strategy", "reshard_after_forward"}}
    config = {**base, **own}
    faults += _faults(config)
    if faults:
        raise ValueError("FSDP:\n" + "\n".join(f"  {fault}" for fault in faults))
    return _options(config)


def _options(config: Mapping[str, Any]) -> FsdpOptions:
    strategy, reshard = _sharding(config)
    smallest = int(config.get("min_num_params") or 0)
    policy = config.get("auto_wrap_policy") or ("SIZE_BASED_WRAP" if smallest else "TRANSFORMER_BASED_WRAP")
    return FsdpOptions(
        strategy=strategy,
        reshard_after_forward=reshard,
        offload=truth(config.get("cpu_offload", False)),
        wrap=WRAPS[str(policy).upper()],
        layer_classes=tuple(config.get("transformer_layer_cls_to_wrap") or ()),
        min_num_params=smallest,
        activation_checkpointing=truth(config.get("activation_checkpointing", False)),
        state_dict_type=_state_dict_type(config),
        cpu_ram_efficient_loading=truth(config.get("cpu_ram_efficient_loading", False)),
        ignored_modules=config.get("ignored_modules"),
        xla=_xla(config),
    )


def _sharding(config: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the strategy and whether weights are freed after the forward pass; reshard_after_forward decides."""
    given, strategy = config.get("reshard_after_forward"), config.get("sharding_strategy")
    if given is not None and str(given).lower() in STRATEGIES:
        given, strategy = None, strategy or given
    name = _strategy(strategy or "full_shard")
    if given is None:
        return name, name in {"full_shard", "hybrid_shard"}
    reshard = truth(given)
    if name in {"full_shard", "shard_grad_op"}:
        name = "full_shard" if reshard else "shard_grad_op"
    return name, reshard


def _state_dict_type(config: Mapping[str, Any]) -> str:
    kind = str(config.get("state_dict_type") or STATE_DICTS[0]).upper()
    if kind == "LOCAL_STATE_DICT":
        log.warning("fsdp_config: LOCAL_STATE_DICT no longer exists; SHARDED_STATE_DICT is used instead.", once=True)
        return "SHARDED_STATE_DICT"
    return kind


def _xla(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not truth(config.get("xla", False)):
        return None
    if importlib.util.find_spec("torch_xla") is None:
        raise ImportError(
            "fsdp_config: xla is true, and torch_xla is not installed. Install it (pip install torch_xla) on a machine "
            "with a TPU, or remove xla: FSDP on GPUs and CPUs does not need it."
        )
    return {key: config[key] for key in XLA if key in config}
