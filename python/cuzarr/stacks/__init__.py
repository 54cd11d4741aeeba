"""Adapters for programs that read or write their data through an interface: a module for each program.

Import the module that you need, as in ``from cuzarr.stacks.earth2studio import Backend``.
"""
