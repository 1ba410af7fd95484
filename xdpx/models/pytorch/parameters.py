"""Parameters of models that are needed to check a config: classes with rules, and their bases. No torch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from xdpx.config import parameters as declare

GROUP = "bert_config"


class ModelParameters(declare.Parameters):
    """Keys of every model."""

    pretrained_model: str | None = declare.param(
        None, doc="Folder or file to load weights from, <best> and <last> allowed; null: random weights."
    )
    strict_size: bool = declare.param(
        True, doc="Fail if a weight has another size in the file.", when=("pretrained_model", "is not", None)
    )
    from_tf: bool = declare.param(
        False,
        doc="Weights come from a checkpoint (its prefix) or a SavedModel (its folder) of TensorFlow: xdpx[tf].",
        when=("pretrained_model", "is not", None),
    )
    tf_names: list[list[Any]] = declare.param(
        [],
        doc="Names for a TensorFlow model of your own: [[in the file, in XDPX, true to transpose a matrix], ...], "
        "with {} for a number. Google's names of BERT and ALBERT are known.",
        when=("from_tf", "is", True),
    )
    tf_format: Literal["checkpoint", "savedmodel"] | None = declare.param(
        None, doc="Accepted without effect, for old configs: it follows from the path.", when=("from_tf", "is", True)
    )


class TableParameters(ModelParameters):
    """Keys of a table of word vectors, including those determined by the data."""

    embedding_dim: int = declare.param(gt=0, doc="Width of the word vectors.")
    dropout: float = declare.param(0.2, ge=0, lt=1, doc="Share of the features set to 0 in training.")
    vocab_size: int | None = declare.param(None, gt=0, doc="Number of tokens, from meta.hjson.")
    pad_index: int | None = declare.param(None, ge=0, doc="Token id of the padding, from meta.hjson.")
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its embeddings.pt is used.")


class WordParameters(TableParameters):
    """Keys of networks with convolutions over word vectors."""

    kernel_sizes: list[int] = declare.param([3], doc="Kernel sizes of the convolutions, in tokens.")
    hidden_size: int = declare.param(gt=0, doc="Width of the layers.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse kernel sizes that cannot share the width evenly."""
        return uneven_windows(self.kernel_sizes, hidden_size=self.hidden_size)


def uneven_windows(kernel_sizes: list[int], **widths: int) -> list[tuple[str, str]]:
    """Return the conflicts of the number of kernel sizes with widths, by key, that they must divide."""
    if not kernel_sizes or min(kernel_sizes) < 1:
        return [("kernel_sizes", f"is {kernel_sizes}. Use one or more positive numbers, e.g. [3].")]
    count = len(kernel_sizes)
    remedy = f"Use a multiple of {count}: each of the kernel_sizes gets an equal part."
    return [(key, f"is {width}. {remedy}") for key, width in widths.items() if width % count]


class NumberParameters(declare.Parameters):
    """Keys of networks whose output is a number."""

    label_values: list[float] | None = declare.param(None, doc="The number of each label, from meta.hjson.")
    standardize: bool = declare.param(
        False, doc="Predict in standard deviations from the mean: for labels that are not around 0."
    )


