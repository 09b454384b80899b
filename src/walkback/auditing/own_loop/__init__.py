"""Audits of a user's own training function: jobs, checkpoints, frozen blocks, measurement and verification."""
