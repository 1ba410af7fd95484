"""Vocabularies of the training input, recorded in checkpoints: ids must keep the meaning that the weights learned.

The end of a text is such an id, too: decoding is to stop at the one that training puts there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import build
from xdpx.datasets.inputs.ahead_of_time import PrefetchedInput
from xdpx.datasets.inputs.base_input import BaseInput
from xdpx.datasets.inputs.multi_input import MultiInput
from xdpx.datasets.inputs.seqio_input import SeqIOInput
from xdpx.datasets.inputs.seqio_tasks import Mixture, find
from xdpx.experiments.running.parts import Parts, fault_of
from xdpx.logger import log
from xdpx.models.spmd.base_model import BaseModel
from xdpx.models.spmd.decoding.greedy import Decoder

VOCABULARIES = "vocabularies"
"""Key of the facts of a checkpoint."""
DIGEST, SIZE = "digest", "num_tokens"

Vocabularies = Mapping[str, Mapping[str, Any]]
"""Name of an input within a `MultiInput`, '' for any other input -> digest and number of tokens of its vocabulary."""


def vocabularies_of(data: BaseInput) -> dict[str, dict[str, Any]]:
    """Return the vocabularies of an input; {} if it has none, or does not tell (`tokenizer_digest`)."""
    own = data.inner if isinstance(data, PrefetchedInput) else data
    children = own.children if isinstance(own, MultiInput) else {"": own}
    digests = {name: child.tokenizer_digest() for name, child in children.items()}
    return {
        name: {DIGEST: digest, SIZE: getattr(getattr(children[name], "codec", None), "vocab_size", None)}
        for name, digest in digests.items()
        if digest is not None
    }


def refuse_changed_vocabulary(parts: Parts, data: BaseInput, facts: Mapping[str, Any], checkpoint: str) -> None:
    """Raise ConfigError if the training input has another vocabulary than when a checkpoint was written.

    Args:
        parts: of the run.
        data: the training input.
        facts: of the checkpoint; those of earlier versions have no vocabularies.
        checkpoint: its path, for the message.
    """
    before, now = facts.get(VOCABULARIES, {}), vocabularies_of(data)
    for name in before.keys() & now.keys():
        if before[name][DIGEST] != now[name][DIGEST]:
            raise _refusal(parts, f"{data.name}.{name}".rstrip("."), before[name], now[name], checkpoint)


def refuse_unknown_vocabulary(parts: Parts, data: BaseInput, facts: Mapping[str, Any], checkpoint: str) -> None:
    """Raise ConfigError if an input to evaluate or decode has another vocabulary than the weights were trained with.

    One that always differed from that of the training input is accepted, as it is by training.
    """
    before: Vocabularies = facts.get(VOCABULARIES, {})
    known = {each[DIGEST] for each in before.values()}
    for name, now in vocabularies_of(data).items() if known else ():
        if now[DIGEST] not in known and not _training_knows(parts, known):
            expected = before.get(name) or next(iter(before.values()))
            raise _refusal(parts, f"{data.name}.{name}".rstrip("."), expected, now, checkpoint)


def warn_of_other_ends(parts: Parts) -> None:
    """Warn if the decoder does not stop where the texts that the model was trained on end."""
    template = parts.task.model.decoder_template() if isinstance(parts.task.model, BaseModel) else None
    decoder = None if template is None else build(template.clone())
    if not isinstance(decoder, Decoder) or not decoder.limits.ends:
        return
    for data in parts.experiment.datasets():
        ends = set(_ends_of(data)) if data.is_training else set()
        if ends and not ends & set(decoder.limits.ends):
            stops = " and ".join(map(str, decoder.limits.ends))
            log.warning(
                f"decoder_tpl.eos_id: decoding stops at id {stops}, but the texts of the training input end with "
                f"{min(ends)}. Set eos_id={min(ends)}.",
                once=True,
            )


def _ends_of(template: Any) -> Iterator[int]:
    """Yield the ids that an input appends to its texts, other than prompts."""
    if isinstance(template, MultiInput.HParams):
        for child in template.inputs.values():
            yield from _ends_of(child)
    elif isinstance(template, SeqIOInput.HParams):
        found = find(template.mixture_name or template.mixture_or_task)
        for task in found.tasks if isinstance(found, Mixture) else [found]:
            if set(task.hparams.add_eos) - {"inputs"}:
                yield int(task.hparams.eos_id)


def _training_knows(parts: Parts, digests: set[str]) -> bool:
    """Return whether the training input, as it is now, has one of some vocabularies."""
    try:
        data = parts.training_input()
    except (ConfigError, OSError):  # there is none, or its data are elsewhere
        return False
    try:
        return any(each[DIGEST] in digests for each in vocabularies_of(data).values())
    finally:
        data.close()


def _refusal(
    parts: Parts, name: str, before: Mapping[str, Any], now: Mapping[str, Any], checkpoint: str
) -> ConfigError:
    then, current = (f"{each[SIZE] or 'some'} tokens, digest {each[DIGEST][:8]}" for each in (before, now))
    problem = (
        f"is not the vocabulary that {checkpoint} was trained with ({current}; it was {then}): the same id means "
        "another token now."
    )
    remedy = (
        "Restore the file that it is read from, which is the training text if every character is a token, or start a "
        "new job in a new job_log_dir, which may take over weights by init_from_checkpoint_rules."
    )
    return fault_of(parts.experiment, f"vocabulary of {name}", problem, remedy)
