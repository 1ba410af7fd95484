"""Initialise product-key memories so that they approximate the feed-forward layers of a BERT.

Usage: x-script pkm_init CONFIG [key=value ...] [--dry]

The config names a run (or a config of one) as for x-eval, the layers (mem_positions), and the sizes of the memories.
Queries are the principal components of the inputs of each feed-forward layer, keys are k-means centres of them, and
values are trained on the outputs. save_path gets the memories, and beside it a config with the keys to use them: make
it a __parent__ of a run with bert_*_pkm, or with bert_*_lopkm if ncells is given.

Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019; Kalantidis and Avrithis, CVPR 2014.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from xdpx.commands.script_arguments import faults_of_paths, run_config
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import Parameters, param
from xdpx.inference.plan import InferenceParameters, InferencePlan, find_input, make_plan
from xdpx.logger import log
from xdpx.utils import io

if TYPE_CHECKING:
    from torch import Tensor

    from xdpx.inference.predictor import Predictor
    from xdpx.models.pytorch.memory_start import Clustering, Memory

NAME = "pkm_init"
CLUSTERS = "clustering"
VALUES = "values"


class ClusterParameters(Parameters):
    """How cells and keys are found, and values trained."""

    pca_iter: int = param(200, doc="Maximum number of batches to read.", gt=0, group=CLUSTERS)
    coarse_kmeans_iter: int = param(500, doc="Passes of k-means for cells.", gt=0, group=CLUSTERS)
    coarse_kmeans_tolerance: float = param(0.0, doc="Movement of centres at which it stops.", ge=0, group=CLUSTERS)
    coarse_kmeans_seed: int = param(1, doc="Its random seed.", ge=0, group=CLUSTERS)
    coarse_kmeans_n_init: int = param(50, doc="Its random restarts; the best is kept.", gt=0, group=CLUSTERS)
    coarse_kmeans_reassignment_ratio: float = param(
        0.01, doc="Share of the largest cluster below which a centre is drawn again.", ge=0, lt=1, group=CLUSTERS
    )
    fine_kmeans_iter: int = param(2000, doc="Passes of k-means for keys.", gt=0, group=CLUSTERS)
    fine_kmeans_tolerance: float = param(0.0, doc="Movement of centres at which it stops.", ge=0, group=CLUSTERS)
    fine_kmeans_seed: int = param(1, doc="Its random seed, and that of the queries.", ge=0, group=CLUSTERS)
    fine_kmeans_n_init: int = param(4, doc="Its random restarts; the best is kept.", gt=0, group=CLUSTERS)
    fine_kmeans_reassignment_ratio: float = param(
        0.01, doc="Share of the largest cluster below which a centre is drawn again.", ge=0, lt=1, group=CLUSTERS
    )
    value_init_iter: int = param(1000, doc="Updates of the values, first part.", ge=0, group=VALUES)
    value_finetune_iter: int = param(8000, doc="Updates of the values, second part.", ge=0, group=VALUES)
    value_finetune_lr: float = param(0.001, doc="Learning rate of the values.", gt=0, group=VALUES)


class PKMInit:
    """Initialise product-key memories so that they approximate the feed-forward layers of a BERT."""

    class Parameters(InferenceParameters, ClusterParameters):
        """The keys of `x-script pkm_init`."""

        save_path: str = param(
            doc="File for the memories (.pt); a config for x-train is written beside it (.hjson).", unique=True
        )
        mem_positions: list[int] = param(
            doc="Layers whose feed-forward parts are approximated; negative: from the last."
        )
        train_subset: str = param("train", doc="Texts to learn from: a split of data_dir, or a labelled file.")
        max_tokens: int = param(100_000, gt=0, doc="Maximum number of tokens to learn from; all are kept in memory.")
        k_dim: int = param(doc="Width of a query: mem_k_dim.", ge=2)
        nkeys: int = param(doc="Keys of each half: mem_keys.", gt=0)
        nheads: int = param(doc="Queries of a token: mem_heads.", gt=0)
        knn: int = param(doc="Slots that each query reads: mem_knn.", gt=0)
        ncells: int | None = param(None, doc="Cells of each head, for bert_*_lopkm; null: for bert_*_pkm.", gt=0)
        input_size: int | None = param(None, doc="Width of the layers; only compared with the model's.", gt=0)
        output_size: int | None = param(None, doc="As input_size.", gt=0)

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse an odd width, as a query is split into halves."""
            odd = [("k_dim", f"is {self.k_dim}. Use an even number.")] if self.k_dim % 2 else []
            return [*super().conflicts(), *odd]

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: PKMInit.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built, including a missing package."""
        problem, remedy = "needs the package scikit-learn.", "Run: pip install 'xdpx[sklearn]'."
        missing = [Fault(NAME, problem, remedy)] if find_spec("sklearn") is None else []
        return missing + faults_of_paths(
            self.parameters, self.source, writes="save_path", ending=".pt", reads=["train_subset"]
        )

    def run(self) -> None:
        """Collect inputs and outputs of the layers, make a memory for each, and save them."""
        from xdpx.checkpoints.trusted import save_tensors
        from xdpx.inference.predictor import Predictor
        from xdpx.models.pytorch.memory_start import common_sharpness, learn_values, weights_of
        from xdpx.utils.commit import replacing, write_text

        known = self.parameters
        plan = make_plan(known, self.source)
        predictor = Predictor(plan, cuda=known.cuda, seed=known.seed)
        seen = self._seen(predictor, plan)
        memories = {number: self._placed(states) for number, (states, _) in seen.items()}
        alpha = common_sharpness(memories, {number: states for number, (states, _) in seen.items()})
        for number, (states, added) in seen.items():
            before, after = learn_values(
                memories[number], states, added, updates=known.value_init_iter + known.value_finetune_iter,
                rate=known.value_finetune_lr, seed=known.seed,
            )  # fmt: skip
            log.info(f"layer {number}: {len(states):,} tokens, mean square error {before:.4g} -> {after:.4g}")
        with replacing(known.save_path, "wb") as file:
            save_tensors(weights_of(memories), file)
        text = json.dumps(self._keys(list(memories), alpha), indent=2)
        write_text(known.save_path.removesuffix(".pt") + ".hjson", f"{text}\n")
        log.info(
            f"{known.save_path}: memories of layers {', '.join(map(str, memories))}; the config beside it uses them"
        )

    def _seen(self, predictor: Predictor, plan: InferencePlan) -> dict[int, tuple[Tensor, Tensor]]:
        """Return the inputs and outputs of each feed-forward layer, (N, H) each."""
        import torch

        from xdpx.engines.pytorch.transfer import to_device
        from xdpx.models.pytorch.pkm import feed_forward, layers_of

        known, model = self.parameters, predictor.task.model
        self._refuse_misfit(model)
        layers = layers_of(model.bert, known.mem_positions, "mem_positions")
        source = find_input(known.train_subset, plan, "train_subset", self.source)
        parts: dict[int, list[tuple[Tensor, Tensor]]] = {number: [] for number in layers}
        tokens = 0
        model.eval()
        for batch in predictor.scored_batches(source, most=known.pca_iter):
            with torch.no_grad():
                found = feed_forward(model, layers, to_device(batch, predictor.engine.device)["net_input"])
            for number, (states, added) in found.items():
                parts[number].append((states.float().cpu(), added.float().cpu()))
            tokens += len(next(iter(found.values()))[0])
            if tokens >= known.max_tokens:
                break
        return {
            number: (torch.cat([states for states, _ in pairs]), torch.cat([added for _, added in pairs]))
            for number, pairs in parts.items()
        }

    def _refuse_misfit(self, model: Any) -> None:
        known = self.parameters
        if not hasattr(model, "bert"):
            fault = Fault("save_dir", "is not a run of a BERT, so it has no feed-forward parts.", "Name another run.")
            raise ConfigError(self.source, [fault])
        width = int(model.config.hidden_size)
        wrong = {
            "input_size": known.input_size not in {None, width},
            "output_size": known.output_size not in {None, width},
            "k_dim": known.k_dim > width,
        }
        faults = [
            Fault(
                key, f"is {getattr(known, key)}, but the layers are {width} wide.", f"Use {width}, or less for k_dim."
            )
            for key, is_wrong in wrong.items()
            if is_wrong
        ]
        if faults:
            raise ConfigError(self.source, faults)

    def _placed(self, states: Tensor) -> Memory:
        """Return a memory with keys placed by clustering of the inputs (N, H)."""
        from xdpx.models.pytorch.memory_start import place_keys
        from xdpx.models.pytorch.modules.product_keys import (
            LocalMemory,
            LocalMemoryParameters,
            MemoryParameters,
            ProductKeyMemory,
        )

        known, sizes = self.parameters, self._sizes()
        memory: Memory
        if known.ncells is None:
            of_keys = MemoryParameters.model_validate({**sizes, "distance_fn": "euc", "kernel_alpha": 1.0})
            memory = ProductKeyMemory(of_keys, states.shape[1], 0.0)
        else:
            of_cells = LocalMemoryParameters.model_validate({**sizes, "mem_cells": known.ncells})
            memory = LocalMemory(of_cells, states.shape[1], 0.0)
        place_keys(memory, states, self._clustering("fine"), self._clustering("coarse"))
        return memory

    def _clustering(self, kind: str) -> Clustering:
        from xdpx.models.pytorch.memory_start import Clustering

        told = self.parameters.model_dump()
        names = ("iter", "n_init", "seed", "tolerance", "reassignment_ratio")
        return Clustering(*(told[f"{kind}_kmeans_{name}"] for name in names))

    def _sizes(self) -> dict[str, int]:
        known = self.parameters
        return {"mem_k_dim": known.k_dim, "mem_heads": known.nheads, "mem_knn": known.knn, "mem_keys": known.nkeys}

    def _keys(self, layers: list[int], alpha: float | None) -> dict[str, Any]:
        """Return the keys of a training that starts from these memories."""
        known = self.parameters
        cells = {"mem_cells": known.ncells}
        kind = cells if alpha is None else {"distance_fn": "euc", "kernel_alpha": alpha}
        named = {"mem_positions": layers, "pretrained_memories": io.abspath(known.save_path)}
        return {**named, **self._sizes(), **kind}


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    return run_config(NAME, argv)
