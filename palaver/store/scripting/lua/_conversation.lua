-- The lists of conversations, of which each is in two: by when it was begun, and by when something last happened to it.
-- Sweepers take those that expire out of the lists: they are in a third one, by when.
-- needs: now, tenant, expire_conversation

local CONV, LOG = keys.conversation, keys.log
local PREFIX, CONVERSATION = string.match(CONV, '^({.-}:)conv:(.*)$')
local OWNER, OTHERS = owners_of(CONVERSATION)

local function add_to_list(list, at, id)
  redis.call('ZADD', PREFIX .. OWNER .. list, at, id)
  if OTHERS then redis.call('ZADD', PREFIX .. OTHERS .. list, at, id) end
end

local function take_from_list(list, id)
  redis.call('ZREM', PREFIX .. OWNER .. list, id)
  if OTHERS then redis.call('ZREM', PREFIX .. OTHERS .. list, id) end
end

local touched = false
-- Something happens to it, which changes these fields; a script says so once, also to those who watch it.
local function touch(...)
  if touched then
    if ... then redis.call('HSET', CONV, ...) end
    return
  end
  touched = true
  redis.call('HSET', CONV, 'updated_at', NOW, ...)
  add_to_list('convs:updated', NOW, CONVERSATION)
  redis.call(Channel.PUBLISH, LOG, '')
end

local function keep_conversation()
  redis.call('PERSIST', CONV)
  redis.call('PERSIST', LOG)
  redis.call('ZREM', PREFIX .. 'convs:expiring', CONVERSATION)
end

-- It has no unfinished run: its retention begins.
local function let_conversation_expire()
  expire_conversation(PREFIX, CONVERSATION, Setting.HISTORY_RETENTION)
  -- hook: conversation_idle
end

-- More fields and values of it may go with that.
local function begin_conversation(...)
  add_to_list('convs', NOW, CONVERSATION)
  touch('id', CONVERSATION, 'created_at', NOW, ...)
end
