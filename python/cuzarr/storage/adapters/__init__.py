"""Stores written in Python, as the Rust side calls them."""
