"""Statistics of runs, steps and models of late: a journal that scripts write, and tallies that it is folded into."""
