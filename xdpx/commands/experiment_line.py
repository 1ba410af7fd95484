"""Parse the words of `x-exp` and `python -m xdpx.main`: Pax's flags in their spelling, and ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdpx.config.faults import ConfigError, Fault, nearest

MODES = ("train", "eval", "decode", "decode_once", "infer")
"""The modes of `experiments.running.options`, repeated so that --help need not import it; a test compares them."""

OWN_FLAGS = {
    "list": "list every experiment; with a word after it, those whose name contains it",
    "help": "this page",
    "describe": "print the fields by the class that sets them, and what is derived from them",
    "dry": "resolve everything: configuration, parameters and memory per device, FLOPs; allocate nothing",
    "plan": "lower and compile for the documented mesh too: collectives, activations, whether it fits",
    "set": "NAME=value: set a field of the experiment; may be repeated",
    "device": "v4, v5e, v5p, a100, h100, ... or name:FLOPs:memory: what a plan is compared with, and the peak of a run",
    "devices": "N: number of devices that -1 in the mesh fills, in --plan and --dry",
    "json": "print one JSON object and nothing else: with --plan or --dry the plan, else what was done",
    "peek": "I/N: print rows of each input as process I of N sees them; alone 0/1",
    "peek_batches": "how many batches --peek shows (1)",
    "verbose": "show tracebacks and warnings in full",
    "quiet": "print warnings only",
    "version": "print the version",
}
RUN_FLAGS = {
    "exp": "name of the experiment: any end of its dotted name, my.py:Class, package.module.Class",
    "job_log_dir": "folder for everything that the job writes, local or remote",
    "mode": f"{', '.join(MODES)} (train)",
    "eval_on_test": "evaluate on the other inputs while training",
    "decode_during_train": "decode while training",
    "eval_during_decode": "evaluate too in the modes that decode",
    "jax_fully_async_checkpoint": "write checkpoints in the background",
    "async_timeout_secs": "seconds that a process waits for the others around checkpoints (1800)",
    "nproc": "processes to start on this machine, which train together on its CPU; one drives all its GPUs or TPUs (1)",
    "max_restarts": "how often the processes of nproc are restarted if one was killed, froze or hung (3)",
    "memory_copy_interval": "updates between copies of the state in shared memory (0: no copies)",
    "hang_seconds": "seconds after which several processes end because one is frozen or hangs (30); 0: no monitoring",
    "enable_checkpoint_saving": "false: save no checkpoints, to look for mistakes",
    "exit_after_ondemand_checkpoint": "stop after the checkpoint that a preemption triggers",
    "restore_checkpoint_dir": "decode, decode_once, infer: where the checkpoint is",
    "restore_checkpoint_step": "decode_once, infer: of which update",
    "decode_output_pickle": "write a pickle beside the JSON lines",
    "enable_summary_writer": "false writes no summaries",
    "callbacks": "callbacks of the Trainer: comma-separated names or module:Class; or JSON",
    "report_to": "trackers: tensorboard, jsonl, wandb, ..., comma-separated",
    "inspect_gradient": "record every weight's gradient with each log row: plots/gradients",
    "profile": "trace five updates into the folder profile",
    "study": "NAME: search over the fields in the experiment's search_space(); each trial is a job in trial_<number>",
    "num_trials": "with --study: maximum number of trials to start (20)",
    "metrics_from": "with --study: what scores a trial: eval (default) or decode",
    "tuner": "with --study: how values are chosen: random, grid, tpe, gp",
    "schedule": "with --study: which trials continue: asha, hyperband, one_epoch, bracket, full",
    "jax_profiler_port": "port that a profiler can connect to",
    "jax_traceback_filtering_option": "how JAX shortens its tracebacks",
    "pgle": "profile-guided scheduling on NVIDIA GPUs: auto, profile (trace some updates), a profile.pb, off",
    "pgle_runs": "with --pgle=auto: calls that are profiled before programs are compiled again (3)",
    "pgle_percentile": "with --pgle=auto: which percentile over devices counts (90); lower where updates are noisy",
    "pgle_strip_pointer": "with --pgle=auto: false keeps pointers of callbacks in the key of the compilation cache",
    "multiprocess_gpu": "refuse to train alone: server_addr, num_hosts and host_idx name the others",
    "server_addr": "address:port of the first host",
    "num_hosts": "how many hosts there are",
    "host_idx": "index of this host",
}
SWITCHES = frozenset({
    "list", "help", "describe", "dry", "plan", "json", "verbose", "quiet", "version", "eval_on_test",
    "decode_during_train", "eval_during_decode", "jax_fully_async_checkpoint", "enable_checkpoint_saving",
    "exit_after_ondemand_checkpoint", "decode_output_pickle", "enable_summary_writer", "multiprocess_gpu",
    "pgle_strip_pointer", "inspect_gradient", "profile",
})  # fmt: skip
NUMBERS = frozenset(
    {
        "async_timeout_secs", "hang_seconds", "nproc", "max_restarts", "memory_copy_interval",
        "restore_checkpoint_step", "jax_profiler_port", "num_hosts", "host_idx", "devices", "pgle_runs",
        "pgle_percentile", "peek_batches", "num_trials",
    }
)  # fmt: skip
LISTS = frozenset({"callbacks", "report_to"})
ALONE = {"peek": "0/1"}
"""Flags that may be given without a value, with the value they then have."""

ALWAYS_SO = {
    "pmap_use_tensorstore": (True, "Every checkpoint is written by TensorStore."),
    "tensorstore_use_ocdbt": (True, "Checkpoints have few and large files."),
    "globally_use_hardware_rng": (False, "Random numbers do not depend on the mesh; those of the hardware would."),
    "maybe_use_persistence_checkpointing": (False, "There is only one checkpoint format."),
    "enforce_restore_shape_check": (True, "A checkpoint of other shapes is refused."),
    "enable_auto_sharding": (False, "JAX no longer has automatic sharding: set ICI_MESH_SHAPE."),
}
"""Flags of Pax with only one possible value here; the other value is refused with the sentence given."""

REFUSED = {
    "fdl": "Name an experiment by --exp and change it by --set NAME=value.",
    "fdl_config": "Name an experiment by --exp and change it by --set NAME=value.",
    "fdl_config_file": "Name an experiment by --exp and change it by --set NAME=value.",
    "fdl_set": "Write --set NAME=value, with a field of the experiment (x-exp NAME --describe shows them).",
    "fdl_tags": "Change fields by --set NAME=value.",
    "checkpoint_todelete_subdir": "Old checkpoints are deleted; set CHECKPOINT_MAX_TO_KEEP to keep more.",
    "startup_random_jitter_max_secs": "Processes start when they are started.",
    "tfds_data_dir": "TensorFlow Datasets is not used: set TRAIN_DATA, EVAL_DATA and VOCABULARY by --set.",
    "controller_mode": "Every process of a job trains each trial; the first one decides, with --study.",
    "tuner_group": "One job trains the trials of a study one after another. x-tune spreads those of x-train.",
    "pythia_port": "A study needs no service: --study, and --tuner chooses the values.",
}
"""Flags of Pax that are not supported, and what to do instead."""

NO_MODES = dict.fromkeys(
    ("tf_data_service_dispatcher", "tf_data_service_worker"), "Inputs need no service: each process reads its own part."
)
_TRUE, _FALSE = frozenset({"true", "t", "1", "yes"}), frozenset({"false", "f", "0", "no"})


@dataclass
class Line:
    """The parsed command line.

    Attributes:
        exp: name of the experiment, '' if none is given.
        values: the flags given, by name; switches as bool, numbers as int.
        fields: `--set`, name -> text.
        words: after `--list` or `--help`.
    """

    exp: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def asks(self, name: str) -> bool:
        """Return whether a switch is on."""
        return bool(self.values.get(name, False))


def parse(words: Sequence[str]) -> Line:
    """Parse the words after the program's name. Raises ConfigError with every fault."""
    reader = _Reader(list(words))
    reader.read()
    if reader.faults:
        raise ConfigError("command line", reader.faults)
    return reader.line


