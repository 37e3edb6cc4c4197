-- needs: alone
note_answer(NOW - args.answered_ms)
-- An answer that no probe brought, before any probe has failed, shows that it was no outage.
local was_away = end_probe(args.call) or gate.confirmed
if is_out() and redis.call('ZCARD', STREAK) < NEEDED then close_circuit(was_away) end
return reply.answered { woken = woken }
