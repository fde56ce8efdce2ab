"""For mkdocs: a link to a file outside of docs/ leads to the repository."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\((?:\.\./)+((?!lab/|[\w]+\.md)[^)]+|CHANGELOG\.md|DECISIONS\.md)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return _OUTSIDE.sub(rf"]({config['repo_url']}/blob/main/\1)", markdown)
