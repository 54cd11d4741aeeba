"""What arrays, device arrays and expressions share: Python's signs, and NumPy's functions."""
