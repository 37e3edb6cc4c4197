-- The ids of a shard that the archive lacks: a sorted set, by when a worker is to look at them next. `conv_…` is to be
-- archived, `-conv_…` and `-run_…` are deleted here, and are to be forgotten there, since then. CONV `changes` is another
-- text for each mark of a conversation, also of another one of its id, and after a failover: with it a worker says what it
-- has archived. CONV `archived` is the position of the log up to which that is, and CONV `in_archive` is there once any of
-- it was. `recalled` is in the hash of what was brought back, until it changes.
-- needs: now, expire_conversation

local function mark(conversation)
  local now = redis.call('TIME')
  redis.call('HSET', conversation, 'changes', now[1] .. '.' .. now[2])
end

local function note_unarchived(prefix, id)
  mark(prefix .. 'conv:' .. id)
  redis.call('HDEL', prefix .. 'conv:' .. id, 'recalled')
  redis.call('ZADD', prefix .. 'unarchived', NOW, id)
end

-- One that goes on is archived, too, whenever its log has passed another 500 entries: here, with the last `more` of so many.
local function passes(entries, more) return entries % 500 < more end

-- It is about to go, if it rests: it stays until it is archived.
local function hold(prefix, id)
  if redis.call('PTTL', prefix .. 'conv:' .. id) < 0 then return end
  expire_conversation(prefix, id, Setting.HISTORY_RETENTION)
end

-- The same of a run that has ended.
local function hold_run(prefix, key, id)
  redis.call('HDEL', key, 'recalled')
  redis.call('EXPIRE', key, Setting.HISTORY_RETENTION)
  redis.call('ZADD', prefix .. 'ended', NOW + Setting.HISTORY_RETENTION * 1000, id)
end

local function note_deleted(prefix, id) redis.call('ZADD', prefix .. 'unarchived', NOW, '-' .. id) end

-- Deletions stay while the archive has it, and for a while behind that. One that was before it began is of another one of
-- its id.
local function is_deleted(prefix, id, began)
  local deleted = redis.call('ZSCORE', prefix .. 'unarchived', '-' .. id)
  local forgotten = redis.call('ZSCORE', prefix .. 'forgotten', id)
  return math.max(tonumber(deleted or -1), tonumber(forgotten or -1)) >= tonumber(began)
end
