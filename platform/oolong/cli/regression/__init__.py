"""Regression checks of a run that has ended: assertions, comparisons with a baseline, reports."""
