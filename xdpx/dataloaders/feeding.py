"""The loaders of a Trainer: of training data, entered where a run stands, and of data to score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from xdpx.dataloaders import loaders
from xdpx.dataloaders.options import LoaderOptions


def train_loader(trainer: Any, dataset: Any) -> Any:
    """Give the loader to train on."""
    if dataset is None:
        raise ValueError("Trainer: there is no train_dataset. Give one to the Trainer.")
    options = LoaderOptions.of(trainer.args, batch_size=trainer._train_batch_size)
    dataset, collator = _columns(trainer, dataset, "training")
    return loaders.train_loader(
        dataset, collator=collator, sampler=trainer._get_train_sampler(dataset), options=options, world=trainer.world,
        seed=trainer.args.data_seed,
    )  # fmt: skip


def eval_loader(trainer: Any, dataset: Any) -> Any:
    """Give the loader to score on; with persistent workers the same one each time."""
    if dataset is None and trainer.eval_dataset is None:
        raise ValueError("Trainer: there is no eval_dataset. Give one to the Trainer, or to evaluate.")
    name = dataset if isinstance(dataset, str) else "eval"
    if trainer.args.dataloader_persistent_workers and name in trainer.kept_loaders:
        return trainer.kept_loaders[name]
    chosen = trainer.eval_dataset[dataset] if isinstance(dataset, str) else dataset
    loader = scoring_loader(trainer, trainer.eval_dataset if chosen is None else chosen, "evaluation")
    if trainer.args.dataloader_persistent_workers:
        trainer.kept_loaders[name] = loader
    return loader


def scoring_loader(trainer: Any, dataset: Any, description: str) -> Any:
    """Give a loader of samples in their order."""
    options = LoaderOptions.of(trainer.args, batch_size=trainer.args.eval_batch_size)
    dataset, collator = _columns(trainer, dataset, description)
    sampler = trainer._get_eval_sampler(dataset)
    return loaders.eval_loader(dataset, collator=collator, sampler=sampler, options=options, world=trainer.world)


def _columns(trainer: Any, dataset: Any, description: str) -> tuple[Any, Any]:
    """Give the data and the collator without columns that the model does not take."""
    if hasattr(dataset, "remove_columns"):
        dataset = trainer._remove_unused_columns(dataset, description)  # may be overridden
    return trainer._trimmed(dataset, description)  # type: ignore[no-any-return]


def open_epoch(trainer: Any, loader: Any, epoch: int, taken: int) -> Iterator[Any]:
    """Begin an epoch (from 0) after some batches of it; where a run is continued, with its random generators."""
    loader.set_epoch(epoch)
    continued, trainer.continued = trainer.continued, None
    if continued is None:
        return iter(loader)
    trainer._load_rng_state(continued.path)
    loader.start_at(taken, continued.loader)
    return iter(loader)


def with_last(loader: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each batch, and whether it is the last one."""
    if hasattr(loader, "end_of_dataloader"):
        yield from ((batch, loader.end_of_dataloader) for batch in loader)
        return
    batches = iter(loader)
    current = next(batches, None)
    while current is not None:
        following = next(batches, None)
        yield current, following is None
        current = following
