-- Count the end of a run, for its tenant.
redis.call('HINCRBY', PREFIX .. OWNER .. 'tally', status, 1)
