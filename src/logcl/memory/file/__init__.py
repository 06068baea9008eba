"""The memory file: SQLite, header, digests."""
