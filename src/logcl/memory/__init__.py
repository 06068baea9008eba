"""The memory: every sample ever seen, in one file."""
