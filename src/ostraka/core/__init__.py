"""The nouns, the mechanisms with their prices, and the one door out of private data."""
