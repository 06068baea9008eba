"""Experiments: methods on streams, their results, benches and reports."""
