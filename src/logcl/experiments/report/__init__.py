"""Reports: results → a self-contained page, Markdown, JSON or CSV, and figures for papers.

from logcl.experiments import report
report.write(results, Path("report.html"))
"""

from logcl.experiments.report.document import FORMATS, Document, write
from logcl.experiments.report.figures.canvas import Drawing

__all__ = ["FORMATS", "Document", "Drawing", "write"]
