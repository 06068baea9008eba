"""Trials that try to lose a memory: power cuts, full disks, killed processes. Not part of the package."""
