import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.models import models
from xdpx.models.pytorch.matching import augmented_residual

SIZES = {"embedding_dim": 6, "hidden_size": 8, "vocab_size": 20, "pad_index": 0, "num_classes": 3}
SINGLE = {"cls_cnn", "bow", "lstm", "gru", "dpcnn"}
WORD_MODELS = [
    ("cls_cnn", {"encoder_layers": 2, "residual": True, "kernel_sizes": [2, 3]}),
    ("cls_cnn", {"pooling": "attn", "pool_output_size": 5}),
    ("match_cnn", {"prediction": "symmetric"}),
    ("match_cnn", {"prediction": "simple", "pooling": "attn"}),
    ("re2", {"blocks": 3, "encoder_layers": 2, "fix_embeddings": False}),
    ("re2", {"blocks": 1, "encoder_layers": 1, "alignment": "identity", "prediction": "symmetric"}),
    ("bow", {}),
    ("bow", {"word_ngrams": 3, "ngram_buckets": 50}),
    ("lstm", {"encoder_layers": 2}),
    ("gru", {"pooling": "attn"}),
    ("match_lstm", {"pooling": "attn", "pool_output_size": 5}),
    ("match_gru", {"encoder_layers": 2, "prediction": "symmetric"}),
    ("dpcnn", {"blocks": 4}),
    ("esim", {}),
    ("dssm", {}),
    ("dssm", {"share_towers": False, "output_size": 5, "encoder_layers": 1}),
]


def build(name, **keys):
    torch.manual_seed(0)
    kind = models[name]
    sizes = {key: value for key, value in SIZES.items() if key in kind.Parameters.model_fields}
    return kind(kind.Parameters(**sizes, **keys))


def texts(*rows, pad_to=0):
    length = max(pad_to, *map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    return tokens, tokens != 0


def inputs(name, pad_to=0):
    first = texts([3, 4, 5, 6], [7, 8], pad_to=pad_to)
    second = texts([5, 6, 1], [9], pad_to=pad_to)
    if name in SINGLE:
        return dict(zip(("tokens", "mask"), first, strict=True))
    return dict(zip(("tokens1", "mask1", "tokens2", "mask2"), (*first, *second), strict=True))


@pytest.mark.parametrize(("name", "keys"), WORD_MODELS)
def test_padding_never_changes_a_score(name, keys):
    model = build(name, **keys).eval()
    assert torch.allclose(model(**inputs(name)), model(**inputs(name, pad_to=9)), atol=1e-6)


@pytest.mark.parametrize(("name", "keys"), WORD_MODELS)
def test_every_trained_weight_gets_a_gradient(name, keys):
    model = build(name, **keys)
    model(**inputs(name)).square().sum().backward()
    assert [n for n, weight in model.named_parameters() if weight.requires_grad and weight.grad is None] == []


def test_a_text_without_a_token_has_a_finite_score():
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    empty = tokens, tokens != 0
    for name, keys in WORD_MODELS:
        given = empty if name in SINGLE else (*empty, *empty)
        assert build(name, **keys).eval()(*given).isfinite().all(), name


def test_a_symmetric_match_sees_the_size_of_the_difference_only():
    model = build("match_cnn", prediction="symmetric")
    a, b = torch.randn(2, 8), torch.randn(2, 8)
    seen = []
    model.prediction.classifier.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.prediction(a, b)
    model.prediction(b, a)
    assert torch.equal(seen[0][:, 16:], seen[1][:, 16:])


def test_the_residual_keeps_the_words_at_the_end():
    words, first, second = torch.randn(1, 2, 3), torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    joined = augmented_residual(first, words, 1)
    again = augmented_residual(second, joined, 2)
    assert torch.equal(again[..., 4:], words)
    assert torch.allclose(again[..., :4], (first + second) / 2**0.5)


def test_fixed_embeddings_are_not_trained():
    model = build("re2", blocks=1, encoder_layers=1)
    trained = [weight for group in model.parameter_groups(0.1) for weight in group["params"]]
    assert not any(weight is model.embedding.table.weight for weight in trained)


@pytest.mark.parametrize(("name", "keys"), WORD_MODELS)
def test_word_vectors_of_the_data_are_taken_over(tmp_path, name, keys):
    vectors = torch.randn(20, 6)
    torch.save(vectors, tmp_path / "embeddings.pt")
    model = build(name, **keys, data_dir=str(tmp_path))
    model.load_pretrained(torch.load)
    assert torch.equal(model.embedding.table.weight, vectors)


def test_word_vectors_of_another_size_are_refused(tmp_path):
    torch.save(torch.randn(20, 7), tmp_path / "embeddings.pt")
    with pytest.raises(ConfigError, match="embedding_dim.*20x6.*20x7"):
        build("cls_cnn", data_dir=str(tmp_path)).load_pretrained(torch.load)


def test_weights_of_an_earlier_run_are_taken_over(tmp_path):
    earlier = build("cls_cnn")
    with torch.no_grad():
        earlier.embedding.table.weight.add_(1.0)
    torch.save(earlier.state_dict(), tmp_path / "checkpoint-5.pt")
    later = build("cls_cnn", pretrained_model=str(tmp_path / "checkpoint-5.pt"))
    later.load_pretrained(torch.load)
    assert all(torch.equal(a, b) for a, b in zip(earlier.parameters(), later.parameters(), strict=True))


def test_data_that_says_no_number_of_classes_is_refused():
    kind = models["cls_cnn"]
    with pytest.raises(ConfigError, match="num_classes"):
        kind(kind.Parameters(embedding_dim=6, hidden_size=8, vocab_size=20))


def test_a_width_that_the_windows_cannot_share_is_refused():
    kind = models["cls_cnn"]
    assert dict(kind.Parameters(embedding_dim=6, hidden_size=8, kernel_sizes=[2, 3, 4]).conflicts())
