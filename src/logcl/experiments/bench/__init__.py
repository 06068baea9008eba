"""Grids of experiments, and the tables that are made from their results."""
