"""The loops beside the steps: leases, recovery, progress, stops, metrics."""
