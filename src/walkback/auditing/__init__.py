"""Audits: diagnose a model or stored runs, train and judge methods together, verify cards."""
