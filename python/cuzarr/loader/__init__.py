"""Samples of arrays for training: boxes along some dimensions, in an order that reads each stored chunk once.

:mod:`cells` divides the sample axes into cells, :mod:`crops` draws positions, :mod:`plan` chooses the order of an epoch,
:mod:`shares` divides an epoch among ranks and workers, :mod:`progress` says how far one is, :mod:`variables` says what a sample has
of each array, and :mod:`reading` holds cells in memory while samples are cut out of them. None of them knows PyTorch.
"""
