"""Metadata of arrays and groups, as objects and as stored documents."""
