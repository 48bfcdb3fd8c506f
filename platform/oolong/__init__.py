"""The public package of Oolong: what its processes say to each other, the API client and the CLI."""

__version__ = "0.1.0"
