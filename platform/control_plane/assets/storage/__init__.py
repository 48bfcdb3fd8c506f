"""Where bytes lie: a local directory, or a bucket that speaks S3. `catalog.store` is the door to either.

Both keep the same promises: a blob is named by its SHA-256 and appears whole or not at all; parts of an upload are
kept one by one until they are joined or dropped; what nobody finished is cleaned up.
"""
