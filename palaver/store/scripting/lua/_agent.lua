-- An agent on the server.
-- needs: now
-- TENANT is the tag of the tenant; the default one has none. AGENTS is the beginning of the keys of its agents.
-- The hash of its versions: newest and oldest (numbers), spec:<number> (JSON) and facts:<number> (JSON) of each between
-- them, removed (it is not there, and the numbers are not to be given again).

local AGENTS, TENANT = string.match(keys.names, '^({palaver:agents:?(.-)}:)')
if TENANT == '' then TENANT = nil end
local kept = redis.call('HMGET', keys.versions, 'newest', 'oldest', 'removed')
local NEWEST_VERSION, OLDEST_VERSION = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
local THERE = NEWEST_VERSION > 0 and not kept[3]

-- Whether it has the version that the request expects: -1 is any.
local function as_expected()
  local version = THERE and NEWEST_VERSION or 0
  return not args.expected or args.expected == version or (args.expected == -1 and THERE)
end

local function drop_version(number) redis.call('HDEL', keys.versions, 'spec:' .. number, 'facts:' .. number) end