class _Reader:
    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.line = Line()
        self.faults: list[Fault] = []

    def read(self) -> None:
        while self.words:
            word = self.words.pop(0)
            if word == "-h":
                word = "--help"
            if word.startswith("-") and len(word) > 1:
                self.flag(word)
            elif self.line.asks("list") or self.line.asks("help"):
                self.line.words.append(word)
            elif not self.line.exp:
                self.line.exp = word
            else:
                self.fault(word, "is not expected here.", "Flags begin with --; set fields by --set.")
        self.line.exp = str(self.line.values.pop("exp", self.line.exp))
        self.check_whole()

    def flag(self, word: str) -> None:
        name, equals, text = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        value = text if equals else None
        if name.startswith("fdl.") or name in REFUSED:
            self.take(value)
            reason = REFUSED.get(name, REFUSED["fdl"])
            self.fault(f"--{name}", "is not available here.", reason)
        elif name.removeprefix("no") in SWITCHES or name.removeprefix("no") in ALWAYS_SO:
            self.switch(name, value)
        elif name in OWN_FLAGS or name in RUN_FLAGS:
            self.option(name, value)
        else:
            self.unknown(name, word)

    def switch(self, name: str, value: str | None) -> None:
        known = name in SWITCHES or name in ALWAYS_SO
        plain, said = (name, "true") if known else (name.removeprefix("no"), "false")
        if value is not None:
            said = value
        if said.lower() not in _TRUE | _FALSE:
            self.fault(f"--{name}", f"is '{said}'.", "Use true or false.")
            return
        on = said.lower() in _TRUE
        if plain not in ALWAYS_SO:
            self.line.values[plain] = on
        elif on is not ALWAYS_SO[plain][0]:
            self.fault(f"--{plain}", f"is {str(on).lower()}, which is not available.", ALWAYS_SO[plain][1])

    def option(self, name: str, value: str | None) -> None:
        text = self.take(value) if name not in ALONE else ALONE[name] if value is None else value
        if text is None:
            self.fault(f"--{name}", "has no value.", f"Write --{name}=...: {(OWN_FLAGS | RUN_FLAGS)[name]}.")
        elif name == "set":
            self.set_field(text)
        elif name in NUMBERS:
            self.number(name, text)
        elif name in LISTS:
            self.names(name, text)
        else:
            self.line.values[name] = text

    def take(self, value: str | None) -> str | None:
        """Return the value of a flag: the text after `=`, or else the next word."""
        if value is not None:
            return value
        return self.words.pop(0) if self.words and not self.words[0].startswith("--") else None

    def set_field(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if equals and name:
            self.line.fields[name.strip()] = value
        else:
            self.fault(f"--set {text}", "sets nothing.", "Write --set NAME=value.")

    def number(self, name: str, text: str) -> None:
        if text.isdecimal():
            self.line.values[name] = int(text)
        else:
            self.fault(f"--{name}", f"is '{text}'.", "Use a whole number.")

    def names(self, name: str, text: str) -> None:
        try:
            found = json.loads(text) if text.startswith(("[", "{")) else text.split(",")
        except ValueError as error:
            self.fault(f"--{name}", f"is '{text}', which is not JSON ({error}).", "Write comma-separated names.")
            return
        self.line.values[name] = found if isinstance(found, list) else [found]

    def unknown(self, name: str, word: str) -> None:
        known = [*OWN_FLAGS, *RUN_FLAGS, *ALWAYS_SO]
        near = nearest(name, known)
        self.fault(word.partition("=")[0], "no such flag.", f"Did you mean --{near}?" if near else "See x-exp --help.")

    def check_whole(self) -> None:
        self.check_mode()
        looks = any(self.line.asks(name) for name in ("plan", "dry"))
        for name in ("devices", "json"):
            if name in self.line.values and not looks:
                self.fault(f"--{name}", "needs --plan or --dry.", "Add --plan.")
        for name in ("pgle", "pgle_runs", "pgle_percentile", "pgle_strip_pointer"):
            if name in self.line.values and looks:
                remedy = "It measures programs that run; --plan and --dry compile ahead of time at most. Leave it out."
                self.fault(f"--{name}", "cannot be combined with --plan and --dry.", remedy)
        if "peek_batches" in self.line.values and "peek" not in self.line.values:
            self.fault("--peek_batches", "needs --peek.", "Add --peek.")

        for name in ("num_trials", "metrics_from", "tuner", "schedule"):
            if name in self.line.values and "study" not in self.line.values:
                self.fault(f"--{name}", "needs --study.", "Add --study=NAME.")
        if self.line.values.get("metrics_from", "eval") not in ("eval", "decode"):
            self.fault("--metrics_from", f"is '{self.line.values['metrics_from']}'.", "Use eval or decode.")
        if "study" in self.line.values and self.line.values.get("mode", "train") != "train":
            self.fault("--study", f"needs mode train, not {self.line.values['mode']}.", "Leave --mode out.")

    def check_mode(self) -> None:
        """Add the faults of the mode: modes that only Pax has here, all others by `mode_faults`."""
        values = self.line.values
        if values.get("mode") in NO_MODES:
            self.fault("--mode", f"is '{values['mode']}'.", NO_MODES[values["mode"]])
        elif {"mode", "restore_checkpoint_dir", "restore_checkpoint_step"} & values.keys():
            from xdpx.experiments.running.options import mode_faults  # imports numpy, which --help avoids

            for fault in mode_faults(values):
                self.fault(f"--{fault.key}", fault.problem, fault.remedy)

    def fault(self, key: str, problem: str, remedy: str) -> None:
        self.faults.append(Fault(key, problem, remedy))


def usage() -> str:
    """Return the help text of x-exp."""
    from xdpx import __version__

    def table(flags: dict[str, str]) -> list[str]:
        return [f"  --{name.ljust(31)} {text}" for name, text in flags.items()]

    lines = [
        f"xdpx {__version__}: sharded experiments on JAX", "",
        "  x-exp NAME --job_log_dir=DIR [flags]         python -m xdpx.main --exp=NAME --job_log_dir=DIR [flags]", "",
        "look", *table(OWN_FLAGS), "", "run", *table(RUN_FLAGS), "",
        f"always so: {', '.join(f'--{name}={str(value).lower()}' for name, (value, _) in ALWAYS_SO.items())}",
    ]  # fmt: skip
    return "\n".join(lines)


Action = Callable[[Line], int]
