"""Reproduction: the paper's tables and figures, cell by cell, and the page that shows them beside the paper's."""
