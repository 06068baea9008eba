"""How many threads the products of numpy use."""

from __future__ import annotations

import functools
from typing import Any

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread_per_product() -> Any:
    """The products are too small for several threads, which would wait for each other most of the time."""
    return _controller().limit(limits=1, user_api="blas")
