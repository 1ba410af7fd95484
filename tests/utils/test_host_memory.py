from __future__ import annotations

import torch

from xdpx.utils.host_memory import HostMemory, copy_to_host


def test_the_next_state_lies_in_the_memory_of_the_one_before_with_its_own_numbers() -> None:
    memory, live = HostMemory(), [torch.arange(6.0), torch.arange(6.0) + 10, torch.ones(2, 3).t()]
    with memory:
        first = [copy_to_host(each) for each in live]
    places = [each.data_ptr() for each in first]
    assert len(set(places)) == 3
    for each in live:
        each.add_(1)
    with memory:
        second = [copy_to_host(each) for each in live]
    assert {each.data_ptr() for each in second} == set(places)
    assert all(map(torch.equal, second, live))
    assert second[2].stride() == live[2].stride()


def test_outside_a_copy_is_in_memory_of_its_own_and_has_no_gradient() -> None:
    memory, weight = HostMemory(), torch.ones(4, requires_grad=True)
    with memory:
        kept = copy_to_host(weight)
    fresh = copy_to_host(weight)
    assert fresh.data_ptr() not in {kept.data_ptr(), weight.data_ptr()}
    assert not kept.requires_grad
    assert not fresh.requires_grad


def test_what_is_not_dense_is_copied_all_the_same() -> None:
    sparse = torch.eye(3).to_sparse()
    with HostMemory():
        assert torch.equal(copy_to_host(sparse).to_dense(), torch.eye(3))
