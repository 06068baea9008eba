"""Weights as the file stores them: rounded once, exact from then on, and close to the trained ones."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

from logcl.core.errors import Damaged
from logcl.core.settings import Recipe
from logcl.nn import blobs
from logcl.nn.training import generator_for, seeded


def build(sizes: tuple[int, int]) -> nn.Module:
    rows, columns = sizes
    return nn.Sequential(nn.Linear(columns, rows), nn.BatchNorm1d(rows), nn.Unflatten(1, (rows, 1)))


def network(sizes: tuple[int, int] = (7, 5)) -> nn.Module:
    with seeded(generator_for(1)):
        return build(sizes)


def there_and_back(found: nn.Module, sizes: tuple[int, int], precision: str) -> nn.Module:
    blob = blobs.pack(Recipe(), blobs.weights(found, "decoder", precision))
    about, tensors = blobs.unpack(blob, Recipe, "level-0")
    assert about == Recipe()
    return blobs.restore(build, sizes, tensors, "decoder", "level-0")


def states_equal(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


matrices = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.one_of(
        st.floats(-4, 4, width=32),
        st.floats(-(2.0**-20), 2.0**-20, width=32),
        st.sampled_from([0.0, 1e-30, 1000.0, -0.0078, 0.00775]),
    ),
)


@given(matrices)
@hypothesis_settings(max_examples=80)
def test_int8_weights_are_off_by_at_most_half_a_step_and_exact_once_rounded(matrix):
    sizes = matrix.shape
    found = network(sizes)
    found[0].weight.data = torch.from_numpy(matrix.copy())
    blobs.round_weights(found, "int8")
    rounded = found[0].weight.detach()
    assert torch.isfinite(rounded).all()
    step = np.maximum(np.abs(matrix).max(axis=1, keepdims=True) / 127, 2.0**-14)
    # The scale itself is stored in half precision: an error of 2^-11, for up to 127 steps.
    assert (np.abs(rounded.numpy() - matrix) <= step * (0.5 + 127 * 2.0**-11)).all()
    back = there_and_back(found, sizes, "int8")
    assert states_equal(back, found)
    again = rounded.clone()
    blobs.round_weights(found, "int8")
    assert torch.equal(found[0].weight.detach(), again)


def test_the_largest_weight_of_a_row_is_off_by_no_more_than_the_rounded_step():
    found = network()
    weight = found[0].weight.detach().clone()
    blobs.round_weights(found, "int8")
    largest = weight.abs().amax(dim=1)
    assert torch.allclose(found[0].weight.detach().abs().amax(dim=1), largest, rtol=2.0**-10)


def test_each_row_has_its_own_scale_even_if_it_is_zero():
    found = network()
    found[0].weight.data[0] *= 1000
    found[0].weight.data[1] = 0
    small = found[0].weight.detach()[2].clone()
    blobs.round_weights(found, "int8")
    assert (found[0].weight.detach()[1] == 0).all()
    assert torch.allclose(found[0].weight.detach()[2], small, atol=float(small.abs().max()) / 200)


@pytest.mark.parametrize("precision", ["int8", "half"])
def test_a_network_is_the_same_after_a_restart(precision):
    found = network()
    found[1].running_var.fill_(1e6)  # more than half precision holds
    before = {key: value.clone() for key, value in found.state_dict().items()}
    blobs.round_weights(found, precision)
    assert not found.training
    back = there_and_back(found, (7, 5), precision)
    assert states_equal(back, found)
    assert torch.equal(back[1].running_var, before["1.running_var"])
    assert not any(weight.requires_grad for weight in back.parameters())


def test_convolutions_have_one_scale_per_filter():
    with seeded(generator_for(0)):
        found = nn.Conv2d(3, 4, 3)
    found.weight.data *= torch.tensor([0.1, 1, 10, 100])[:, None, None, None]
    before = found.weight.detach().clone()
    kept = blobs.weights(found, "decoder", "int8")
    assert kept["decoder.weight"].dtype == torch.int8
    assert kept["decoder.weight.scale"].shape == (4, 1, 1, 1)
    assert kept["decoder.bias"].dtype == torch.float16  # few, and every pixel depends on them
    blobs.round_weights(found, "int8")
    worst = (found.weight.detach() - before).abs().flatten(1).amax(dim=1)
    assert (worst <= before.abs().flatten(1).amax(dim=1) / 127 * 0.57).all()


def test_int8_takes_one_byte_per_weight_and_half_two():
    sizes = (64, 256)
    found = network(sizes)
    lengths = {p: len(blobs.pack(Recipe(), blobs.weights(found, "d", p))) for p in ("int8", "half", None)}
    assert lengths["half"] - lengths["int8"] == pytest.approx(64 * 256 - 64 * 2, abs=200)
    assert lengths[None] - lengths["half"] == pytest.approx(2 * 64 * 256, rel=0.05)


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t.pop("decoder.0.weight"),
        lambda t: t.pop("decoder.0.weight.scale"),
        lambda t: t.update({"decoder.0.weight.scale": torch.ones(9, 1)}),
        lambda t: t.update({"decoder.0.weight": torch.zeros(7, 6, dtype=torch.int8)}),
        lambda t: t.update({"decoder.0.bias": torch.zeros(8)}),
        lambda t: t.update({"decoder.0.extra": torch.zeros(8)}),
    ],
    ids=["no weight", "no scale", "other scale", "other shape", "other bias", "one too many"],
)
def test_weights_that_do_not_fit_are_refused(damage):
    tensors = blobs.weights(network(), "decoder", "int8")
    damage(tensors)
    with pytest.raises(Damaged, match="level-0 is damaged"):
        blobs.restore(build, (7, 5), tensors, "decoder", "level-0")


def test_a_blob_without_its_description_is_refused():
    tensors = blobs.weights(network(), "decoder", "int8")
    for metadata in (None, {"other": "{}"}, {"logcl": "no json"}, {"logcl": json.dumps({"epochs": -1})}):
        with pytest.raises(Damaged, match="level-0 is damaged"):
            blobs.unpack(safetensors.torch.save(tensors, metadata), Recipe, "level-0")
