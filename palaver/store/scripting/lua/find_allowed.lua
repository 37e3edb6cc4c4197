-- needs: allowance
-- HELD has `<owner><since when> <conversation>/<run>/<step>` for each step that waits for a cap of its tenant, all with
-- one score: sorted by owner and time. METERS has `looked`, when sweepers last looked, and `after`, where they go on.
local HELD, METERS, PREFIX = keys.held, keys.meters, string.match(keys.held, '^({.-}:)')
local found, tenants = {}, 0

-- The steps of a tenant that its caps would let begin, in order; a few of them are looked at.
local function look_at(owner)
  local left = allowance(PREFIX, owner, 0)
  local first = redis.call('ZRANGE', HELD, '[' .. owner .. '0', '(' .. owner .. ':', 'BYLEX', 'LIMIT', 0,
    args.of_a_tenant)
  for _, entry in ipairs(first) do
    local call = string.match(entry, ' (.*)$')
    local run, name = string.match(call, '^[^/]*/([^/]*)/(.*)$')
    local text = redis.call('HGET', PREFIX .. 'steps:' .. run, name)
    local needs = text and cjson.decode(text).needs
    if not needs then
      -- Its run was deleted by hand, or evicted.
      if redis.call('ZREM', HELD, entry) == 1 then redis.call('HINCRBY', METERS, owner .. 'held', -1) end
    elseif not hindrance(left, needs) then
      found[#found + 1] = call
      charge(left, needs)
    end
  end
end

if redis.call('EXISTS', HELD) == 0 then return reply.allowed { calls = found } end
local place = redis.call('HMGET', METERS, 'looked', 'after')
-- There may be hundreds of sweepers: one look is enough for all of them.
if NOW < (place[1] or 0) + args.every_ms then return reply.allowed { calls = found } end
local after = place[2] or '-'
while tenants < args.tenants and after do
  local entry = redis.call('ZRANGE', HELD, after, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  local owner = entry and (string.match(entry, '^@.-:') or '')
  if owner then look_at(owner) end
  tenants, after = tenants + 1, owner and '[' .. owner .. ':'
end
redis.call('HSET', METERS, 'after', after or '-')
if args.every_ms > 0 then redis.call('HSET', METERS, 'looked', NOW) end
return reply.allowed { calls = found }
