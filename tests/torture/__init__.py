"""Trials that try to lose a memory: power cuts, full disks. Not part of what is installed."""
