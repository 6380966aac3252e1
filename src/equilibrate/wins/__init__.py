"""Where ESGD wins and where it does not: a fair fight against today's optimizers.

Every fighter is tuned with equally many learning rates over equally many decades, trains with one
schedule, and is compared at the end of training on instances that no tuning has seen.
"""
