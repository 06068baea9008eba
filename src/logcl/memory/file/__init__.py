"""The memory file: one SQLite database of parts with digests."""
