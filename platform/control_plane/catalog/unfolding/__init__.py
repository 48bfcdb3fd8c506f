"""An uploaded archive of a model, unfolded and checked.

A process of its own (`python -m control_plane.catalog.unfolding FOLDER`), as `catalog.parsing` is one: an archive of
hundreds of gigabytes keeps no web request, and what it does to its reader it does to this process alone.
"""
