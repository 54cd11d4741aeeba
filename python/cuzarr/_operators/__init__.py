"""Operators of arrays, device arrays and expressions: Python's operators, and NumPy's functions."""
