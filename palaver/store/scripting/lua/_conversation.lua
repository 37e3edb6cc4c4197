-- The lists of conversations, of which each is in two: by when it was begun, and by when something last happened to it.
-- Sweepers take those that expire out of the lists: they are in a third one, by when.
-- needs: now

local CONV, LOG = keys.conversation, keys.log
local PREFIX, CONVERSATION = string.match(CONV, '^({.-}:)conv:(.*)$')
-- The tag of a tenant is in its ids, with an underscore behind it; the default tenant has none. Lists are a tenant's, and
-- what is of any other tenant than the default one is in a list of all of these, too.
local OWNER, OTHERS = PREFIX, nil
if string.sub(CONVERSATION, 14, 14) == '_' then
  OWNER, OTHERS = PREFIX .. '@' .. string.sub(CONVERSATION, 8, 13) .. ':', PREFIX .. '@:'
end

local function add_to_list(list, at, id)
  redis.call('ZADD', OWNER .. list, at, id)
  if OTHERS then redis.call('ZADD', OTHERS .. list, at, id) end
end

local function take_from_list(list, id)
  redis.call('ZREM', OWNER .. list, id)
  if OTHERS then redis.call('ZREM', OTHERS .. list, id) end
end

local touched = false
-- Something happens to it; a script says so once, also to those who watch it.
local function touch()
  if touched then return end
  touched = true
  redis.call('HSET', CONV, 'updated_at', NOW)
  add_to_list('convs:updated', NOW, CONVERSATION)
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
  redis.call('ZADD', PREFIX .. 'convs:expiring', NOW + Setting.RETENTION * 1000, CONVERSATION)
end

local function begin_conversation()
  redis.call('HSET', CONV, 'id', CONVERSATION, 'created_at', NOW)
  add_to_list('convs', NOW, CONVERSATION)
  touch()
end
