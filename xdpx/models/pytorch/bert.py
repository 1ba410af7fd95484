"""BERT and similar encoders of Hugging Face: architecture, weights, parameter groups. B rows, T positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig

from xdpx.config.faults import ConfigError, first_few, first_line, nearest, refusal
from xdpx.models.pytorch import adapters, encoders, pruning, weights
from xdpx.models.pytorch.base import Model, ReadWeights
from xdpx.models.pytorch.modules import attention, first_token
from xdpx.models.pytorch.modules.dropout import use_fast_dropout, use_mixout, with_anchors
from xdpx.models.pytorch.parameters import BertParameters
from xdpx.models.pytorch.weights import FETCH, read_table
from xdpx.utils import hub
from xdpx.utils.weight_decay import decays

CONFIG_FILE = "config.json"
ARCHITECTURE_KEYS = (
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "type_vocab_size",
)


class Bert(Model):
    """A Hugging Face encoder under the name `bert`, so that weight names are those of Hugging Face.

    The architecture is that of config.json beside `pretrained_model` (or of `auto_model`), else of the bert_config
    keys. A bert_config key that is not at its default overrides config.json, and `extra_config` overrides both.
    """

    class Parameters(BertParameters):
        """Keys of all BERT models; defaults in the group bert_config are the sizes of BERT base."""

    parameters_used: Parameters

    is_of_library = True

    def __init__(self, parameters: Parameters, *, pooler: bool) -> None:
        super().__init__(parameters)
        self.config = architecture(parameters)
        encoders.tell_of_padding(self.config)
        self.bert = encoder_of(self.config, pooler=pooler)
        if pooler and not encoders.has_pooler(self.bert):
            if encoders.is_blind_at_first(self.bert):
                problem = f"reads the first token, but that of '{self.config.model_type}' sees nothing of the text."
                raise refusal("model", problem, "Use an encoder, such as bert, roberta or deberta-v2.")
            self.pooler = encoders.FirstToken(self.config)
        kept_in_config = getattr(self.config, "pruned_heads", None)
        self.pruned = pruning.plan(parameters.pruned_heads or kept_in_config, self.config.num_hidden_layers)
        pruning.prune(self.bert, self.pruned)
        pruning.note(self.config, self.pruned)
        if parameters.gradient_checkpointing:
            self.bert.activation_checkpointing_enable()
        use_mixout(self.bert, parameters.mixout)
        adapters.add(self.bert, parameters.adapters)
        if parameters.fix_lm:
            self.bert.requires_grad_(requires_grad=False)

    def encode(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Any:
        """Return the encoder's output for ids (B, T); the mask (B, T) is true (or 1) at real tokens.

        Raises:
            ConfigError: the texts are longer than the model has positions.
        """
        return self.bert(**self._inputs(input_ids, attention_mask, token_type_ids))

    def layers_apart(self) -> Sequence[nn.Module]:
        """Return all layers of the stack but the last, of which `pool` calls single parts; () if there is no stack."""
        return list(self.bert.encoder.layer)[:-1] if type(self.bert) in first_token.ENCODERS else ()

    def pool(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the pooled first token (B, H), skipping the computation of the other tokens in the last layer."""
        inputs = self._inputs(input_ids, attention_mask, token_type_ids)
        if first_token.fits(self.bert):
            return first_token.pooled(self.bert, **inputs)
        output = self.bert(**inputs)
        pooled: Tensor = output.pooler_output if encoders.has_pooler(self.bert) else self.pooler(output[0])
        return pooled

    def _inputs(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None) -> dict[str, Any]:
        """Return the arguments of the network.

        Raises:
            ConfigError: the texts are longer than the model has positions, or ids are not (B, T).
        """
        if input_ids.dim() != 2:
            problem = (
                f"reads one text per row, but the processor gives {tuple(input_ids.shape)}: several separate texts."
            )
            remedy = "Use a model for separate texts (sbert_nli, simcse), or preprocess with bert_pair."
            raise refusal("model", problem, remedy)
        most = positions_of(self.config)
        if input_ids.shape[1] > most:
            raise _too_long(input_ids.shape[1], most)
        mask = attention_mask.bool()
        # Without padding no mask is needed. Checking is free on a CPU, but would synchronise with a GPU.
        # An exported or traced network must work for any text, so it always has the mask.
        traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]  # torch does not type it
        exported = torch.compiler.is_exporting() or traced
        whole = mask.device.type == "cpu" and not exported and bool(mask.all())
        given = {"input_ids": input_ids, "attention_mask": None if whole else encoders.mask_for(self.config, mask)}
        return {**given, "token_type_ids": token_type_ids} if encoders.has_segments(self.config) else given

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As `Model.load_pretrained`; with `load_cls_weights`, a file without the whole classifier is refused.

        Raises:
            ConfigError: see there; or the classifier, or a layer that it reads, would be random.
        """
        super().load_pretrained(read_weights)
        known = self.parameters_used
        if not (getattr(known, "load_cls_weights", False) and known.strict_size):
            return
        # Transition scores of tags begin at 0, and the units of numbers are those of the data.
        head = [name for name in self.not_in_file if not weights.is_encoder(name)]
        lacking = [name for name in head if not name.startswith(("neighbours", "units."))]
        if lacking:
            problem = f"is true, but '{known.pretrained_model}' lacks {first_few(lacking, weights.MOST_NAMES_SHOWN)}"
            remedy = "Its classifier has another form, or it has none: set load_cls_weights: false for a new one."
            raise refusal("load_cls_weights", f"{problem}, which would be random.", remedy)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename foreign weights, and remove pruned heads."""
        renamed = {self._own_name(name): value for name, value in found.items()}
        if self.pruned:
            heads = self.config.num_attention_heads
            width = self.config.hidden_size // heads
            renamed = pruning.prune_weights(renamed, self.pruned, heads=heads, width=width)
        return with_anchors(self, adapters.renamed(self, renamed))

    def resource_files(self) -> dict[str, str]:
        """Return config.json in Hugging Face format."""
        return {CONFIG_FILE: self.config.to_json_string(use_diff=False)}

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this network, and why; see `Model.idle_keys`."""
        known = self.parameters_used
        found = _idle_sizes(known, self.config)
        fields = {*vars(type(self.config)()), *self.config.attribute_map} if known.extra_config else set()
        for name in known.extra_config.keys() - fields:
            # Some fields have no default, so that only what resembles another one is a mistake.
            others = (each for each in encoders.OTHER_NAMES.get(name, ()) if each in fields)
            meant = next(others, None) or nearest(name, fields)
            if meant and not name.startswith("_"):
                problem = f"has {name}, which is no field of '{self.config.model_type}'."
                found["extra_config"] = f"{problem} Did you mean '{meant}'?"
        if known.layer_lr_decay < 1.0 and not any("layer " in group["name"] for group in self.parameter_groups(1.0)):
            slowed = "nothing" if known.keep_emb_lr else "nothing but the embeddings"
            problem = f"is {known.layer_lr_decay}, but no layer has weights of its own to train: {slowed} is slowed."
            found["layer_lr_decay"] = f"{problem} Leave it out."
        if known.mixout > 0.0 and (known.fix_lm or not known.pretrained_model):
            why = "fix_lm is true" if known.fix_lm else "there is no pretrained_model"
            found["mixout"] = f"is {known.mixout}, but {why}: it mixes in no pretrained weights. Leave it out."
        return found

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return groups by depth and weight decay; biases and layer norms have none."""
        groups: dict[str, dict[str, Any]] = {}
        for name, weight in self.named_parameters():
            if weight.requires_grad:
                part, rate = self._depth(name, learning_rate)
                decaying = decays("bert", name, weight.ndim)
                key = part if decaying else f"{part}, no decay"
                group = groups.setdefault(key, {"params": [], "lr": rate, "name": key})
                group["params"].append(weight)
                group |= self._decay(part, decays=decaying)
        return list(groups.values())

    def _depth(self, name: str, learning_rate: float) -> tuple[str, float]:
        """Return the name of the group that a weight belongs to by depth, and its learning rate."""
        known, layers = self.parameters_used, int(self.config.num_hidden_layers)
        if encoders.is_embedding(name):
            full = known.keep_emb_lr or known.layer_lr_decay == 1.0
            return "embeddings", learning_rate * (1.0 if full else known.layer_lr_decay**layers)
        number = encoders.layer_of(name)
        if number is not None or encoders.is_shared(name):
            if number is None or known.layer_lr_decay == 1.0:
                return "layers", learning_rate
            return f"layer {number}", learning_rate * known.layer_lr_decay ** (layers - 1 - number)
        return "top", learning_rate * known.top_lr_ratio

    def _decay(self, part: str, *, decays: bool) -> dict[str, float]:
        if not decays:
            return {"weight_decay": 0.0}
        own = self.parameters_used.bert_wd
        return {} if own is None or part == "top" else {"weight_decay": own}

    def _own_name(self, name: str) -> str:
        name = name.removeprefix("module.")
        head, _, last = name.rpartition(".")
        if head.endswith("LayerNorm"):
            name = f"{head}.{ {'gamma': 'weight', 'beta': 'bias'}.get(last, last) }"
        prefix = f"{self.bert.base_model_prefix}."
        if name.startswith(prefix):
            return f"bert.{name.removeprefix(prefix)}"
        inside = name.split(".")[0] in dict(self.bert.named_children())
        return f"bert.{name}" if inside else name


