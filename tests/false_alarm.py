"""The one chance of a false alarm that all statistical tests share."""

FALSE_ALARM = 1e-9  # probability that correct code fails one statistical check
