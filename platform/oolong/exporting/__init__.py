"""A run's measurements in the files of other tools: TensorBoard, Weights & Biases.

Read through the public API. A repeated export continues where the last one ended; once a run has a new attempt, which
did some steps again, the export starts over.
"""
