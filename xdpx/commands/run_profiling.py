"""Measure where the time of a network goes, module by module, and write it as a trace for chrome://tracing.

Usage: x-script run_profiling CONFIG [key=value ...] [--dry]

The config names a run (or a config of one) as for x-eval, what to read (valid_subset), and trace_path. Batches go
through the network forwards; the modules that took longest are printed.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.commands.script_arguments import faults_of_paths, run_config
from xdpx.config.faults import Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, find_input, make_plan
from xdpx.utils import io

NAME = "run_profiling"
WARM = 2
"""Batches before those that are measured: the first ones allocate and compile."""
SHOWN = 20


class RunProfiling:
    """Measure where the time of a network goes, module by module."""

    class Parameters(InferenceParameters):
        """The keys of `x-script run_profiling`."""

        valid_subset: str = param("dev", doc="What to read: a split of data_dir, or a labelled file.")
        trace_path: str = param(doc="File for the trace (.json), to be opened in chrome://tracing.")
        profile_steps: int = param(10, gt=0, doc="Batches that are measured.")

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: RunProfiling.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return what can be seen to be wrong before the model is built."""
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
    """Run it for every run of a config."""
    return run_config(NAME, argv)
