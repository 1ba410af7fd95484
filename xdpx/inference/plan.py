"""The plan of x-eval and x-pred: from a finished run or a config to what to build, and which inputs to read."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from xdpx.config import parameters as declare
from xdpx.config.args_file import ARGS_FILE, PREPRO_ARGS, newest_args
from xdpx.config.catalogue import entry
from xdpx.config.config_files import resolve_path
from xdpx.config.faults import ConfigError, Fault, did_you_mean, first_few
from xdpx.config.hints import listed
from xdpx.config.loading import Run, load, resolve
from xdpx.config.parameters import param
from xdpx.config.spmd_keys import SPMD, mesh_conflicts, spmd_faults
from xdpx.config.stored_args import read_args, read_prepro_args
from xdpx.datasets.fitting import other_columns, other_texts
from xdpx.datasets.meta import read_meta
from xdpx.datasets.store import AGAIN, rebuilt, split_name
from xdpx.inference import export_folder
from xdpx.logger import log
from xdpx.tokenizers import agreement
from xdpx.tokenizers.target_map import TargetMap, number_of
from xdpx.utils import io
from xdpx.utils.commit import read_manifest
from xdpx.utils.raw_places import is_raw, is_table
from xdpx.utils.verified import refuse_altered

_TRAINING_ONLY = {
    "update_freq": 1, "ema_decay": 1.0, "resume": False, "overwrite": False, "fp16": False, "bf16": False,
    "auto_ga": False, "device_id": "auto", "nproc": None, "inspect_gradient": False, "profile": False,
}  # fmt: skip

_ONLY_TRAINS = frozenset({"command", "optimizer", "lr_scheduler"})
"""Parts that do not affect a prediction; the rules between their keys were checked at training."""

_OF_NETWORK = frozenset(
    {"vocab_size", "word_vocab_size", "num_classes", "pad_index", "eos_index", "engine", "mesh", "task"}
)
"""Keys of processors, losses and x-train that say what a network was built for; an export cannot change them."""

_OF_COMMAND = frozenset({"cuda", "exact", "nproc", "skip_bad_lines"})
"""Keys of a run that are not read from it, but from the command."""

_OF_BUILDING = frozenset({
    "vocab_file", "vocab_subset", "threshold", "ignore_in_emb", "nwords", "target_map_file", "target_type",
    "special_targets", "pretrained_embeddings", "check_max_len", "save_format", "num_shards",
})  # fmt: skip
"""Keys of x-prepro that say how a vocabulary, a list of labels and splits are made; scoring reads those of the run."""

_OF_SAMPLES = frozenset({"max_len", "unk_word", "target_unk"})
"""Keys of all processors that act when a text becomes a sample, not when samples become a batch."""

_OF_PLACES = frozenset({"data_source", "data_files", "data_dir", "workers", "ignore_findings"})
"""Keys of x-prepro that change no sample: where raw files are, and how they are read."""

_RAW_PLACES = frozenset({"data_source", "data_files", "data_dir"})
"""Paths that x-prepro read from and wrote to; nothing reads them again."""

_COPY_AGAIN = (
    "The model is built from it: copy it again from the original run. If it was changed on "
    "purpose, remove resources.manifest.json beside it."
)


class InferenceParameters(declare.Parameters):
    """Which model to use, and how to read raw text."""

    save_dir: str | None = param(None, doc="Folder of a finished run to use; or give config.", path="directory")
    config: str | None = param(
        None,
        doc="Training config whose initial weights to use (./ and ../ are relative to this file); or give save_dir.",
    )
    extra_config: dict[str, Any] | str = param({}, doc="Values, or a config of values, that override those of the run.")
    checkpoint: str | None = param(
        None,
        doc="Weights to use: a file, <best> or <last>; by default the best of save_dir, the initial ones of config.",
    )
    from_tf: bool = param(
        False,
        doc="The checkpoint is TensorFlow's (a prefix, or a SavedModel's folder), read as in training: xdpx[tf].",
    )
    batch_size: int | None = param(None, doc="Samples per batch; by default as in training.", gt=0)
    cuda: bool | None = param(None, doc="Use the GPU; by default if there is one.")
    nproc: int | None = param(
        None, ge=1, doc="Processes that share the batches, with a GPU each if there are any; null: one."
    )
    engine: Literal["pytorch", "spmd"] | None = param(
        None, doc="Engine; by default as in training. Weights of either engine work on both."
    )
    mesh: list[int] | None = param(
        None, doc="How the engine spmd spreads [rows, weights and rows, matrices] over devices; null: all on the rows."
    )
    exact: bool = param(
        False, doc="Make results independent of the batch, bit for bit, at a cost that is measured and reported."
    )
    seed: int = param(1, doc="Seed of the initial weights, if there is no checkpoint.")
    workers: int | None = param(None, doc="Processes that read raw text; by default as in preprocessing.", gt=0)
    skip_bad_lines: bool = param(False, doc="Skip lines of raw files that cannot be read, and count them.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse save_dir and config both given or both missing, from_tf without a checkpoint, and nproc for spmd."""
        found = []
        if (self.save_dir is None) == (self.config is None):
            both = "are both given" if self.save_dir is not None else "are both missing"
            found.append(("save_dir", f"and config {both}. Give exactly one: a finished run, or a training config."))
        if self.from_tf and self.checkpoint is None:
            found.append(("from_tf", "is true, but checkpoint is missing: name the files of TensorFlow there."))
        if (self.nproc or 1) > 1 and self.engine == SPMD:
            found.append(("nproc", f"is {self.nproc}, but the engine spmd uses all devices in one process. Remove it."))
        return [*found, *mesh_conflicts(self.mesh)]


