-- What the archive lacks of a shard: a sorted set of ids by when a worker is to look at them next. `conv_…` is to be
-- archived, `-conv_…` and `-run_…` are deleted here, and are to be forgotten there. CONV `changes` counts the marks of a
-- conversation, and is never set back: with that number a worker says what it has archived. CONV `archived` is the
-- position of the log up to which that is.
-- needs: now

local function note_unarchived(prefix, id)
  redis.call('HINCRBY', prefix .. 'conv:' .. id, 'changes', 1)
  redis.call('ZADD', prefix .. 'unarchived', NOW, id)
end

local function note_deleted(prefix, id) redis.call('ZADD', prefix .. 'unarchived', NOW, '-' .. id) end

-- What was deleted stays so while the archive has it.
local function is_deleted(prefix, id) return redis.call('ZSCORE', prefix .. 'unarchived', '-' .. id) end
