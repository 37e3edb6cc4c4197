-- needs: allowance
-- HELD has `<owner><since when> <conversation>/<run>/<step>` for each step that waits for a cap of its tenant, all with
-- one score: sorted by owner and time.
local HELD, PREFIX = keys.held, string.match(keys.held, '^({.-}:)')
local found, after, tenants = {}, args.after, 0

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
      if redis.call('ZREM', HELD, entry) == 1 then redis.call('HINCRBY', PREFIX .. 'meters', owner .. 'held', -1) end
    elseif not hindrance(left, needs) then
      found[#found + 1] = call
      charge(left, needs)
    end
  end
end

while tenants < args.tenants do
  local entry = redis.call('ZRANGE', HELD, after, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not entry then return reply.allowed { calls = found, after = '-' } end
  local owner = string.match(entry, '^@.-:') or ''
  look_at(owner)
  tenants, after = tenants + 1, '[' .. owner .. ':'
end
return reply.allowed { calls = found, after = after }
