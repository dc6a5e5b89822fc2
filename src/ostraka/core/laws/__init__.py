"""Exact composition of adaptively chosen answers (docs/composition.md): private, used by curves."""
