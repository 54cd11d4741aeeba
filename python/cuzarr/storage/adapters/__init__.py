"""Adapters for stores written in Python, with the methods that the Rust side calls."""
