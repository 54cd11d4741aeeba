"""Operators of arrays, device arrays and expressions: Python's signs, and NumPy's functions."""
