-- The log of a conversation that goes on is long: what of it there is, is to be archived.
-- needs: unarchived
if passes(ENTRIES, entries) and redis.call('ZADD', PREFIX .. 'unarchived', 'NX', NOW, CONVERSATION) == 1 then
  mark(CONV)
end
