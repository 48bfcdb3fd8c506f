"""Backup, restore and verification: the rows, the blobs that they name, and nothing in between.

A backup is a folder: `backup.json` (written last, so a folder with it is whole), one dump of the database, and
`blobs/ab/<sha256>`. The dump and the list of blobs come from one snapshot of the database.
"""
