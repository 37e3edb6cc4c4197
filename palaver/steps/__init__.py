"""The terms between the engine and its workers: leases, verdicts, retry policies, the signs of a run that is stuck."""
