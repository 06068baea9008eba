"""Streams of labelled images: named data sets, folders and arrays, cut into tasks."""

from logcl.streams.stream import Classes, Pixels, Stream, Task

__all__ = ["Classes", "Pixels", "Stream", "Task"]
