-- needs: place
local there = redis.call('HMGET', CONV, 'id', 'deleting', 'entries')
if not there[1] or there[2] then return reply.unknown() end
local entries = tonumber(there[3] or 0)
if not args.position then return reply.place { position = place_up_to(entries) } end
local why = misplaced(args.position, entries)
if why then return reply.no_place { why = why } end
return reply.place { position = args.position }
