"""Metadata of arrays and groups, as values and as stored documents."""
