"""A thinned stream: fewer samples and classes, the same tasks, and it says so."""

import numpy as np

from logcl.streams import open_stream


def test_fewer_samples_of_each_class_the_first_to_arrive():
    whole = open_stream("digits", tasks=5, seed=3)
    part = whole.thinned(per_class=7, test_per_class=2)
    assert part.subset == "7 samples per class, 2 test samples per class"
    assert len(part) == len(whole)
    assert part.task_classes == whole.task_classes
    for many, few in zip(whole, part, strict=True):
        for label in np.unique(many.y):
            np.testing.assert_array_equal(few.x[few.y == label], many.x[many.y == label][:7])
    assert (np.bincount(part.test_y) == 2).all()


def test_every_nth_class_of_each_task_renumbered():
    whole = open_stream("digits", tasks=5, seed=3)
    part = whole.thinned(one_class_in=2)
    assert part.classes == tuple(whole.classes[classes[0]] for classes in whole.task_classes)
    assert part.task_classes == tuple((k,) for k in range(5))
    assert part.subset == "5 of 10 classes"
    for k, task in enumerate(part):
        original = list(whole)[k]
        np.testing.assert_array_equal(task.x, original.x[original.y == whole.task_classes[k][0]])
    assert set(part.test_y) == set(range(5))
    assert whole.subset is None
    assert whole.thinned().subset is None
