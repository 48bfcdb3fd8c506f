"""Extract and check an uploaded model archive.

A process of its own (`python -m control_plane.assets.background.archive_extraction FOLDER`): an archive of hundreds
of gigabytes keeps no web request busy, and a hostile one can harm this process alone.
"""
