"""Passes memory of the host and of GPUs between the Rust side and Python's libraries."""
