"""Child processes of a tools worker, and their leases, output and end."""
