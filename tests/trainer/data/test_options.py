from types import SimpleNamespace

import pytest
from transformers import TrainingArguments

from xdpx.trainer.data.options import LoaderOptions, setting


def test_they_are_read_from_the_arguments(tmp_path):
    args = TrainingArguments(
        str(tmp_path), dataloader_num_workers=2, dataloader_prefetch_factor=3, dataloader_drop_last=True, use_cpu=True,
        accelerator_config={"split_batches": True, "even_batches": False},
    )  # fmt: skip
    options = LoaderOptions.of(args, batch_size=5)
    assert (options.batch_size, options.num_workers, options.prefetch_factor, options.drop_last) == (5, 2, 3, True)
    assert (options.split_batches, options.even_batches, options.dispatch_batches) == (True, False, None)


@pytest.mark.parametrize("config", [{"even_batches": False}, SimpleNamespace(even_batches=False)])
def test_a_setting_is_found_in_mappings_and_objects(config):
    assert setting(config, "even_batches", default=True) is False
    assert setting(config, "other", default=7) == 7
    assert setting(None, "even_batches", default=True) is True