class PredictingParameters(InferenceParameters):
    """The same, and how sure the model may be."""

    temperature: Literal["fitted"] | float | None = param(
        None,
        doc="Divisor of the logits: above 1, probabilities are less extreme. fitted: the one that `x-script calibrate` "
        "wrote into the run's folder; null: 1.",
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse temperatures out of range, and 'fitted' without a run."""
        found = super().conflicts()
        if isinstance(self.temperature, float) and not 0.01 <= self.temperature <= 100:
            found.append(("temperature", f"is {self.temperature}. Use a number from 0.01 to 100, 'fitted' or null."))
        if self.temperature == "fitted" and self.save_dir is None:
            found.append(("temperature", "is 'fitted', but no run is named. Give save_dir, or a number."))
        return found


@dataclass(frozen=True)
class InferencePlan:
    """What to build, determined without building it.

    Attributes:
        train: the training run, with the overrides of the user.
        prepro: the run of x-prepro, which says how to read raw text; None if neither data_dir nor save_dir holds it.
        checkpoint: file of the weights; None for the initial ones.
        folders: where the vocabulary and the labels are, in order of preference.
        given: keys of extra_config.
        exported: the export folder whose network is run; None for a run with weights.
        exact: whether the outputs of a row are bit-identical in every batch.
        threads: CPU threads for a batch of an export; None for the default of its library.
        of_tensorflow: whether the weights to score are a checkpoint of TensorFlow: `pretrained_model` names it then.
        alias: `<best>` or `<last>` with its folder, if the checkpoint was found by it.
        trained_batch_size: samples per batch in training; None without a run.
        only_raw: keys of extra_config that only act when raw text is read, not on a prepared split.
    """

    train: Run
    prepro: Run | None
    checkpoint: str | None
    folders: tuple[str, ...]
    given: frozenset[str] = frozenset()
    exported: str | None = None
    exact: bool = False
    threads: int | None = None
    of_tensorflow: bool = False
    alias: str | None = None
    trained_batch_size: int | None = None
    only_raw: tuple[str, ...] = ()

    @property
    def data_dir(self) -> str:
        """The folder of the preprocessed splits."""
        return str(self.train.values["data_dir"])

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        return int(self.train.values["batch_size"])

    @property
    def joins_lines(self) -> bool:
        """Whether lines of raw text are joined, so that no line has a prediction of its own."""
        return self.prepro is not None and self.prepro.build("loader").merger(1) is not None

    def resource(self, name: str) -> str | None:
        """Return the path of a file such as vocab.txt; None if it is in none of `folders`."""
        paths = (io.join(folder, name) for folder in self.folders)
        return next((path for path in paths if io.isfile(path)), None)

    @property
    def resource_folder(self) -> str:
        """The folder that a tokenizer is built from: the one that holds the vocabulary in use."""
        vocabulary = self.resource(agreement.VOCABULARY)
        return io.parent(vocabulary) if vocabulary else self.data_dir


class Input(NamedTuple):
    """Something to score or predict: a store (`.pt`), or a raw file and how to read it.

    Attributes:
        name: as the user gave it.
        path: of the file.
        is_store: whether it is preprocessed.
        reading: how to read a raw file; None to read it as x-prepro read its own.
        rows: the columns of every row, if they were passed in memory and there is no file.
        key: the key that named it, for messages.
    """

    name: str
    path: str
    is_store: bool
    reading: Run | None = None
    rows: Sequence[list[str]] | None = None
    key: str = "texts"


# ---- what to build


def make_plan(options: InferenceParameters, source: str) -> InferencePlan:
    """Return the plan for the run or config that `options` name. Cheap: imports no torch and reads no data.

    Args:
        options: of the command.
        source: the command's own config file, which `./` and `../` are relative to.

    Raises:
        ConfigError: the run, the config or an override is missing or invalid.
        OSError: a file that the model is built from was changed since it was written.
    """
    if not options.save_dir and not options.config:
        raise _refuse(source, "save_dir", "is empty.", "Name the folder of a run, or give config.")
    exported = options.save_dir if options.save_dir and export_folder.is_export(options.save_dir) else None
    if exported:
        export_folder.read(exported)
        export_folder.refuse_damaged(exported, whole=False)
    elif options.save_dir:
        refuse_altered(options.save_dir, advice=_COPY_AGAIN)
    values = _values_of_run(options, source) if options.save_dir else _values_of_config(options, source)
    extra = _extra_values(options.extra_config, source)
    checkpoint = _exported_network(options, source) if exported else _find_checkpoint(options, source)
    train_values = {**values, **_kept(_TRAINING_ONLY, values), **extra}
    train_values |= {"batch_size": options.batch_size} if options.batch_size else {}
    train_values |= {"engine": options.engine, "mesh": None} if options.engine else {}
    train_values |= {"engine": "pytorch", "mesh": None} if exported else {}
    train_values |= {"mesh": options.mesh} if options.mesh else {}
    if options.from_tf:  # loaded as training would, which renames weights and reports missing ones
        train_values |= {"pretrained_model": checkpoint, "from_tf": True}
        train_values |= _kept({"load_cls_weights": True}, train_values)
        checkpoint = None
    else:
        train_values |= _pretrained(train_values, checkpoint, options.save_dir)
    if options.save_dir:
        _stay_off_the_network(train_values, values, options.save_dir, source)
    with _names_of_own_code(values if options.save_dir else {}):
        train = resolve(train_values, "x-train", source=source, strict=False, paths=False, unruled=_ONLY_TRAINS)
    _refuse_for_engine(train, options, source)
    if exported:
        _refuse_of_network(extra, train, exported, source)
        if "max_len" in extra:
            _refuse_longer(train.values["max_len"], exported, source)
    else:
        refuse_altered(train.values["data_dir"], advice=AGAIN)
    prepro, kept = _preprocessing(None if exported else train.values["data_dir"], extra, options, source)
    only_raw = _only_for_texts(extra, train, prepro, kept, source)
    folders = [options.save_dir, None if exported else train.values["data_dir"]]
    found = tuple(str(folder) for folder in folders if folder)
    plan = InferencePlan(
        train, prepro, checkpoint, found, frozenset(extra), exported, options.exact, of_tensorflow=options.from_tf,
        alias=_alias_of(checkpoint, options) if checkpoint and not exported else None,
        trained_batch_size=values.get("batch_size") if options.save_dir else None,
        only_raw=only_raw,
    )  # fmt: skip
    _refuse_other_tokens(plan, source)
    return plan


def with_newest(plan: InferencePlan) -> InferencePlan:
    """Return the plan with the checkpoint that its alias names now, if the one it named was deleted since.

    Training deletes the best checkpoint when it writes a better one, which may happen while torch is loaded.
    """
    from xdpx.checkpoints.aliases import resolve as resolve_alias

    if plan.alias is None or plan.checkpoint is None or io.exists(plan.checkpoint):
        return plan
    with suppress(FileNotFoundError):
        return replace(plan, checkpoint=resolve_alias(plan.alias))
    return plan


def _refuse_other_tokens(plan: InferencePlan, source: str) -> None:
    """Refuse weights that were trained with another vocabulary than the one that would encode the texts."""
    vocabulary = plan.resource(agreement.VOCABULARY)
    weights = plan.checkpoint or plan.train.values.get("pretrained_model")
    if vocabulary is not None and weights:
        key = "checkpoint" if plan.checkpoint else "pretrained_model"
        fault = agreement.of_weights(key, str(weights), io.parent(vocabulary))
        if fault:
            raise ConfigError(source, [fault])


def _refuse_of_network(extra: Mapping[str, Any], train: Run, folder: str, source: str) -> None:
    """Refuse overrides of the network and of what runs it: an export is a file, which they would not change."""
    fixed, of_others = {"model", "task", "engine", "mesh"}, set[str]()
    for (_, kind), name in train.picks.items():
        keys = {item.key for item in entry(kind, name).parameters}
        if kind == "model":
            fixed |= keys
        elif kind == "task":
            fixed |= keys - {item.key for item in entry(kind, "default").parameters}
        else:
            of_others |= keys - _OF_NETWORK
    remedy = "Leave it out, or name the run that it was exported from."
    problem = f"would change nothing: '{folder}' is an export, whose network is a file."
    faults = [Fault(f"extra_config.{key}", problem, remedy) for key in extra if key in fixed - of_others]
    if faults:
        raise ConfigError(source, faults)


def _refuse_longer(max_len: int, folder: str, source: str) -> None:
    """Refuse longer texts than those that an export was compared with its run on: it may have no positions for more."""
    most = export_folder.read(folder).get("max_len")
    if isinstance(most, int) and max_len > most:
        problem = f"is {max_len}, but '{folder}' was exported for texts of up to {most} tokens."
        remedy = f"Use at most {most}, or name the run that it was exported from."
        raise ConfigError(source, [Fault("extra_config.max_len", problem, remedy)])


def _refuse_for_engine(train: Run, options: InferenceParameters, source: str) -> None:
    if train.values["engine"] == SPMD:
        faults = list(spmd_faults(train))
        if options.exact:
            faults.append(Fault("exact", "is true, but the engine is spmd.", "Leave it out, or set engine: pytorch."))
    else:
        remedy = "Leave it out, or set engine: spmd."
        faults = [Fault("mesh", "is given, but the engine is pytorch.", remedy)] if options.mesh else []
    if faults:
        raise ConfigError(source, faults)


def _kept(wanted: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wanted.items() if key in values}


def _values_of_run(options: InferenceParameters, source: str) -> dict[str, Any]:
    folder = str(options.save_dir)
    path = newest_args(folder)
    if path is None:
        raise _missing(
            source, "save_dir", f"'{folder}' contains no args.py.", "Give the folder of a run made by x-train."
        )
    # For runs older than these keys: their unit, and the grades that their labels are.
    return {"loss_unit": "bits", **_grades_of(folder), **read_args(path)}


def _grades_of(folder: str) -> dict[str, list[float]]:
    """Return {label_values: the labels of a run} if they are numbers."""
    path = io.join(folder, agreement.LABELS)
    values = [number_of(label) for label in TargetMap.read(path).labels] if io.isfile(path) else []
    numbers = [value for value in values if value is not None]
    return {"label_values": numbers} if numbers and len(numbers) == len(values) else {}


def _values_of_config(options: InferenceParameters, source: str) -> dict[str, Any]:
    path = resolve_path(str(options.config), beside=source)
    with _faults_of("config", source):
        runs = load(path, "x-train", paths=False)
    if len(runs) > 1:
        raise _refuse(source, "config", f"'{path}' describes {len(runs)} runs.", "Give a config of one run.")
    return dict(runs[0].values)


def _extra_values(extra: Mapping[str, Any] | str, source: str) -> dict[str, Any]:
    if not isinstance(extra, str):
        return dict(extra)
    from xdpx.config.reading import read_runs

    with _faults_of("extra_config", source):
        raw = read_runs(resolve_path(extra, beside=source))
    if raw[0].faults:
        raise ConfigError(raw[0].source, raw[0].faults)
    if len(raw) > 1:
        raise _refuse(source, "extra_config", f"'{extra}' describes {len(raw)} runs.", "Give one set of values.")
    return dict(raw[0].values)


@contextmanager
def _faults_of(key: str, source: str) -> Generator[None]:
    """Prefix faults inside with the key that names the config; faults inside that config keep their position in it."""
    try:
        yield
    except ConfigError as error:
        absent = [fault for fault in error.faults if fault.key == "config"]
        if not absent:
            faults = [replace(fault, key=f"{key}.{fault.key}") for fault in error.faults]
        else:
            faults = [replace(fault, key=key, origin=None, code="missing_path") for fault in absent]
        raise ConfigError(source, faults) from error


def _find_checkpoint(options: InferenceParameters, source: str) -> str | None:
    from xdpx.checkpoints.aliases import BEST
    from xdpx.checkpoints.aliases import resolve as resolve_alias
    from xdpx.checkpoints.tf_files import index_of

    wanted = options.checkpoint or (BEST if options.save_dir else None)
    if wanted is None:
        return None
    try:
        path = index_of(wanted) if options.from_tf else resolve_alias(wanted, options.save_dir)
    except FileNotFoundError as error:
        where = f" of '{options.save_dir}'" if options.save_dir and not options.from_tf else ""
        raise _missing(source, "checkpoint", f"'{wanted}'{where} cannot be used: {error}") from error
    if not io.exists(path):
        raise _missing(source, "checkpoint", f"'{path}' does not exist.", "Give a file, <best> or <last>.")
    return path


def _alias_of(checkpoint: str, options: InferenceParameters) -> str | None:
    """Return the alias by which a checkpoint was found, with its folder; None if it was named itself."""
    from xdpx.checkpoints.aliases import BEST, LAST

    name = io.name(options.checkpoint or BEST)
    return io.join(io.parent(checkpoint), name) if name in {BEST, LAST} else None


def _exported_network(options: InferenceParameters, source: str) -> str:
    """Return the file or folder with the network of an export.

    Raises:
        ConfigError: an option is set that an export cannot follow, e.g. a checkpoint or an engine.
    """
    folder = str(options.save_dir)
    asked = {"checkpoint": options.checkpoint, "engine": options.engine, "mesh": options.mesh, "cuda": options.cuda}
    asked |= {"from_tf": options.from_tf}
    remedy = "Leave it out, or name the run that it was exported from."
    faults = [
        Fault(key, f"is {value}, but '{folder}' is an export: one network, for the CPU.", remedy)
        for key, value in asked.items()
        if value
    ]
    if faults:
        raise ConfigError(source, faults)
    return io.join(folder, export_folder.read(folder)["file"])


def _pretrained(values: Mapping[str, Any], checkpoint: str | None, save_dir: str | None) -> dict[str, Any]:
    """Return the pretrained_model to build with; given a checkpoint, only the architecture in its config.json is used.

    The model that the run was started from may no longer exist; the folder of the run holds the same architecture.
    """
    from xdpx.checkpoints.aliases import with_files

    path = values.get("pretrained_model")
    if not isinstance(path, str):
        return {}
    if checkpoint is None:
        return with_files({"pretrained_model": path, "from_tf": values.get("from_tf")})
    folders = [folder for folder in (io.parent(checkpoint), save_dir) if folder]
    kept = next((folder for folder in folders if io.isfile(io.join(folder, "config.json"))), path)
    return {"pretrained_model": kept, **_kept({"from_tf": False}, values)}


def _preprocessing(
    data_dir: str | None, extra: Mapping[str, Any], options: InferenceParameters, source: str
) -> tuple[Run | None, Mapping[str, Any]]:
    """Return the run of x-prepro that says how to read raw text, with the user's overrides, and its values without.

    The run is None if it is unknown.

    It is the copy that training kept in save_dir: data_dir may have been preprocessed again since, in another way. The
    args.py of data_dir counts where there is no copy, or no run.
    """
    of_run = [(options.save_dir, PREPRO_ARGS)] if options.save_dir else []
    places = [*of_run, *([(data_dir, ARGS_FILE)] if data_dir is not None else [])]
    found = next((place for place in places if io.isfile(io.join(*place))), None)
    if found is None:
        return None, {}
    folder, name = found
    kept = read_prepro_args(io.join(folder, name))
    values = {**kept, **extra, "skip_bad_lines": options.skip_bad_lines, "remove_duplicate": False}
    _stay_off_the_network(values, {key: kept[key] for key in kept if key not in _RAW_PLACES}, folder, source)
    values |= {"workers": options.workers} if options.workers else {}
    with _names_of_own_code(kept):
        return resolve(values, "x-prepro", source=source, strict=False, paths=False), kept


@contextmanager
def _names_of_own_code(stored: Mapping[str, Any]) -> Generator[None]:
    """Explain, in errors about names from a run's args.py that are not registered here, where they come from."""
    remedy = (
        "It was registered where the run was made: by your own user/modules, or by a package. Start in the folder "
        "that contains user/modules, or name that in XDPX_USER_MODULES; or install the package."
    )
    try:
        yield
    except ConfigError as error:
        faults = [
            replace(each, remedy=remedy) if each.problem == f"no '{stored.get(each.key)}' is registered." else each
            for each in error.faults
        ]
        raise ConfigError(error.source, faults) from error.__cause__


def _stay_off_the_network(values: Mapping[str, Any], stored: Mapping[str, Any], folder: str, source: str) -> None:
    """Refuse web addresses from an args.py on other servers than its own: the folder may be from another person."""
    server = "/".join(folder.split("/")[:3])
    faults = [
        Fault(
            key,
            f"is {value} in {io.join(folder, ARGS_FILE)}, which may come from another person.",
            f"If you trust that address, write it yourself: extra_config: {{{key}: ...}}.",
        )
        for key, value in values.items()
        if isinstance(value, str) and value == stored.get(key) and value.lower().startswith(("http://", "https://"))
        if not value.startswith(f"{server}/")
    ]
    if faults:
        raise ConfigError(source, faults)


def _refuse_unknown(extra: Mapping[str, Any], known: Mapping[str, Any], source: str) -> None:
    """Refuse overrides that would have no effect: of unknown keys, and of the command's own."""
    faults = []
    for key in extra:
        if key in _OF_COMMAND:
            problem, remedy = "would change nothing: it is a key of the command.", "Write it beside extra_config."
            faults.append(Fault(f"extra_config.{key}", problem, remedy))
        elif key not in known:
            remedy = did_you_mean(key, known, "Remove it.")
            faults.append(Fault(f"extra_config.{key}", "is not a parameter of this run.", remedy))
    if faults:
        raise ConfigError(source, faults)


def _only_for_texts(
    extra: Mapping[str, Any], train: Run, prepro: Run | None, kept: Mapping[str, Any], source: str
) -> tuple[str, ...]:
    """Return the overrides that act only where texts become samples.

    Raises:
        ConfigError: overrides that have no effect on any input: unknown keys, the command's own, and those that act
            while data are prepared.
    """
    reading = prepro.values if prepro else {}
    _refuse_unknown(extra, {**train.values, **reading}, source)
    changed = [key for key in extra if key in reading and reading[key] != kept.get(key)]
    problem = "would change nothing: x-prepro acts on it, and the model keeps the words and labels it was trained with."
    remedy = "Leave it out, or preprocess and train again with it."
    idle = [key for key in changed if key in _OF_BUILDING and key not in train.values]
    faults = [Fault(f"extra_config.{key}", problem, remedy) for key in idle]
    faults += _unfit(changed, train, prepro) if prepro is not None else []
    if faults:
        raise ConfigError(source, faults)
    others = (entry(kind, name) for (_, kind), name in train.picks.items() if kind != "processor")
    of_others = {item.key for each in others for item in each.parameters}
    elsewhere = (set(train.values) - _OF_SAMPLES) | of_others | _OF_PLACES
    return tuple(key for key in changed if key not in elsewhere)


def _unfit(changed: Collection[str], train: Run, prepro: Run) -> Iterator[Fault]:
    """Yield faults of overrides with which texts or labels would not become what the model takes."""
    parts = [key for key in ("processor", "loader") if key in changed]
    if parts and (fault := other_texts(prepro)):
        yield replace(fault, key=f"extra_config.{parts[0]}")
    several = bool(train.values.get("several_labels"))
    if "label_separator" in changed and bool(prepro.values["label_separator"]) != several:
        trained = "several labels" if several else "one label"
        problem = (
            f"is {json.dumps(prepro.values['label_separator'])}, but the model was trained with {trained} per row."
        )
        yield Fault("extra_config.label_separator", problem, "Leave it out.")


def refuse_idle(plan: InferencePlan, inputs: Sequence[Input], source: str) -> None:
    """Refuse overrides that act only on raw text if every input is prepared; warn of them if some are.

    Raises:
        ConfigError: with every such key.
    """
    prepared = [each.name for each in inputs if each.is_store]
    if not plan.only_raw or not prepared:
        return
    if len(prepared) < len(inputs):
        keys, verb = ", ".join(plan.only_raw), "has" if len(plan.only_raw) == 1 else "have"
        names = ", ".join(prepared)
        log.warning(f"{names}: prepared already, so that {keys} of extra_config {verb} no effect", once=True)
        return
    problem = f"would change nothing: the samples of '{prepared[0]}' were made by x-prepro."
    remedy = "Leave it out, or give the raw file."
    raise ConfigError(source, [Fault(f"extra_config.{key}", problem, remedy) for key in plan.only_raw])


def find_input(name: str, plan: InferencePlan, key: str, source: str) -> Input:
    """Return the input that a name stands for: a split of data_dir, a `.pt` store, or a raw file.

    Raises:
        ConfigError: it is none of these, its tokens or labels are not the model's, or it cannot be read as raw text.
    """
    splits = {split_name(path): path for path in _stores(plan.data_dir)}
    if name in splits:
        return _prepared(name, splits[name], plan, key, source)
    if not is_raw(name):
        remedy = listed(name, splits)
        remedy = remedy or did_you_mean(name, splits, f"The splits are: {', '.join(splits) or 'none'}.")
        if not io.exists(plan.data_dir):
            remedy = (
                "That folder no longer exists: if it was moved, give the new path with extra_config: { data_dir: ... }."
            )
        raise _missing(source, key, f"'{name}' is neither a split of '{plan.data_dir}' nor a file.", remedy)
    if name.endswith(".pt"):
        return _prepared(name, name, plan, key, source)
    if plan.prepro is None:
        rules = io.join(plan.data_dir, ARGS_FILE)
        problem = f"'{name}' is raw text, but {rules}, which says how to read it, no longer exists."
        raise _missing(source, key, problem, "Give data_dir in extra_config, or a split.")
    if is_table(name) and plan.prepro.values["parser"] != "table":
        problem = f"'{name}' is a table, but the data were read by the parser '{plan.prepro.values['parser']}'."
        raise _refuse(source, key, problem, "Set extra_config: {parser: table, fields: [...]}, or give a file.")
    encodes = getattr(plan.prepro.picked("tokenizer"), "needs_vocabulary", False)  # with a vocabulary file
    if encodes and not plan.exported:
        _refuse_other_data(plan, plan.data_dir, [agreement.VOCABULARY], key, source)
    reading = _reading(name, plan, plan.prepro, key, source)
    return Input(name, name, is_store=False, reading=reading, key=key)


def _prepared(name: str, path: str, plan: InferencePlan, key: str, source: str) -> Input:
    folder = io.parent(path)
    _refuse_other_data(plan, folder, agreement.LISTS, key, source)
    _tell_of_other_texts(plan, folder, name)
    if plan.checkpoint is not None and folder == plan.data_dir.rstrip("/") and "data_dir" not in plan.given:
        _tell_of_other_rows(plan.checkpoint, plan.data_dir, name)
    if "processor" in plan.given and (fault := other_columns(plan.train, read_meta(folder), "Leave it out.")):
        raise ConfigError(source, [replace(fault, key="extra_config.processor")])
    return Input(name, path, is_store=True, key=key)


def _tell_of_other_texts(plan: InferencePlan, folder: str, name: str) -> None:
    """Warn if a split was made by x-prepro with other words: another case, or another tokenizer."""
    path = io.join(folder, ARGS_FILE)
    if plan.prepro is None or not io.isfile(path):
        return
    try:
        theirs, ours = read_prepro_args(path), plan.prepro.values
    except ConfigError:  # damaged, which x-prepro repairs
        return
    told = [
        f"{each} is {json.dumps(theirs[each])} in {path}, and {json.dumps(ours[each])} for this model"
        for each in agreement.other_words(theirs, ours)
    ]
    if told:
        advice = "Scores may be too low: score the raw file, or preprocess again."
        log.warning(f"{name}: was preprocessed otherwise: {'; '.join(told)}. {advice}", once=True)


def _tell_of_other_rows(checkpoint: str, data_dir: str, name: str) -> None:
    """Warn if the rows that weights were trained on were rebuilt since: those to score may have been among them."""
    manifest = read_manifest(io.parent(checkpoint), io.name(checkpoint).removesuffix(".pt"))
    trained_on = manifest.facts.get("data", {}) if manifest is not None else {}
    if changed := rebuilt(data_dir, trained_on):
        problem = f"{first_few(changed, 3)} of {data_dir} was rebuilt after this model was trained on it"
        log.warning(f"{name}: {problem}, so these rows may be among those that it has seen", once=True)


def _reading(path: str, plan: InferencePlan, prepro: Run, key: str, source: str) -> Run:
    from xdpx.inference.raw_reading import reading_of

    labels = plan.resource("target_map.txt")
    known = TargetMap.read(labels).labels if labels else []
    return reading_of(path, prepro, given=plan.given, labels=known, key=key, source=source)


def _refuse_other_data(plan: InferencePlan, folder: str, names: Sequence[str], key: str, source: str) -> None:
    """Refuse a folder of data that were encoded with another vocabulary or other labels than the model's."""
    if plan.train.values.get("loss") == "fewshot":  # its classes are those of the data, not of the model
        names = [name for name in names if name != agreement.LABELS]
    used = ((name, plan.resource(name)) for name in names)
    faults = [agreement.of_data(key, path, io.join(folder, name)) for name, path in used if path is not None]
    if any(faults):
        raise ConfigError(source, [fault for fault in faults if fault])


def _stores(data_dir: str) -> list[str]:
    """Return the splits of a folder: its .pt and .jsonl files except embeddings.pt."""
    if not io.isdir(data_dir):
        return []
    files = io.listdir(data_dir, full_path=True)
    return [path for path in files if path.endswith((".pt", ".jsonl")) and io.name(path) != "embeddings.pt"]


def _refuse(source: str, key: str, problem: str, remedy: str = "") -> ConfigError:
    return ConfigError(source, [Fault(key, problem, remedy)])


def _missing(source: str, key: str, problem: str, remedy: str = "") -> ConfigError:
    """Return the error for something missing, which an earlier command of the same line may still create."""
    return ConfigError(source, [Fault(key, problem, remedy, code="missing_path")])
