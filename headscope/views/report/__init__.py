"""The visual report: one HTML file that needs no network."""

from headscope.views.report.page import report_html

__all__ = ["report_html"]
