"""Queries are compared with the shots of each class, as the equations of the paper say, whatever the padding."""

from __future__ import annotations

import torch
from torch import Tensor

from xdpx.models import models
from xdpx.models.pytorch.mlman import Mlman

WAYS, SHOTS, QUERIES = 2, 3, 2


def network() -> Mlman:
    torch.manual_seed(1)
    kind = models["mlman"]
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    known = kind.Parameters(pretrained_model=None, vocab_size=12, proj_hidden_size=4, initializer_range=0.3, **sizes)
    made: Mlman = kind(known).eval()
    return made


def rows(padding: int = 0) -> dict[str, Tensor]:
    torch.manual_seed(2)
    ids = torch.randint(1, 12, (WAYS * (SHOTS + QUERIES), 5 + padding))
    mask = torch.arange(5 + padding) < torch.randint(1, 6, (len(ids), 1), generator=torch.Generator().manual_seed(3))
    return {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask}


def by_hand(net: Mlman, shots: list[Tensor], query: Tensor) -> Tensor:
    """Equations 2 to 13 for one query and one class."""

    def pooled(states: Tensor) -> Tensor:
        return torch.cat([states.amax(0), states.mean(0)])

    def fused(own: Tensor, seen: Tensor) -> Tensor:
        return net.fuse(torch.cat([own, seen, (own - seen).abs(), own * seen], dim=-1)).relu()

    def fit(left: Tensor, right: Tensor) -> Tensor:
        return net.score(net.compare(torch.cat([left, right])).relu())[0]

    joined = torch.cat(shots)
    alike = query @ joined.T
    row = pooled(fused(query, alike.softmax(1) @ joined))
    parts = fused(joined, alike.softmax(0).T @ query).split([len(shot) for shot in shots])
    each = torch.stack([pooled(part) for part in parts])
    share = torch.stack([fit(one, row) for one in each]).softmax(0)
    return fit(share @ each, row)


def test_logits_are_those_of_the_equations_and_know_no_padding() -> None:
    net, given = network(), rows()
    with torch.no_grad():
        found = net.match(given, n_way=WAYS, k_shot=SHOTS, q_query=QUERIES)
        hidden = net._states(given["input_ids"], given["attention_mask"], None)
        text = [states[mask] for states, mask in zip(hidden, given["attention_mask"], strict=True)]
        classes = [[text[shot * WAYS + way] for shot in range(SHOTS)] for way in range(WAYS)]
        wanted = [[by_hand(net, shots, query) for shots in classes] for query in text[WAYS * SHOTS :]]
        wider = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in given.items()}
        again = net.match(wider, n_way=WAYS, k_shot=SHOTS, q_query=QUERIES)
    torch.testing.assert_close(found[0], torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, again, rtol=1e-4, atol=1e-5)
