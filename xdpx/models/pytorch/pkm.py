"""BERT with product-key memories instead of some feed-forward layers, and models to train such memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.models.pytorch import weights
from xdpx.models.pytorch.base import Model, ReadWeights
from xdpx.models.pytorch.bert import Bert
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.bert_lm import BertLanguageModel, BertPretrain
from xdpx.models.pytorch.modules.product_keys import (
    LocalMemory,
    LocalMemoryParameters,
    MemoryOutput,
    MemoryParameters,
    ProductKeyMemory,
)
from xdpx.models.pytorch.parameters import MEMORY_GROUP, BertParameters, ModelParameters

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MEMORY = "memory"
VALUES = "values.weight"


def layers_of(encoder: PreTrainedModel, positions: Sequence[int], key: str) -> dict[int, Any]:
    """Return {index: layer} of a BERT; negative positions count from the last.

    Raises:
        ConfigError: a layer does not exist, or the layers are not those of BERT.
    """
    layers = getattr(getattr(encoder, "encoder", None), "layer", ())
    if not layers or not all(hasattr(each, "intermediate") and hasattr(each, "output") for each in layers):
        problem = f"is '{encoder.config.model_type}', whose layers have no feed-forward part like BERT's."
        raise refusal("model_type", problem, "Use bert or roberta.")
    found = sorted({position + len(layers) * (position < 0) for position in positions})
    if not found or found[0] < 0 or found[-1] >= len(layers):
        problem = f"is {list(positions)}, but there are {len(layers)} layers."
        raise refusal(key, problem, f"Use numbers from {-len(layers)} to {len(layers) - 1}.")
    return {number: layers[number] for number in found}


class PlaceParameters(BertParameters):
    """Positions of the memories in a BERT, and their initial weights."""

    mem_positions: list[int] = declare.param(
        doc="Layers with a memory as feed-forward part, from 0; negative from the last.", group=MEMORY_GROUP
    )
    share_memory: bool = declare.param(False, doc="Share one memory between all of these layers.", group=MEMORY_GROUP)
    pretrained_memories: str | None = declare.param(
        None,
        doc="Initial memories: from x-script pkm_init, or a run of task pkm_distill.",
        group=MEMORY_GROUP,
    )


class WithMemories:
    """Mixin before a BERT class that replaces feed-forward layers by memories.

    Values are in a parameter group named memory, without weight decay: `optimizer: pair` has a separate learning rate
    for them.
    """

    bert: Any
    parameters_used: Any
    make_memory: Callable[[Any, int, float], nn.Module]

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)  # type: ignore[call-arg]
        config, shared = self.bert.config, None
        for layer in layers_of(self.bert, parameters.mem_positions, "mem_positions").values():
            made = shared or type(self).make_memory(parameters, config.hidden_size, config.initializer_range)
            layer.intermediate, layer.output = made, MemoryOutput(layer.output)
            shared = made if parameters.share_memory else None
        if parameters.fix_lm:
            self.bert.requires_grad_(requires_grad=False)

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load the weights of the network, then those of the memories."""
        super().load_pretrained(read_weights)  # type: ignore[misc]
        source = self.parameters_used.pretrained_memories
        if source:
            named = {in_layer(name): value for name, value in weights.read(source, read_weights).items()}
            weights.take_over(self, named, strict_size=True, source=source, in_part=True)  # type: ignore[arg-type]

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return the groups of BERT, and a group of the memories' values, without weight decay."""
        groups: list[dict[str, Any]] = super().parameter_groups(learning_rate)  # type: ignore[misc]
        return [{**group, "weight_decay": 0.0} if group["name"].startswith(MEMORY) else group for group in groups]

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        if name.endswith(f".intermediate.{VALUES}"):
            return MEMORY, learning_rate
        return super()._depth(name, learning_rate)  # type: ignore[misc,no-any-return]


def in_layer(name: str) -> str:
    """Return the name of a memory's weight inside a BERT: memories.3.keys is in layer 3."""
    kind, _, rest = name.partition(".")
    number, _, inner = rest.partition(".")
    return f"bert.encoder.layer.{number}.intermediate.{inner}" if kind == "memories" else name


