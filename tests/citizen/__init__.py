"""Formula by feature: what a user of PyTorch does to an op, done to every generated op.

`python -m citizen` writes the table docs/citizen.md; tests/test_citizen.py runs a sample of it.
Expected values come from the formula itself, evaluated in PyTorch operations (see `reference`).
"""
