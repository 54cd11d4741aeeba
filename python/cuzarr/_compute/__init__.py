"""Computations over arrays of any size: expressions, blocks, reductions and copies."""
