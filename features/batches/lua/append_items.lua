-- needs: batch
if not ORDER then return reply.absent() end
local number = #args.items
-- A part that is repeated because its answer was lost.
if args.offset < ITEMS and args.offset + number <= ITEMS then
  if STATE == 'open' then keep_open() end
  if not args.complete or STATE ~= 'open' then return reply.items_appended { items = ITEMS } end
elseif args.offset == ITEMS and number == 0 and args.complete and STATE ~= 'open' then
  -- The end, which may be sent again, too.
  return reply.items_appended { items = ITEMS }
elseif args.offset ~= ITEMS or STATE ~= 'open' then
  return reply.offset_wrong { items = ITEMS }
else
  for _, item in ipairs(args.items) do BYTES = BYTES + #item + #(args.by or '') end
  if ITEMS + number > args.most or BYTES > Limit.BATCH_BYTES then return reply.too_many() end
  for place, item in ipairs(args.items) do
    local number = ITEMS + place - 1
    redis.call('HSET', keys.items, number, item, unpack(args.by and { 'by:' .. number, args.by } or {}))
  end
  ITEMS = ITEMS + number
  redis.call('HSET', keys.batch, 'items', ITEMS, 'bytes', BYTES)
  keep_open()
end
if args.complete then redis.call('HSET', keys.batch, 'state', 'running') end
if LASTS <= NOW then attend(NOW) end
return reply.items_appended { items = ITEMS }
