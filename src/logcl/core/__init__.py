"""Errors, settings, input validation, text, files and progress: used by every other package."""
