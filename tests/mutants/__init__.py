"""Mutants: the code changed in one place at a time, and whether the tests notice (``make mutants``).

``sites`` finds the places and draws a sample; ``trial`` gives one mutant to the tests, in a copy of the checkout.
"""
