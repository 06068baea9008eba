"""Logarithmic continual learning: a memory that never loses a sample."""
