"""The real data sets: published counts, known pixels, tasks. Needs LOGCL_DATA; skipped without it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from logcl.core.progress import Silent
from logcl.streams import open_stream
from logcl.streams.catalog import CATALOG
from logcl.streams.check import check

# SHA-256 of the decoded arrays (uint8 NCHW; int64 little-endian): train x, train y, test x, test y.
KNOWN = {
    "mnist": (
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
    ),
    "omniglot": (
        "153e90f9681b8c2dca44aae8f663ca80fb688ba6d0749c3b1d9161787438fdec",
        "4846ee57bfa4ff870f1968e5fb248b06529b37bf2524e9474c16a449e7aae00d",
        "290b8792ef9a67dbeaa41ee5039eb949a7f9a06173f7197938b07f8e58b0a6ff",
        "e241873ff58b248aee3c147617b78f3d8d5380a451ae852d89d1ca484ec33544",
    ),
    "omniglot-100": (
        "b175552a38b237f5c8cf0c8fe315a79519206af1468b6dcf347d199a3a47aa07",
        "d7a1ec598e0519d01716c9e35c9faabc73d8386bf8ad6d01f59daff1441e925d",
        "c2ab3508464ec01304a39c9b0de6f4237974ca620b16f849617cd92f6581a0e9",
        "2ecc8a6bafaaf00b3506ab19273ff2434d0464975c225bfd031c9475a6d95616",
    ),
    "cifar100": (
        "de64658905c6b161606e3649ddafce7cf86c7634a0cf9116d518e64ef46a33c5",
        "8bf4935e7c77a3096270043c6f3b221b6ecb9c63d1a08608e9af66cff17e977a",
        "83c56492b2c11211ad1bb2dbd4f2eef4170a0441e41a41f3039c3144b1f5a511",
        "80031c23f8300724c6fbc588e4bccbe41c6392041782148727bb497b0132c4ad",
    ),
}
# Characters of each alphabet as in the data set's own list.
ALPHABETS = {
    "Alphabet_of_the_Magi": 20, "Angelic": 20, "Anglo-Saxon_Futhorc": 29, "Arcadian": 26, "Armenian": 41,
    "Asomtavruli_(Georgian)": 40, "Atemayar_Qelisayer": 26, "Atlantean": 26, "Aurek-Besh": 26, "Avesta": 26,
    "Balinese": 24, "Bengali": 46, "Blackfoot_(Canadian_Aboriginal_Syllabics)": 14, "Braille": 26,
    "Burmese_(Myanmar)": 34, "Cyrillic": 33, "Early_Aramaic": 22, "Futurama": 26, "Ge_ez": 26,
    "Glagolitic": 45, "Grantha": 43, "Greek": 24, "Gujarati": 48, "Gurmukhi": 45, "Hebrew": 22,
    "Inuktitut_(Canadian_Aboriginal_Syllabics)": 16, "Japanese_(hiragana)": 52, "Japanese_(katakana)": 47,
    "Kannada": 41, "Keble": 26, "Korean": 40, "Latin": 26, "Malay_(Jawi_-_Arabic)": 40, "Malayalam": 47,
    "Manipuri": 40, "Mkhedruli_(Georgian)": 41, "Mongolian": 30, "N_Ko": 33,
    "Ojibwe_(Canadian_Aboriginal_Syllabics)": 14, "Old_Church_Slavonic_(Cyrillic)": 45, "Oriya": 46,
    "Sanskrit": 42, "Sylheti": 28, "Syriac_(Estrangelo)": 23, "Syriac_(Serto)": 23, "Tagalog": 17,
    "Tengwar": 25, "Tibetan": 42, "Tifinagh": 55, "ULOG": 26,
}  # fmt: skip


def counts(y):
    return np.bincount(y).tolist()


@pytest.mark.parametrize("name", KNOWN)
def test_known_pixels_and_labels(real_data, name):
    stream = open_stream(name)
    arrays = (stream.source_x, stream.source_y.astype("<i8"), stream.test_x, stream.test_y.astype("<i8"))
    assert tuple(hashlib.sha256(np.ascontiguousarray(a)).hexdigest() for a in arrays) == KNOWN[name]


@pytest.mark.parametrize("name", KNOWN)
def test_every_sample_arrives_once_from_memory_maps(real_data, name):
    open_stream(name)
    stream = open_stream(name)
    if name != "omniglot-100":  # a small selection of the same maps
        assert isinstance(stream.source_x.base, np.memmap)  # the second start decodes nothing
    assert np.array_equal(np.sort(np.concatenate(stream.members)), np.arange(len(stream.source_y)))
    first = next(iter(stream))
    assert (first.x.dtype, first.y.dtype) == (np.uint8, np.int64)
    assert first.x.shape == (len(first), *stream.image_shape)
    assert first.x.flags.writeable


def test_mnist(real_data):
    stream = open_stream("mnist")
    assert stream.image_shape == (1, 28, 28)
    assert stream.classes == tuple("0123456789")
    assert counts(stream.source_y) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(stream.test_y) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert stream.task_classes == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    assert [len(rows) for rows in stream.members] == [12665, 12089, 11263, 12183, 11800]
    # The mean and deviation commonly used for normalisation.
    assert stream.source_x.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert stream.source_x.std() / 255 == pytest.approx(0.3081, abs=5e-5)
    assert stream.source_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert stream.test_y[:5].tolist() == [7, 2, 1, 0, 4]


def test_omniglot(real_data):
    stream = open_stream("omniglot")
    assert stream.image_shape == (1, 28, 28)
    assert stream.classes == tuple(sorted(ALPHABETS))
    assert sum(ALPHABETS.values()) == 1623
    assert counts(stream.source_y) == [15 * ALPHABETS[name] for name in stream.classes]
    assert counts(stream.test_y) == [5 * ALPHABETS[name] for name in stream.classes]
    assert (stream.samples, len(stream.test_y)) == (24345, 8115)
    assert stream.task_classes == tuple(tuple(range(5 * k, 5 * k + 5)) for k in range(10))
    in_order = [ALPHABETS[name] for name in stream.classes]
    assert [len(rows) for rows in stream.members] == [
        15 * sum(in_order[5 * k : 5 * k + 5]) for k in range(10)
    ]
    # Ink is bright on 0: most of every image is background.
    assert np.median(stream.test_x) == 0
    assert stream.test_x.max(axis=(1, 2, 3)).min() > 60


def test_omniglot_100(real_data):
    stream = open_stream("omniglot-100")
    assert len(stream.classes) == 300
    assert len(stream) == 100
    assert stream.classes[0] == "Alphabet_of_the_Magi/character01"
    assert stream.classes[-1] == "Burmese_(Myanmar)/character34"
    assert len({name.split("/")[0] for name in stream.classes}) == 10, "ten whole alphabets"
    assert counts(stream.source_y) == [15] * 300
    assert counts(stream.test_y) == [5] * 300
    assert {len(rows) for rows in stream.members} == {45}
    other = open_stream("omniglot-100", seed=5)
    assert other.classes == stream.classes
    assert (
        other.task_classes == stream.task_classes == tuple((3 * k, 3 * k + 1, 3 * k + 2) for k in range(100))
    )
    whole = open_stream("omniglot")
    assert np.array_equal(stream.test_x[:100], whole.test_x[:100]), "the same drawings"


def test_cifar100(real_data):
    stream = open_stream("cifar100", seed=None)
    assert stream.image_shape == (3, 32, 32)
    assert stream.classes == tuple((real_data / "cifar-100-binary/fine_label_names.txt").read_text().split())
    assert counts(stream.source_y) == [500] * 100
    assert counts(stream.test_y) == [100] * 100
    assert stream.task_classes == tuple(tuple(range(5 * k, 5 * k + 5)) for k in range(20))
    assert {len(rows) for rows in stream.members} == {2500}
    # The channel means commonly used for normalisation: red, green, blue.
    means = stream.source_x.mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)
    drawn = open_stream("cifar100", seed=0)
    assert sorted(sum(drawn.task_classes, ())) == list(range(100))
    assert drawn.task_classes != stream.task_classes != open_stream("cifar100", seed=1).task_classes


def test_the_files_of_mnist_are_the_published_ones(real_data):
    report = check(CATALOG["mnist"], None, Silent())
    assert len(report.files) == 4
    assert all(file.published is not False for file in report.files)
    assert (report.classes, report.train, report.test, report.image_shape) == (10, 60000, 10000, (1, 28, 28))