class BertParameters(ModelParameters):
    """Keys of all BERT models; defaults in the group bert_config are the sizes of BERT base."""

    more_sizes: ClassVar[tuple[str, ...]] = ()
    """Additional keys of the group bert_config of some architectures."""

    pretrained_model: str | None = declare.param(
        doc="Folder or file to load weights from, <best> and <last> allowed; null: random weights."
    )
    auto_model: str | None = declare.param(None, doc="Hugging Face name or folder of the architecture.")
    model_type: str = declare.param(
        "bert",
        doc="Architecture of random weights, by its name in transformers: bert, roberta, albert, electra, deberta-v2, "
        "modernbert, ...",
    )
    layer_lr_decay: float = declare.param(
        1.0, gt=0, le=1, doc="Factor on the learning rate from each layer to the one below."
    )
    keep_emb_lr: bool = declare.param(
        True, doc="Train the embeddings at the full learning rate.", when=("layer_lr_decay", "<", 1.0)
    )
    top_lr_ratio: float = declare.param(1.0, gt=0, doc="Factor on the learning rate of the layers above the encoder.")
    fix_lm: bool = declare.param(False, doc="Freeze the encoder; train only the layers above it.")
    gradient_checkpointing: bool = declare.param(
        False, doc="Recompute activations in the backward pass: less memory, about a third more time."
    )
    bert_wd: float | None = declare.param(None, ge=0, doc="Weight decay of embeddings and layers; null: weight_decay.")
    pruned_heads: dict[str, list[int]] | None = declare.param(
        None, doc="Attention heads to remove, by layer; a negative layer counts from the last."
    )
    mixout: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of each weight matrix replaced by pretrained weights in training; 0: none."
    )
    adapters: dict[str, Any] | None = declare.param(
        None, doc="Adapters of peft to train instead of the encoder: {peft_type: LORA, r: 8, ...}; null: none."
    )
    extra_config: dict[str, Any] = declare.param({}, doc="Further fields of the Hugging Face config.")
    vocab_size: int | None = declare.param(None, gt=0, doc="Number of tokens, from meta.hjson.")
    pad_index: int | None = declare.param(None, ge=0, doc="Token id of the padding, from meta.hjson.")
    max_len: int | None = declare.param(None, gt=0, doc="Maximum length of a text in tokens, from meta.hjson.")
    attention_probs_dropout_prob: float = declare.param(
        0.1, ge=0, lt=1, doc="Share of the attention weights set to 0 in training.", group=GROUP
    )
    directionality: str = declare.param("bidi", doc="Accepted without effect, for old configs.", group=GROUP)
    hidden_act: str = declare.param("gelu", doc="Activation of the feed-forward layers.", group=GROUP)
    hidden_dropout_prob: float = declare.param(
        0.1, ge=0, lt=1, doc="Share of the features set to 0 in training.", group=GROUP
    )
    hidden_size: int = declare.param(768, gt=0, doc="Width of the layers.", group=GROUP)
    initializer_range: float = declare.param(0.02, gt=0, doc="Standard deviation of random weights.", group=GROUP)
    intermediate_size: int = declare.param(3072, gt=0, doc="Width inside the feed-forward layers.", group=GROUP)
    max_position_embeddings: int = declare.param(512, gt=0, doc="Maximum length of a text in tokens.", group=GROUP)
    num_attention_heads: int = declare.param(12, gt=0, doc="Attention heads of each layer.", group=GROUP)
    num_hidden_layers: int = declare.param(12, gt=0, doc="Number of layers.", group=GROUP)
    type_vocab_size: int = declare.param(2, gt=0, doc="Number of segments (1 or 2 texts).", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse widths that the heads cannot share, adapters with mixout or fix_lm, and invalid layers to prune."""
        found = []
        if self.hidden_size % self.num_attention_heads:
            remedy = f"Use a multiple of num_attention_heads ({self.num_attention_heads})."
            found.append(("hidden_size", f"is {self.hidden_size}. {remedy}"))
        if self.adapters is not None and (self.mixout > 0 or self.fix_lm):
            other = "mixout" if self.mixout > 0 else "fix_lm"
            found.append(
                ("adapters", f"contradicts {other}: both say what happens to the encoder. Remove one of them.")
            )
        bad = [layer for layer in self.pruned_heads or {} if not layer.lstrip("-").isdigit()]
        if bad:
            found.append(("pruned_heads", f"names the layers {bad}. Use numbers, e.g. {{0: [1, 2], -1: [0]}}."))
        return found


class RMRParameters(BertParameters):
    """Keys of `rmr_bert`."""

    top_hidden_size: int = declare.param(256, gt=0, doc="Width of the layer over messages.")
    top_heads: int = declare.param(4, gt=0, doc="Attention heads of the layer over messages.")
    max_messages: int | None = declare.param(None, gt=0, doc="Maximum number of messages in a session, by meta.hjson.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Also refuse a width that the heads over messages cannot share."""
        found = super().conflicts()
        if self.top_hidden_size % self.top_heads:
            problem = f"is {self.top_hidden_size}. Use a multiple of top_heads ({self.top_heads})."
            found.append(("top_hidden_size", problem))
        return found


class DualEncoderParameters(BertParameters):
    """Keys of `bert_dpr_qa`: those of BERT apply to both encoders."""

    pretrained_model: str | None = declare.param(
        None, doc="Folder or file to load weights of both encoders from; null: see q_pretrained_model."
    )
    q_auto_config: str | None = declare.param(None, doc="As auto_model, for old configs.")
    p_auto_config: str | None = declare.param(None, doc="The same as q_auto_config, for old configs.")
    q_pretrained_model: str | None = declare.param(
        None, doc="Weights of the question encoder, and initial ones of the passage encoder; null: random."
    )
    p_pretrained_model: str | None = declare.param(
        None, doc="Weights of the passage encoder, of the same architecture; null: those of questions."
    )
    bert_strict_size: bool = declare.param(True, doc="As strict_size, for old configs.")
    from_tf: bool = declare.param(
        False, doc="Weights of both are TensorFlow checkpoints (prefixes) or SavedModels: xdpx[tf]."
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse two architectures, and TensorFlow weights that are not given."""
        found = super().conflicts()
        named = (self.pretrained_model, self.q_pretrained_model, self.p_pretrained_model)
        if self.from_tf and not any(named):
            found.append(("from_tf", "is true, but no weights are named: give q_pretrained_model."))
        if self.p_auto_config not in {None, self.q_auto_config or self.auto_model}:
            found.append(("p_auto_config", "names another architecture than q_auto_config. Use one for both."))
        return found


LLAMA_GROUP = "llama_config"


class CausalLMParameters(ModelParameters):
    """Keys of `causal_lm`; defaults in the group llama_config are about 20 million weights besides the embeddings."""

    gradient_checkpointing: bool = declare.param(
        False, doc="Recompute activations in the backward pass: less memory, about a third more time."
    )
    vocab_size: int | None = declare.param(None, gt=0, doc="Number of tokens, from meta.hjson.")
    pad_index: int | None = declare.param(None, ge=0, doc="Token id of the padding, from meta.hjson.")
    max_len: int | None = declare.param(None, gt=0, doc="Maximum length of a text in tokens, from meta.hjson.")
    hidden_size: int = declare.param(512, gt=0, doc="Width of the layers.", group=LLAMA_GROUP)
    intermediate_size: int = declare.param(1376, gt=0, doc="Width inside the feed-forward layers.", group=LLAMA_GROUP)
    num_hidden_layers: int = declare.param(6, gt=0, doc="Number of layers.", group=LLAMA_GROUP)
    num_attention_heads: int = declare.param(8, gt=0, doc="Attention heads of each layer.", group=LLAMA_GROUP)
    num_key_value_heads: int | None = declare.param(
        None, gt=0, doc="Heads of keys and values, each shared by several query heads; null: as many as those.",
        group=LLAMA_GROUP,
    )  # fmt: skip
    max_position_embeddings: int = declare.param(512, gt=0, doc="Maximum length in tokens.", group=LLAMA_GROUP)
    rope_theta: float = declare.param(10000.0, gt=0, doc="Base of the rotary position frequencies.", group=LLAMA_GROUP)
    rms_norm_eps: float = declare.param(1e-6, gt=0, doc="Added to the mean square in norms.", group=LLAMA_GROUP)
    initializer_range: float = declare.param(0.02, gt=0, doc="Standard deviation of random weights.", group=LLAMA_GROUP)
    attention_dropout: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of the attention weights set to 0 in training.", group=LLAMA_GROUP
    )
    tie_word_embeddings: bool = declare.param(
        False, doc="Share the embedding table with the output projection.", group=LLAMA_GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse widths that heads cannot share, and a number of key-value heads that does not divide the heads."""
        heads, shared = self.num_attention_heads, self.num_key_value_heads
        found = []
        if self.hidden_size % (2 * heads):
            found.append(
                ("hidden_size", f"is {self.hidden_size}. Use a multiple of 2 * num_attention_heads ({2 * heads}).")
            )
        if shared is not None and heads % shared:
            found.append(("num_key_value_heads", f"is {shared}. Use a divisor of num_attention_heads ({heads})."))
        return found


MEMORY_GROUP = "memory"


class MemorySizeParameters(declare.Parameters):
    """Sizes of every memory."""

    mem_k_dim: int = declare.param(
        256, ge=2, doc="Width of a query; its halves are compared separately.", group=MEMORY_GROUP
    )
    mem_heads: int = declare.param(4, gt=0, doc="Queries per token, each with its own keys.", group=MEMORY_GROUP)
    mem_knn: int = declare.param(32, gt=0, doc="Slots that each query reads.", group=MEMORY_GROUP)
    mem_keys: int = declare.param(
        512, gt=0, doc="Keys of each half; the memory has the square of that as slots.", group=MEMORY_GROUP
    )
    mem_sparse: bool = declare.param(
        False,
        doc="Use sparse gradients of the values: with optimizer pair or sparse_adam.",
        group=MEMORY_GROUP,
    )
    input_dropout: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of the memory's input set to 0 in training.", group=MEMORY_GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse an odd width, as a query is split into halves."""
        odd = [("mem_k_dim", f"is {self.mem_k_dim}. Use an even number.")] if self.mem_k_dim % 2 else []
        return [*super().conflicts(), *odd]


class LightParameters(TableParameters):
    """Keys of networks that train their word vectors by default."""

    fix_embeddings: bool = declare.param(False, doc="Do not train the word vectors.")


class PoolingParameters(LightParameters):
    """Keys of networks that end in one pooled vector per text."""

    hidden_size: int = declare.param(gt=0, doc="Width of the layers.")
    pooling: Literal["max", "attn"] = declare.param("max", doc="Pooling of all positions to one vector.")
    pool_hidden_size: int | None = declare.param(
        None, gt=0, doc="Width of the attention network; null: hidden_size.", when=("pooling", "is", "attn")
    )
    pool_output_size: int | None = declare.param(
        None, gt=0, doc="Width of the pooled vector; null: hidden_size.", when=("pooling", "is", "attn")
    )


class RecurrentSizes(LightParameters):
    """Keys of bidirectional recurrent networks."""

    hidden_size: int = declare.param(gt=0, doc="Width of both directions together.")
    encoder_layers: int | None = declare.param(None, gt=0, doc="Layers of recurrent cells; null: 1.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a width that two directions cannot share."""
        return two_halves(self.hidden_size)


class RecurrentParameters(RecurrentSizes, PoolingParameters):
    """Keys of bidirectional recurrent networks with one pooled vector per text."""


class EsimParameters(LightParameters):
    """Keys of `esim`."""

    hidden_size: int = declare.param(gt=0, doc="Width of both directions together; the paper has 600.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a width that two directions cannot share."""
        return two_halves(self.hidden_size)


def two_halves(hidden_size: int) -> list[tuple[str, str]]:
    """Return the conflict of an odd width, which two directions cannot share."""
    if hidden_size % 2 == 0:
        return []
    return [("hidden_size", f"is {hidden_size}. Use an even number: each direction gets half of it.")]


class BertMixParameters(BertParameters):
    """Keys of `bert_mix`."""

    embedding_dim: int = declare.param(gt=0, doc="Width of the word vectors.")
    task_type: Literal["classification", "matching"] | None = declare.param(
        None, doc="Accepted without effect, for old configs: one text and a joined pair have the same network."
    )
    prediction: Literal["simple", "full"] = declare.param(
        "simple", doc="simple: one linear layer gives the logits; full: two layers."
    )
    pooling: Literal["max", "attn"] = declare.param("max", doc="Pooling of all words to one vector.")
    dropout: float = declare.param(0.2, ge=0, lt=1, doc="Share of the features set to 0 in training, above BERT.")
    output_dropout_prob: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of the features before the last layer set to 0 in training."
    )
    word_emb: bool = declare.param(True, doc="Use word embeddings.")
    word_emb_proj: int | None = declare.param(
        None, gt=0, doc="Width that word vectors are projected to; null: none.", when=("word_emb", "is", True)
    )
    char_emb: bool = declare.param(True, doc="Use the output of BERT for the pieces of words.")
    bert_seq_layer: int = declare.param(-1, doc="Hidden state of BERT to use: 0 the embeddings, -1 the last layer.")
    char_layer_norm: bool = declare.param(True, doc="Normalise the output of BERT.", when=("char_emb", "is", True))
    char_hidden_size: int = declare.param(
        768, gt=0, doc="Width of the convolutions over pieces.", when=("char_emb", "is", True)
    )
    concat_cls: bool = declare.param(True, doc="Add the first token of BERT to the features of the classifier.")
    fusion: bool = declare.param(True, doc="Combine both vectors of a word by fusion layers.")
    fusion_hidden_size: int = declare.param(150, gt=0, doc="Width of these layers.", when=("fusion", "is", True))
    fusion_layers: int = declare.param(2, gt=0, doc="Number of these layers.", when=("fusion", "is", True))
    fusion_activation: bool = declare.param(False, doc="End each of them with GELU.", when=("fusion", "is", True))
    pooler: bool = declare.param(
        False, doc="Add a tanh layer on the first token of BERT.", when=("concat_cls", "is", True)
    )
    seq_pooler: bool = declare.param(False, doc="Add a tanh layer on the pooled words.")
    char_encoder_layers: int = declare.param(
        1, gt=0, doc="Layers of convolutions over pieces.", when=("char_emb", "is", True)
    )
    kernel_sizes: list[int] = declare.param([3], doc="Kernel sizes of the convolutions.")
    residual: bool = declare.param(False, doc="Add the input of each layer over words but the first to its output.")
    encoder_layers: int = declare.param(3, gt=0, doc="Layers of convolutions over words.")
    encoder_hidden_size: int = declare.param(200, gt=0, doc="Width of the convolutions over words.")
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")
    word_vocab_size: int | None = declare.param(None, gt=0, doc="Number of words, from meta.hjson.")
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its embeddings.pt is used.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to use neither words nor pieces, and kernel sizes that cannot share a width evenly."""
        found = super().conflicts()
        if not self.word_emb and not self.char_emb:
            found.append(("word_emb", "is false, and so is char_emb: there is no input. Set one of them to true."))
        widths = {"char_hidden_size": self.char_hidden_size, "encoder_hidden_size": self.encoder_hidden_size}
        return found + uneven_windows(self.kernel_sizes, **widths)
