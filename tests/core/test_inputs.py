"""User input: every accepted form gives the same pixels and labels; refusals are tested with `absorb`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from logcl.core.errors import BadInput, DataError
from logcl.core.inputs import as_labels, as_pixels, channels_of, number_classes

pixels = hnp.arrays(np.uint8, st.tuples(st.integers(0, 4), st.just(1), st.integers(1, 5), st.integers(1, 5)))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
labels = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.lists(texts, max_size=20),
)


@given(pixels)
def test_all_forms_of_an_image_give_the_same_pixels(x):
    forms = (x, x[:, 0], x.astype(np.int64), x / 255, (x / 255).astype(np.float32), torch.from_numpy(x))
    for form in forms:
        found = as_pixels(form, x.shape[1:])
        assert found.dtype == np.uint8
        assert np.array_equal(found, x)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 2, 3, 4), (2, 1, 4, 3), (12,)])
def test_images_of_another_shape_are_refused_with_the_shapes_that_are_accepted(shape):
    accepted = r"\(n, 2, 3, 5\)" if len(shape) == 3 else r"\(n, 1, 3, 4\) or \(n, 3, 4\)"
    with pytest.raises(BadInput, match=f"this memory takes {accepted}"):
        as_pixels(np.zeros(shape, np.uint8), (2, 3, 5) if len(shape) == 3 else (1, 3, 4))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_types_that_numpy_does_not_have(kind):
    x = torch.tensor([0.0, 0.25, 0.5, 1.0]).reshape(1, 1, 2, 2)
    assert as_pixels(x.to(kind), (1, 2, 2)).ravel().tolist() == [0, 64, 128, 255]


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(1, 1, 2, 2).to_sparse(),
        torch.zeros(1, 1, 2, 2, device="meta"),
        np.ma.array(np.zeros((1, 1, 2, 2)), mask=[[[[False, True], [False, False]]]]),
    ],
    ids=["sparse", "meta", "masked"],
)
def test_arrays_without_plain_values_are_refused(values):
    with pytest.raises(BadInput, match="pass a dense array"):
        as_pixels(values, (1, 2, 2))
    with pytest.raises(BadInput, match="pass a dense array"):
        as_labels(values, 4)


def test_a_mask_that_hides_nothing():
    assert as_pixels(np.ma.array(np.zeros((1, 1, 2, 2))), (1, 2, 2)).tolist() == [[[[0, 0], [0, 0]]]]


@given(labels)
def test_labels_are_kept(values):
    for form in (values, np.array(values, dtype=object), tuple(values)):
        assert as_labels(form, len(values)).tolist() == values


@given(known=labels, new=labels.filter(bool))
def test_classes_are_numbered_in_order_of_appearance_after_the_known_ones(known, new):
    known = list(dict.fromkeys(known))
    if known and type(known[0]) is not type(new[0]):
        with pytest.raises(BadInput, match="use one kind of label"):
            number_classes(as_labels(new, len(new)), known)
        return
    numbers, classes = number_classes(as_labels(new, len(new)), known)
    assert [classes[number] for number in numbers] == new
    assert list(classes) == list(dict.fromkeys([*known, *new]))


@given(pixels, st.sampled_from([1, 3]))
def test_channels_may_come_last(x, channels):
    x = np.repeat(x, channels, axis=1)
    last = x.transpose(0, 2, 3, 1)
    for form in (last, last / 255, torch.from_numpy(np.ascontiguousarray(last)), list(last) or last):
        found = as_pixels(form, x.shape[1:])
        # If both may be meant, channels come first.
        assert np.array_equal(found, x if last.shape[1:] != x.shape[1:] else last)
        assert found.flags.c_contiguous


def test_pictures_of_any_mode_and_size():
    colours = [Image.new("RGB", (7, 5), (10, 20, 30)), Image.new("RGBA", (4, 9), (10, 20, 30, 255))]
    objects = np.empty(2, object)
    objects[:] = colours
    for form in (colours, tuple(colours), objects):
        assert (as_pixels(form, (3, 4, 6)) == np.array([10, 20, 30])[:, None, None]).all()
    assert as_pixels(colours[0], (1, 4, 6)).shape == (1, 1, 4, 6)
    assert [channels_of(form, 4, 6) for form in (colours, [colours[0].convert("L")])] == [3, 1]


def test_other_images_among_pictures_are_refused():
    with pytest.raises(BadInput, match="image 1 is of type ndarray, others are PIL images"):
        as_pixels([Image.new("L", (2, 2)), np.zeros((2, 2))], (1, 2, 2))
    with pytest.raises(DataError, match="image 0 has float values outside"):
        as_pixels([Image.fromarray(np.full((2, 2), 7, np.float32))], (1, 2, 2))
    with pytest.raises(BadInput, match="PIL images of any size"):
        as_pixels([np.zeros((2, 2)), np.zeros((3, 3))][:1], (1, 3, 3))
