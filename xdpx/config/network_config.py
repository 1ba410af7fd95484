"""Model configs in Hugging Face format (config.json, bert_config.json) as parents of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from xdpx.config.located import Table

NAMES = ("config.json", "bert_config.json")
"""Names of such files beside weights; the second is used by Google's checkpoints and older programs."""

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

OF_THE_DATA = frozenset({"vocab_size", "pad_token_id", "num_labels", "id2label", "label2id", "problem_type"})
"""Keys that are ignored because meta.hjson has them, from the data."""

NO_ARCHITECTURE = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "cls_token_id", "chunk_size_feed_forward", "dtype",
    "eos_token_id", "gradient_checkpointing", "is_encoder_decoder", "output_attentions", "output_hidden_states",
    "return_dict", "sep_token_id", "torch_dtype", "transformers_version", "use_cache",
})  # fmt: skip
"""Keys that are ignored because they do not affect the layers."""


def describes_network(table: Table, path: str) -> bool:
    """Return whether a file is the config of a network, judged by its values, because a run may have such keys, too."""
    if "model" in table or "data_dir" in table:
        return False
    sized = [key in table for key in SIZES]
    if path.rsplit("/", 1)[-1] in NAMES and all(sized):
        return True
    version, classes = (table[key].value if key in table else None for key in ("transformers_version", "architectures"))
    written_by = isinstance(version, str) and version[:1].isdigit()
    return written_by or (isinstance(classes, list) and bool(classes) and ("model_type" in table or any(sized)))


def as_keys_of_run(table: Table) -> Table:
    """Return the config of a network under the keys of a run; those without a counterpart go to `extra_config`."""
    own = _sizes()
    told = {
        key: each
        for key, each in table.items()
        if each.value is not None and key not in OF_THE_DATA | NO_ARCHITECTURE and not key.startswith("__")
    }
    keys = {key: each for key, each in told.items() if key in own}
    more = {key: each for key, each in told.items() if key not in own}
    if more:
        first = next(iter(more.values()))
        keys["extra_config"] = replace(first, value=more)
    return keys


@cache
def _sizes() -> frozenset[str]:
    """Return the keys of our networks that such files have, too: those that determine the layers."""
    from xdpx.config import catalogue  # imported only if such a file is used

    groups = (each.parameters for each in catalogue.entries("model"))
    sizes = {each.key for group in groups for each in group if each.group == "bert_config"}
    return frozenset({*sizes, "model_type", "pruned_heads"})
