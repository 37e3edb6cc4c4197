-- needs: circuit
redis.call('ZREMRANGEBYSCORE', STREAK, '-inf', NOW - args.answered_ms)
end_probe(args.call)
if is_out() and redis.call('ZCARD', STREAK) < FAILURES then close_circuit() end
return reply.answered { woken = woken }
