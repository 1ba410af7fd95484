"""Remove the least important attention heads of a trained BERT: smaller, faster, and hardly less accurate.

Usage: x-script prune_heads CONFIG [key=value ...] [--dry]

The config names a run as for x-eval, the data to measure on (train_subset, train_steps), and the number of heads to
remove from each layer (prune_config). Scores on valid_subset are printed before and after. save_path gets the weights
and config.json: use it as pretrained_model, for further training or prediction.

Source: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdpx.commands.script_arguments import faults_of_paths, run_config
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, InferencePlan, find_input, make_plan
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.predictor import Predictor

NAME = "prune_heads"
WEIGHTS = "pytorch_model.bin"


class PruneHeads:
    """Remove the least important attention heads of a trained BERT."""

    class Parameters(InferenceParameters):
        """The keys of `x-script prune_heads`."""

        train_subset: str = param(doc="Labelled data to measure the heads on: a split of data_dir, or a file.")
        train_steps: int = param(doc="How many batches to measure on.", gt=0)
        valid_subset: str = param("dev", doc="Data to score before and after.")
        prune_config: dict[str, int] = param(
            doc="How many heads to remove from which layer: {0: 2, -1: 4}; negative layers count from the last.", ge=0
        )
        save_path: str = param(
            doc="Folder, or .pt file, for the weights; config.json is written beside them.", unique=True
        )

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: PruneHeads.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        known = self.parameters
        found = faults_of_paths(known, self.source, writes="save_path", reads=["train_subset", "valid_subset"])
        bad = [layer for layer in known.prune_config if not layer.removeprefix("-").isdigit()]
        if bad or not known.prune_config:
            found.append(Fault("prune_config", f"names the layers {bad}.", "Use numbers, e.g. {0: 2, -1: 4}."))
        return found

    def run(self) -> None:
        """Measure the heads, prune, score before and after, and save."""
        from xdpx.inference.predictor import Predictor
        from xdpx.models.pytorch import pruning
        from xdpx.reports.tables import as_text, union_of_keys

        known = self.parameters
        plan = make_plan(known, self.source)
        predictor = Predictor(plan, cuda=known.cuda, seed=known.seed)
        model = predictor.task.model
        if not hasattr(model, "bert"):
            fault = Fault("save_dir", "is not a run of a BERT, so it has no attention heads.", "Name another run.")
            raise ConfigError(self.source, [fault])
        before = self._scores(predictor, plan)
        found = pruning.weakest(pruning.importances(model.bert, self._losses(predictor, plan)), known.prune_config)
        gone = _numbered(found, model.pruned, model.config.num_attention_heads)
        pruning.prune(model.bert, found)
        pruning.note(model.config, gone)
        after = self._scores(predictor, plan)
        rows: list[dict[str, Any]] = [{"heads": "before", **before}, {"heads": "after", **after}]
        sys.stdout.write(as_text(rows, union_of_keys(rows)))
        print(f"pruned heads by layer: {model.config.pruned_heads}")
        self._save(model)

    def _scores(self, predictor: Predictor, plan: InferencePlan) -> dict[str, float]:
        from xdpx.tasks.scoring import evaluate

        source = find_input(self.parameters.valid_subset, plan, "valid_subset", self.source)
        batches = predictor.scored_batches(source)
        return evaluate(predictor.engine, predictor.state, batches, predictor.task.loss)

    def _losses(self, predictor: Predictor, plan: InferencePlan) -> Iterator[Any]:
        """Yield the mean loss of each batch in evaluation mode (no dropout, noise or teacher), with its graph.

        Raises:
            ConfigError: the loss returns no loss_sum among its predictions.
        """
        from xdpx.engines.pytorch.transfer import to_device

        source = find_input(self.parameters.train_subset, plan, "train_subset", self.source)
        predictor.task.model.requires_grad_(True).eval()
        for batch in predictor.scored_batches(source, most=self.parameters.train_steps):
            found = predictor.task.valid_step(to_device(batch, predictor.engine.device))
            if "loss_sum" not in found:
                fault = Fault(
                    "loss", "does not return its own sum with its predictions.", "Return loss_sum and count there."
                )
                raise ConfigError(self.source, [fault])
            yield found["loss_sum"] / found["count"]

    def _save(self, model: Any) -> None:
        from xdpx.checkpoints.trusted import save_tensors
        from xdpx.utils.commit import replacing, write_text

        path = self.parameters.save_path
        path = path if path.endswith((".pt", ".bin")) else io.join(path, WEIGHTS)
        with replacing(path, "wb") as file:
            save_tensors({name: value.cpu() for name, value in model.state_dict().items()}, file)
        for name, text in model.resource_files().items():
            write_text(io.join(io.parent(path), name), text)


def _numbered(found: Mapping[int, frozenset[int]], gone: Mapping[int, frozenset[int]], count: int) -> Any:
    """Return the heads by their numbers in the unpruned network, together with those pruned before."""
    there = {layer: [head for head in range(count) if head not in gone.get(layer, ())] for layer in found}
    fresh = {layer: frozenset(there[layer][head] for head in heads) for layer, heads in found.items()}
    return {layer: fresh.get(layer, frozenset()) | gone.get(layer, frozenset()) for layer in sorted({*fresh, *gone})}


def main(argv: Sequence[str]) -> int:
    """Run it for every run of a config."""
    return run_config(NAME, argv)
