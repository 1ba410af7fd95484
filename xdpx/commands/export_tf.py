"""Export a trained network for TensorFlow 2: as a SavedModel, or as a checkpoint with Google's names.

Usage: x-script export_tf save_dir=... out_dir=... [key=value ...] [--dry]

The keys name a run as for x-eval. As a savedmodel out_dir is loaded by TensorFlow Serving: a signature for token ids
with dynamic rows and lengths, whose outputs are logits, prob, pred_index and, with init_tables, the label as pred; and
one that takes strings (`text`), split into words at white space. As a checkpoint it gets out_name.index, .data and
.meta with the names of BERT and ALBERT, bert_config.json and vocab.txt. Both are read back and compared with the run.
It needs `pip install 'xdpx[tf]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from xdpx.commands.exports import ExportCommand, ExportParameters
from xdpx.commands.script_arguments import run_config, unfit_name
from xdpx.config.parameters import param
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.formats import Format

NAME = "export_tf"
SAVED: tuple[str, Literal["is"], str] = ("export_format", "is", "savedmodel")


class ExportTF(ExportCommand):
    """Export a trained network for TensorFlow 2."""

    format_name: ClassVar[str] = "tf"

    class Parameters(ExportParameters):
        """The keys of `x-script export_tf`."""

        export_format: Literal["savedmodel", "checkpoint"] = param(
            "savedmodel", doc="A program that TensorFlow runs, or only the weights under Google's names of BERT."
        )
        signature_def_key: str = param("serving_default", doc="Name of the signature of token ids.", when=SAVED)
        init_tables: bool = param(
            True, doc="Store tables of labels and words in the graph, so that pred is text and `text` takes text.",
            when=SAVED,
        )  # fmt: skip
        fix_len: bool = param(False, doc="Fix the length: the caller pads every text to max_len tokens.", when=SAVED)
        check_outputs: bool = param(
            False, doc="Stop at a difference from the run of 1e-5 (1 + |x|), not of 1e-4; it is always compared.",
            when=SAVED,
        )  # fmt: skip
        out_name: str = param("bert_model.ckpt", doc="Prefix of the files.", when=("export_format", "is", "checkpoint"))
        strict_size: bool = param(True, doc="Accepted without effect: sizes are those of the run.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse names that a signature or a file cannot have."""
            from xdpx.inference.tf.texts import TEXT

            found, name = super().conflicts(), self.signature_def_key
            if not name.strip():
                found.append(("signature_def_key", "is empty. Name the signature of token ids, e.g. serving_default."))
            elif name == TEXT and self.init_tables:
                problem = f"is '{TEXT}', the signature that takes strings. Use another name, or init_tables: false."
                found.append(("signature_def_key", problem))
            return found + unfit_name("out_name", self.out_name)

    def format(self) -> Format:
        """Return the SavedModel format with the options chosen."""
        from xdpx.inference.tf.saved_model import SavedModelFormat

        known = self.parameters
        return SavedModelFormat(
            signature_def_key=known.signature_def_key, init_tables=known.init_tables, fix_len=known.fix_len,
            check_outputs=known.check_outputs,
        )  # fmt: skip

    def run(self) -> None:
        """Write the export, compare it with the run, and print the measurements."""
        if self.parameters.export_format == "savedmodel":
            super().run()
            return
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        from xdpx.inference.exporting import staged
        from xdpx.inference.plan import make_plan
        from xdpx.inference.predictor import Predictor
        from xdpx.inference.tf import checkpoint
        from xdpx.logger import log
        from xdpx.utils import commit

        known = self.parameters
        plan = make_plan(known.model_copy(update={"engine": "pytorch", "mesh": None, "nproc": None}), self.source)
        predictor = Predictor(plan, cuda=False, seed=known.seed)
        model, plan = predictor.task.model, predictor.plan
        weights, unknown = checkpoint.named(model)
        if unknown:
            log.warning(f"left out, because Google has no name for them: {', '.join(unknown)}")
        words = plan.resource("vocab.txt")
        with staged(known.out_dir, {"format": self.format_name, "checkpoint": plan.checkpoint}) as folder:
            checkpoint.write(weights, io.join(folder, known.out_name))
            commit.write_text(io.join(folder, checkpoint.CONFIG), model.config.to_json_string(use_diff=False))
            if words is not None:
                io.copy(words, io.join(folder, "vocab.txt"))
        prefix = io.join(known.out_dir, known.out_name)
        print(f"{prefix}: {len(weights)} variables of {plan.checkpoint}, read back equal")


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    return run_config(NAME, argv)