def architecture(known: Bert.Parameters) -> PretrainedConfig:
    """Return the Hugging Face config of a model, after checking it against the data.

    Raises:
        ConfigError: the data has more tokens, or longer texts, than the architecture supports.
    """
    config = _given_config(known)
    sizes = {key: getattr(known, key) for key in (*ARCHITECTURE_KEYS, *known.more_sizes)}
    if config is None:
        config = encoders.new_config(known.model_type, sizes)
        config.vocab_size = known.vocab_size or config.vocab_size
    else:
        for key in sizes:
            if getattr(known, key) != type(known).model_fields[key].default:
                for name in encoders.names_of(config, key):
                    setattr(config, name, getattr(known, key))
    for key, value in known.extra_config.items():
        setattr(config, key, value)
    if known.pad_index is not None:
        config.pad_token_id = known.pad_index
    _check_against_data(known, config)
    return config


def _idle_sizes(known: Bert.Parameters, config: PretrainedConfig) -> dict[str, str]:
    """Return the bert_config keys, at their default or unknown, whose value is not that of a config, and why."""
    found = {}
    for key in (*ARCHITECTURE_KEYS, *known.more_sizes):
        asked, names = getattr(known, key), encoders.names_of(config, key)
        if not names:
            found[key] = f"is {asked}, but the architecture '{config.model_type}' has no such size. Leave it out."
        elif getattr(config, names[0]) != asked and names[0] not in known.extra_config:
            there = getattr(config, names[0])
            found[key] = (
                f"is {asked}, but that is its default, which leaves it at the {there} of config.json. To change it, "
                f"write extra_config: {{{names[0]}: {asked}}}."
            )
    return found


