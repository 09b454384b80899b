"""Watch a training loop of your own: measure every few steps, stop early, and write the audit card at the end.

The journal and its readers need no torch. Lightning, transformers and TensorBoard are imported only when they are used.
"""
