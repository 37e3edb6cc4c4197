-- The conversation has `offers:<server>` for each list, and `offers`, how many they are.
-- needs: any_run
if not leased_to(keys.steps, args.step, args.fence) then return reply.stale() end
local conversation, field = keys.conversation, 'offers:' .. args.server
local kept = redis.call('HGET', conversation, field)
if kept then return reply.kept_list { text = kept } end
if tonumber(redis.call('HGET', conversation, 'offers') or 0) >= Limit.OWN_LISTS then return reply.too_many_lists() end
redis.call('HINCRBY', conversation, 'offers', 1)
redis.call('HSET', conversation, field, args.text)
return reply.kept_list { text = args.text }