class BertClassificationPKM(WithMemories, BertClassification):
    """As `bert_classification`, with product-key memories instead of some feed-forward layers.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 3.
    """

    make_memory = ProductKeyMemory

    class Parameters(MemoryParameters, PlaceParameters, BertClassification.Parameters):
        """Keys of `bert_classification_pkm`."""


class BertLanguageModelPKM(WithMemories, BertLanguageModel):
    """As `bert_lm`, with product-key memories instead of some feed-forward layers.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 3.
    """

    make_memory = ProductKeyMemory

    class Parameters(MemoryParameters, PlaceParameters, BertLanguageModel.Parameters):
        """Keys of `bert_lm_pkm`."""


class BertPretrainPKM(WithMemories, BertPretrain):
    """As `bert_pretrain`, with product-key memories instead of some feed-forward layers.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 3.
    """

    make_memory = ProductKeyMemory

    class Parameters(MemoryParameters, PlaceParameters, BertPretrain.Parameters):
        """Keys of `bert_pretrain_pkm`."""


class BertClassificationLOPKM(WithMemories, BertClassification):
    """As `bert_classification_pkm`, with memories that compare keys within cells.

    Source: Lample et al., NeurIPS 2019, section 3; cells of Kalantidis and Avrithis, CVPR 2014, section 3.
    """

    make_memory = LocalMemory

    class Parameters(LocalMemoryParameters, PlaceParameters, BertClassification.Parameters):
        """Keys of `bert_classification_lopkm`."""


class BertLanguageModelLOPKM(WithMemories, BertLanguageModel):
    """As `bert_lm_pkm`, with memories that compare keys within cells.

    Source: Lample et al., NeurIPS 2019, section 3; cells of Kalantidis and Avrithis, CVPR 2014, section 3.
    """

    make_memory = LocalMemory

    class Parameters(LocalMemoryParameters, PlaceParameters, BertLanguageModel.Parameters):
        """Keys of `bert_lm_lopkm`."""


class BertPretrainLOPKM(WithMemories, BertPretrain):
    """As `bert_pretrain_pkm`, with memories that compare keys within cells.

    Source: Lample et al., NeurIPS 2019, section 3; cells of Kalantidis and Avrithis, CVPR 2014, section 3.
    """

    make_memory = LocalMemory

    class Parameters(LocalMemoryParameters, PlaceParameters, BertPretrain.Parameters):
        """Keys of `bert_pretrain_lopkm`."""


