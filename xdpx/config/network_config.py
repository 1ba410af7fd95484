"""The config of a network in Hugging Face format (config.json, bert_config.json), named as a parent of a run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from xdpx.config.located import Table

NAMES = ("config.json", "bert_config.json")
"""What such files are called beside weights; the second is that of Google's checkpoints, and of older programs."""

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

OF_THE_DATA = frozenset({"vocab_size", "pad_token_id", "num_labels", "id2label", "label2id", "problem_type"})
"""What meta.hjson tells, from the data themselves."""

NO_ARCHITECTURE = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "cls_token_id", "chunk_size_feed_forward", "dtype",
    "eos_token_id", "gradient_checkpointing", "is_encoder_decoder", "output_attentions", "output_hidden_states",
    "return_dict", "sep_token_id", "torch_dtype", "transformers_version", "use_cache",
})  # fmt: skip
"""What says nothing of the layers."""


def describes_network(table: Table, path: str) -> bool:
    """Tell whether a file was written for a network: by its values, for a run may have such keys, too."""
    if "model" in table or "data_dir" in table:
        return False
    sized = [key in table for key in SIZES]
    if path.rsplit("/", 1)[-1] in NAMES and all(sized):
        return True
    version, classes = (table[key].value if key in table else None for key in ("transformers_version", "architectures"))
    written_by = isinstance(version, str) and version[:1].isdigit()
    return written_by or (isinstance(classes, list) and bool(classes) and ("model_type" in table or any(sized)))


def as_keys_of_run(table: Table) -> Table:
    """Return what a file says of a network under the keys of a run; others go to `extra_config`."""
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
    """Return the keys of networks that such files hold, too: those that decide the layers."""
    from xdpx.config import catalogue  # nobody but those who name such a file

    groups = (each.parameters for each in catalogue.entries("model"))
    sizes = {each.key for group in groups for each in group if each.group == "bert_config"}
    return frozenset({*sizes, "model_type", "pruned_heads"})
