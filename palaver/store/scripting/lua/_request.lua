-- Requests that are taken once. The record of an idempotency key tells what came of its request. Without a key of the
-- client's, the record is of this very request: it is made again where its answer was lost.
-- needs: conversation, passing

-- What became of an earlier request with the key: whether it is the `same` one, whether that is `replayed` or this very
-- one again, which is named `request`, and the `fields` of the record. Nil if there was none.
local function earlier_request(request, ...)
  local known = redis.call('HMGET', keys.idempotency, 'fingerprint', 'request', ...)
  if not known[1] then return nil end
  local replayed = known[2] ~= request
  return { same = not replayed or known[1] == args.fingerprint, replayed = replayed, fields = { unpack(known, 3) } }
end

-- Keep with the key what came of the request: fields and their values.
local function remember(...)
  redis.call('HSET', keys.idempotency, 'fingerprint', args.fingerprint or '', ...)
  local lasts = args.fingerprint and Setting.RETENTION or 60
  redis.call('EXPIRE', keys.idempotency, lasts)
  if OTHERS then note_passing(PREFIX, OWNER, keys.idempotency, lasts) end
end
