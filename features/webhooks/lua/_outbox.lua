-- What webhooks are to hear of a run, in the very script that makes it true (ADR 0118). A run whose tenant had webhooks
-- when it was submitted has the field `webhooks`; who ends a run, or lets it wait for an action, reads it with what they
-- read anyway.
-- needs: count

-- `about` is JSON: what the event says besides its run. Its number is the position of its entry in the log.
local function write_to_outbox(kind, about)
  local outbox = PREFIX .. OWNER .. 'outbox'
  if redis.call('XLEN', outbox) >= Limit.WEBHOOK_OUTBOX then return count(Series.WEBHOOK_EVENTS_LOST) end
  redis.call('XADD', outbox, '*', 'kind', kind, 'run', ID, 'conversation', CONVERSATION, 'sequence', ENTRIES, 'at', NOW,
    'about', about)
  -- In case they are not taken.
  redis.call('EXPIRE', outbox, Setting.RETENTION)
  redis.call('ZADD', PREFIX .. 'outboxes', 'NX', NOW, OWNER .. 'outbox')
end
