"""Audit cards, tables and pages as Markdown, LaTeX and HTML, made from stored cards; needs no torch."""
