-- needs: place
local there = redis.call('HMGET', CONV, 'id', 'deleting', 'entries')
if not there[1] or there[2] then return reply.unknown() end
local entries = tonumber(there[3] or 0)
if not args.position then
  local place = place_up_to(entries)
  return place and reply.place { position = place } or reply.no_place { why = Misplaced.FAR }
end
local why = misplaced(args.position, entries)
if why then return reply.no_place { why = why } end
return reply.place { position = args.position }
