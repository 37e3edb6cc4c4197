-- One call in place of two for each list: of a store with many shards, metrics ask for 50,000 lengths.
local PREFIX, found = string.match(keys.due, '^({.-}:)'), {}
for i, name in ipairs(args.lists) do
  local length = args.oldest and redis.call('ZCOUNT', PREFIX .. name, args.oldest, args.newest)
    or redis.call('ZCARD', PREFIX .. name)
  local first = length > 0 and redis.call('ZRANGE', PREFIX .. name, 0, 0, 'WITHSCORES')[2]
  found[i] = { length, math.floor(first or 0) }
end
return reply.lengths { lists = found }
