"""Prepares pages for the site: links to files outside docs/ become plain names."""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """Called by mkdocs with the text of each page."""
    return re.sub(r"\[([^\]]+)\]\(\.\./([^)#]+)[^)]*\)", r"\1 (`\2` in the repository)", markdown)
