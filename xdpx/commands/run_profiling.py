"""Measure the time of a network by module, and write it as a trace for chrome://tracing.

Usage: x-script run_profiling CONFIG [key=value ...] [--dry]
       x-script run_profiling NAME TRACE.json [-key=value ...]

The config names a run (or a config of one) as for x-eval, the rows to read (valid_subset), and trace_path. Batches go
forward through the network; the modules that took longest are printed.

NAME is a registered profile: a network with random weights and generated rows. albert_lm, bert_classification, bert_lm,
lopkm, mlman (also mgimn), pkm and rezero are included; your own are in user/modules (see xdpx/models/profiles.py).
-key=value changes the network (-num_hidden_layers=2), the batch (-batch_size=8 -seq_len=64), or the measurement:
-profile_steps=10, -engine=spmd (the same network on JAX), -cuda=false.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.commands.script_arguments import faults_of_paths, need_paths, read_arguments, run_config
from xdpx.config.faults import ConfigError, Fault, unknown_name
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, find_input, make_plan
from xdpx.utils import io

NAME = "run_profiling"
WARM = 2
"""Batches before the measurement: the first ones allocate memory and compile."""
SHOWN = 20


class RunProfiling:
    """Measure the time of a network by module."""

    class Parameters(InferenceParameters):
        """The keys of `x-script run_profiling`."""

        valid_subset: str = param("dev", doc="Rows to run on: a split of data_dir, or a labelled file.")
        trace_path: str = param(doc="File for the trace (.json); open it in chrome://tracing.", unique=True)
        profile_steps: int = param(10, gt=0, doc="Number of batches to measure.")

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: RunProfiling.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        return faults_of_paths(
            self.parameters, self.source, writes="trace_path", ending=".json", reads=["valid_subset"]
        )

    def run(self) -> None:
        """Measure, print the slowest modules, and write the trace."""
        import tempfile

        from xdpx.inference.predictor import Predictor
        from xdpx.training.callbacks.profiling import module_lines, write_pictures

        known = self.parameters
        plan = make_plan(known, self.source)
        predictor = Predictor(plan, cuda=known.cuda, seed=known.seed)
        source = find_input(known.valid_subset, plan, "valid_subset", self.source)
        batches = list(predictor.scored_batches(source, most=known.profile_steps))
        for batch in batches[:WARM]:
            predictor.engine.score(predictor.state, batch)
        with tempfile.TemporaryDirectory() as folder:
            with predictor.engine.traced(predictor.state, folder) as found:
                for batch in batches:
                    predictor.engine.score(predictor.state, batch)
            io.makedirs(io.parent(known.trace_path) or ".")
            io.copy(io.join(folder, "trace.json"), known.trace_path)
        for line in module_lines(found, len(batches), SHOWN):
            print(line)
        beside = known.trace_path.removesuffix(".json")
        write_pictures(found, beside, "png", title=f"{len(batches)} batches, forwards")
        print(f"{known.trace_path}: open it in chrome://tracing; {beside} has pictures")


def main(argv: Sequence[str]) -> int:
    """Measure a registered profile, given by name and trace file, or every run of a config."""
    settings = [word for word in argv if "=" in word and not word.startswith("--")]
    others = [word for word in argv if word not in settings]
    if any(word.startswith("-") for word in settings) or (len(others) == 2 and others[1].endswith(".json")):
        return _registered(others, settings)
    return run_config(NAME, argv)


def _registered(words: Sequence[str], settings: Sequence[str]) -> int:
    """Measure a registered profile and print its table."""
    from xdpx.commands.registered_profile import measure
    from xdpx.config.located import plain
    from xdpx.config.overrides import read_overrides
    from xdpx.config.user_modules import load_user_modules
    from xdpx.models.profiles import profiles

    load_user_modules()
    arguments = read_arguments(NAME, words)
    need_paths(NAME, arguments, "x-script run_profiling NAME TRACE.json [-key=value ...]", exactly=2)
    name, path = arguments.paths
    overrides, faults = read_overrides([word.removeprefix("-") for word in settings])
    if name not in profiles:
        faults.append(unknown_name("profile", name, profiles))
    if not path.endswith(".json"):
        faults.append(Fault("trace", f"is '{path}'.", "Name a file that ends with .json."))
    elif not io.is_writable(path):
        faults.append(Fault("trace", f"'{path}' cannot be written.", "Choose another place."))
    if faults:
        raise ConfigError(f"x-script {NAME}", faults)
    for line in measure(name, {".".join(each.keys): plain(each.value) for each in overrides}, path):
        print(line)
    print(f"{path}: open it in https://ui.perfetto.dev or chrome://tracing")
    return 0
