"""Ways to learn: what is asked, at which price, in which order."""
