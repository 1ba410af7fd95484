"""Write a trained network as TorchScript, which runs without Python; say how large and how fast it is.

Usage: x-script export_torchscript CONFIG [key=value ...] [--dry]

The config names a run as for x-eval, and out_dir, which gets model.pth (TorchScript: the inputs in the order that is
printed -> logits), vocab.txt, labels.txt (a class per line) and inputs.json. The script stops when the file would give
other logits than the network, for short and long texts. Time is taken on one thread, text by text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, make_plan
from xdpx.utils import io

if TYPE_CHECKING:
    from torch import nn

    from xdpx.inference.predictor import Predictor

NAME = "export_torchscript"
LENGTHS = (12, 3, 7)
OTHER_LENGTHS = ((1,), (30, 2), (5, 5, 5, 5))


class ExportTorchscript:
    """Write a trained network as TorchScript.

    Attributes:
        file: name of the file with the network.
    """

    file: ClassVar[str] = "model.pth"

    class Parameters(InferenceParameters):
        """The keys of `x-script export_torchscript`."""

        out_dir: str = param(doc="Folder for model.pth, vocab.txt, labels.txt and inputs.json; theirs are replaced.")

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: ExportTorchscript.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return what can be seen to be wrong before the model is built."""
        known = self.parameters
        found = []
        if not io.is_writable(known.out_dir):
            found.append(Fault("out_dir", f"'{known.out_dir}' cannot be written.", "Choose another place."))
        try:
            make_plan(known, self.source)
        except ConfigError as error:
            found += error.faults
        return found

    def run(self) -> None:
        """Trace, compare, write, and time."""
        from xdpx.inference import tracing
        from xdpx.inference.predictor import Predictor

        predictor = Predictor(make_plan(self.parameters, self.source), cuda=False, seed=self.parameters.seed)
        model, processor = predictor.task.model, predictor.processor
        longest = processor.parameters.max_len - processor.num_special
        first, *others = (tracing.sample_inputs(processor, each) for each in (LENGTHS, *OTHER_LENGTHS, (longest,)))
        traced = tracing.trace(model, first, others)
        content, network = self.packed(traced, [first, *others])
        self._write(predictor, list(first), content)
        print(f"{io.join(self.parameters.out_dir, self.file)}: {_size(len(content))}; inputs: {', '.join(first)}")
        for length in sorted({min(length, longest) for length in (8, 32, longest)}):
            one = tracing.sample_inputs(processor, [length])
            time = f"{tracing.milliseconds(network, one):.3f} ms for a text of {length} tokens, on one thread"
            print(f"  {time} (median of {tracing.RUNS})")

    def packed(self, traced: nn.Module, batches: Sequence[Any]) -> tuple[bytes, Any]:
        """Return the file of a traced network, and what runs it; `batches` are some of several shapes."""
        from xdpx.inference import tracing

        del batches
        return tracing.content_of(traced), traced

    def _write(self, predictor: Predictor, inputs: list[str], content: bytes) -> None:
        from xdpx.utils.commit import replacing, write_text

        out_dir = self.parameters.out_dir
        io.makedirs(out_dir)
        with replacing(io.join(out_dir, self.file), "wb") as file:
            file.write(content)
        words = predictor.plan.resource("vocab.txt")
        if words:
            io.copy(words, io.join(out_dir, "vocab.txt"))
        write_text(io.join(out_dir, "labels.txt"), "".join(f"{label}\n" for label in predictor.labels or []))
        known = predictor.processor.parameters
        facts = {"inputs": inputs, "max_len": known.max_len, "pad_index": predictor.processor.pad_index}
        write_text(io.join(out_dir, "inputs.json"), json.dumps(facts) + "\n")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1024:.1f} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):.2f} MiB"


def main(argv: Sequence[str]) -> int:
    """Run it for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
