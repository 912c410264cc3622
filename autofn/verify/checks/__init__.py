"""The checks that the worker runs on each backend, one module per kind."""