class BertTeacherForPKM(Bert):
    """An encoder that returns inputs and outputs of the feed-forward part of some layers.

    Source: Romero et al., "FitNets: Hints for Thin Deep Nets", ICLR 2015, section 2.2: hints from inner layers.
    """

    class Parameters(Bert.Parameters):
        """Keys of `bert_teacher_for_pkm`."""

        target_layers: list[int] = declare.param(
            doc="Layers whose feed-forward parts the student learns, from 0; negative from the last."
        )

    parameters_used: Parameters

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters, pooler=False)
        self.targets = layers_of(self.bert, parameters.target_layers, "target_layers")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, H) of ids (B, T); the mask is true (or 1) at real tokens."""
        hidden: Tensor = self.encode(input_ids, attention_mask, token_type_ids).last_hidden_state
        return hidden

    def feed_forward(self, net_input: Mapping[str, Any]) -> dict[int, tuple[Tensor, Tensor]]:
        """Return {layer: (inputs of its feed-forward part, its outputs)}, (N, H) each."""
        return feed_forward(self, self.targets, net_input)


def feed_forward(
    model: Bert, layers: Mapping[int, Any], net_input: Mapping[str, Any]
) -> dict[int, tuple[Tensor, Tensor]]:
    """Run a BERT; return {layer: (inputs of its feed-forward part, its outputs)}, (N, H) each.

    N is the number of real tokens of the batch; outputs are without residual connection and norm.
    """
    real = net_input["attention_mask"].bool()
    seen: dict[int, list[Tensor]] = {number: [] for number in layers}
    hooks = []
    for number, layer in layers.items():
        note = partial(_note, seen[number], real)
        hooks.append(layer.intermediate.register_forward_pre_hook(lambda module, inputs, note=note: note(inputs[0])))
        hooks.append(layer.output.dense.register_forward_hook(lambda module, inputs, output, note=note: note(output)))
    try:
        model.encode(net_input["input_ids"], net_input["attention_mask"], net_input.get("token_type_ids"))
    finally:
        for hook in hooks:
            hook.remove()
    return {number: (states, added) for number, (states, added) in seen.items()}


def _note(seen: list[Tensor], real: Tensor, states: Tensor) -> None:
    seen.append(states[real])


class StudentParameters(ModelParameters):
    """Keys of the students of `pkm_distill`."""

    target_layers: list[int] = declare.param(
        doc="Layers of the teacher whose feed-forward parts are learned, from 0; as teacher_target_layers.",
        group=MEMORY_GROUP,
    )
    hidden_size: int = declare.param(768, gt=0, doc="Width of the teacher's layers.", group=MEMORY_GROUP)
    initializer_range: float = declare.param(0.02, gt=0, doc="Standard deviation of random values.", group=MEMORY_GROUP)
    share_memory: bool = declare.param(False, doc="Train one memory for all of these layers.", group=MEMORY_GROUP)


class MemoryStudent(Model):
    """Memories, one for each of the teacher's layers or one for all, trained to imitate its feed-forward layers."""

    make_memory: Callable[[Any, int, float], nn.Module]

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        known, shared = parameters, None
        self.memories = nn.ModuleDict()
        for number in known.target_layers:
            made = shared or type(self).make_memory(known, known.hidden_size, known.initializer_range)
            self.memories[str(number)] = made
            shared = made if known.share_memory else None

    def forward(self, states: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the outputs of the memories for the inputs of feed-forward layers, (N, H) each.

        Raises:
            ConfigError: the teacher has other layers.
        """
        if {str(number) for number in states} != set(self.memories):
            problem = f"is {list(map(int, self.memories))}, but the teacher shows its layers {sorted(states)}."
            raise refusal("student_target_layers", problem, "Name the same, counted from 0.")
        return {number: self.memories[str(number)](each) for number, each in states.items()}

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return a group of the values, named memory, and one of keys and queries."""
        named = [(name, weight) for name, weight in self.named_parameters() if weight.requires_grad]
        values = [weight for name, weight in named if name.endswith(VALUES)]
        others = [weight for name, weight in named if not name.endswith(VALUES)]
        return [
            {"params": others, "lr": learning_rate, "name": "keys"},
            {"params": values, "lr": learning_rate, "name": MEMORY, "weight_decay": 0.0},
        ]


class PKMStudent(MemoryStudent):
    """Product-key memories trained to imitate feed-forward layers: task `pkm_distill`.

    Source: Lample et al., "Large Memory Layers with Product Keys", NeurIPS 2019, section 3.
    """

    make_memory = ProductKeyMemory

    class Parameters(MemoryParameters, StudentParameters):
        """Keys of `pkm_student`."""

        query_net: Literal["linear", "mlp"] = declare.param("linear", doc="Network of the queries.", group=MEMORY_GROUP)
        init_kernel_alpha: float = declare.param(
            0.5, gt=0, doc="Initial factor on squared distances; it is learned.", when=("distance_fn", "is not", "dot"),
            group=MEMORY_GROUP,
        )  # fmt: skip
        kernel_alpha: float = declare.param(0.5, gt=0, doc="Has no effect: see init_kernel_alpha.", group=MEMORY_GROUP)


class LOPKMStudent(MemoryStudent):
    """As `pkm_student`, with memories that compare keys within cells.

    Source: Lample et al., NeurIPS 2019, section 3; cells of Kalantidis and Avrithis, CVPR 2014, section 3.
    """

    make_memory = LocalMemory

    class Parameters(LocalMemoryParameters, StudentParameters):
        """Keys of `lopkm_student`."""
