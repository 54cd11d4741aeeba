"""Python's operators and NumPy's functions for stored arrays, device arrays and plans."""
