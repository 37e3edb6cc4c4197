-- Whose words a conversation and a run have: none of these is a second person for its calls (ADR 0012).
-- needs: conversation, names
-- Names are those of keys, '' for a caller without one. CONV `voices` is a JSON object: by the name, the position of
-- the log from which on it has last said something, or set a secret. CONV `vouched`: what was said up to there has come
-- to a run that completed, and all of whose calls for a second person were approved. RUN `voices`: the JSON list of
-- those who made it, or spoke into it before its turn came. RUN `spoke:<name>`: who spoke into it. RUN `asked`: where
-- the log was when its model asked for such a call. RUN `vouched`: the same of the last one that was approved; '' if
-- one was not. `agent_by` of both: the JSON list of those who wrote the agent.

-- The `voices` of a conversation whose log has so many entries (JSON text, or nil), with these names, who say something now.
local function heard(voices, names, entries)
  voices = decoded(voices)
  local count = 0
  for _ in pairs(voices) do count = count + 1 end
  for _, name in ipairs(names) do
    if not voices[name] and count >= Limit.VOICES then name = '' end
    if not voices[name] then count = count + 1 end
    voices[name] = entries + 1
  end
  return cjson.encode(voices)
end

-- Who has said something in a conversation since a second person vouched for it, as a JSON list.
local function unvouched(conversation)
  local kept, names = redis.call('HMGET', conversation, 'voices', 'vouched'), {}
  for name, at in pairs(decoded(kept[1])) do
    if at > tonumber(kept[2] or 0) then names[#names + 1] = name end
  end
  return #names > 0 and cjson.encode(names) or nil
end

-- That name says something in a run with this `parent`: those above it are told what comes of that.
local function heard_above(parent, name)
  while parent do
    local run = PREFIX .. 'run:' .. cjson.decode(parent).run_id
    local there = redis.call('HMGET', run, 'conversation', 'parent')
    if not there[1] then return end
    local conversation = PREFIX .. 'conv:' .. there[1]
    local log = redis.call('HMGET', conversation, 'entries', 'voices')
    redis.call('HSET', run, 'spoke:' .. name, 1)
    if log[1] then redis.call('HSET', conversation, 'voices', heard(log[2], { name }, tonumber(log[1]))) end
    parent = there[2]
  end
end

-- That name sets a secret of this conversation: what tools do with it is of that name, too. `active` is its active run.
local function set_secret(active, name)
  local kept = redis.call('HMGET', CONV, 'voices', 'entries')
  redis.call('HSET', CONV, 'voices', heard(kept[1], { name }, tonumber(kept[2] or 0)))
  if active then heard_above(redis.call('HGET', PREFIX .. 'run:' .. active, 'parent'), name) end
end

-- Whether a conversation has another agent than the one that was looked at, if the request leans on that: its writers
-- are others, and so is what it was judged by.
local function has_other_agent(conversation)
  return args.seen_agent and args.seen_agent ~= (redis.call('HGET', conversation, 'agent') or '-')
end

-- This conversation begins with the log of another one up to a position, by the key of that name: with its voices, too.
local function take_voices(source, through, by)
  local kept = redis.call('HMGET', source, 'voices', 'vouched', 'agent_by')
  redis.call('HSET', CONV, 'voices', heard(kept[1], { by or '' }, through), unpack(kept[3] and { 'agent_by', kept[3] } or {}))
  if kept[2] and tonumber(kept[2]) <= through then redis.call('HSET', CONV, 'vouched', kept[2]) end
end

-- The log is not as it was behind a position: what a second person vouched for may have been there.
local function vouch_no_more(position)
  if tonumber(redis.call('HGET', CONV, 'vouched') or 0) > position then redis.call('HDEL', CONV, 'vouched') end
end
