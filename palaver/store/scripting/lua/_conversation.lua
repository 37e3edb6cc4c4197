-- The lists of conversations, of which each is in two: by when it was begun, and by when something last happened to it.
-- Sweepers take those that expire out of the lists: they are in a third one, by when.
-- needs: now

local CONV, LOG = keys.conversation, keys.log
local PREFIX, CONVERSATION = string.match(CONV, '^({.-}:)conv:(.*)$')

local function list_conversation(order, at) redis.call('ZADD', PREFIX .. 'convs' .. order, at, CONVERSATION) end

local touched = false
-- Something happens to it; a script says so once, also to those who watch it.
local function touch()
  if touched then return end
  touched = true
  redis.call('HSET', CONV, 'updated_at', NOW)
  list_conversation(':updated', NOW)
  redis.call('PUBLISH', LOG, '')
end

local function keep_conversation()
  redis.call('PERSIST', CONV)
  redis.call('PERSIST', LOG)
  redis.call('ZREM', PREFIX .. 'convs:expiring', CONVERSATION)
end

-- It has no unfinished run: its retention begins.
local function let_conversation_expire()
  redis.call('EXPIRE', CONV, Setting.RETENTION)
  redis.call('EXPIRE', LOG, Setting.RETENTION)
  list_conversation(':expiring', NOW + Setting.RETENTION * 1000)
end

local function begin_conversation()
  redis.call('HSET', CONV, 'id', CONVERSATION, 'created_at', NOW)
  list_conversation('', NOW)
  touch()
end