def _given_config(known: Bert.Parameters) -> PretrainedConfig | None:
    """Return the config beside the pretrained weights or that of `auto_model`, if any."""
    if known.auto_model:
        return _named_config(known.auto_model)
    source = known.pretrained_model
    if not source:
        return None
    path = weights.config_file(source)
    if path is None:
        return None
    values = read_table(path)
    try:
        values.pop("auto_map", None)  # code beside a model is never loaded
        config: PretrainedConfig = AutoConfig.for_model(values.pop("model_type", known.model_type), **values)
    except (ValueError, TypeError, AttributeError) as error:
        reason = first_line(error).partition(". ")[0]
        problem = f"is '{source}', whose {CONFIG_FILE} describes no known model ({reason})."
        raise refusal("pretrained_model", problem, FETCH) from error
    return config


def _named_config(name: str) -> PretrainedConfig:
    try:
        config: PretrainedConfig = hub.load(
            name,
            lambda source, here: AutoConfig.from_pretrained(source, local_files_only=here, trust_remote_code=False),
        )
    except (OSError, ValueError) as error:
        problem = f"is '{name}', which cannot be read: {str(error).partition(chr(10))[0].rstrip('.')}."
        remedy = hub.how_to_fetch(name) or "Name a folder or a known model."
        raise refusal("auto_model", problem, remedy) from error
    return config


def _check_against_data(known: Bert.Parameters, config: PretrainedConfig) -> None:
    if known.max_len is not None and known.max_len > positions_of(config):
        raise _too_long(known.max_len, positions_of(config))
    if known.vocab_size is None or known.vocab_size == config.vocab_size:
        return
    if known.pretrained_model and known.strict_size:
        problem = f"is {known.vocab_size} in the data, but the pretrained model knows {config.vocab_size} tokens."
        remedy = "Preprocess with the vocab.txt of that model, or set strict_size: false for new embeddings."
        raise refusal("vocab_size", problem, remedy)
    config.vocab_size = known.vocab_size


def encoder_of(config: PretrainedConfig, *, pooler: bool) -> Any:
    """Return the network of a config, with random weights; with a pooler if its architecture has one."""
    try:
        encoder = _network(config, add_pooling_layer=pooler)
    except TypeError:  # architectures that never have a pooler
        encoder = _network(config)
    # Others (MPNet, RoFormer, BigBird) have attention of their own, which adds the mask to its scores: a mask for
    # torch's kernels, true at real tokens, hides no padding there.
    if encoder._supports_sdpa:
        encoder.set_attn_implementation(attention.register())
    use_fast_dropout(encoder)
    return encoder


def _network(config: PretrainedConfig, **options: bool) -> Any:
    # What a config.json says of attention is about another machine.
    return AutoModel.from_config(config, trust_remote_code=False, attn_implementation="eager", **options)


def positions_of(config: PretrainedConfig) -> int:
    """Return the maximum length of a text, in tokens."""
    positions = int(config.max_position_embeddings)
    offset = "roberta" in config.model_type or config.model_type in encoders.COUNT_FROM_PADDING
    return positions - (int(config.pad_token_id) + 1) * offset


def _too_long(length: int, most: int) -> ConfigError:
    problem = f"is {length}, but the model has positions for {most} tokens."
    remedy = f"Preprocess with max_len: {most} or less, or use a model with a larger max_position_embeddings."
    return refusal("max_len", problem, remedy)


def new_linear(size_in: int, size_out: int, config: PretrainedConfig) -> nn.Linear:
    """Return a linear layer with random weights, initialised as in BERT."""
    layer = nn.Linear(size_in, size_out)
    nn.init.normal_(layer.weight, std=config.initializer_range)
    with torch.no_grad():
        layer.bias.zero_()
    return layer
