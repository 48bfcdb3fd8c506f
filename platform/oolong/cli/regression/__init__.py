"""What CI makes of a run that has ended: assertions, comparisons with a baseline, and their reports."""
