from dataclasses import dataclass

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset


@dataclass(frozen=True)
class Ranks:
    """Ranks of processes that do not exist."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")


class Numbers(Dataset):
    """0, 1, 2, ... as samples with one value each."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"value": torch.tensor(index)}


class Stream(IterableDataset):
    """The numbers 0, 1, 2, ... without a length."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return ({"value": torch.tensor(index)} for index in range(self.size))


@pytest.fixture
def ranks():
    return Ranks


@pytest.fixture
def numbers():
    return Numbers


@pytest.fixture
def stream():
    return Stream
