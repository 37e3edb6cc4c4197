-- Let a call of a provider begin, or say when to ask again: at a time that is this caller's own.
-- KEYS  gate keys (_gate.lua)
-- ARGV  call, ms that its place in flight lasts unless held on to, most calls in flight, requests a minute, tokens
--       a minute ('' = no limit), tokens that the call may take
-- reply admitted, calls to wake · wait, why (cooldown | requests_per_minute | tokens_per_minute | max_in_flight),
--       ms, calls to wake
local CALL, LASTS, MOST = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- A rate lets 5 s worth of it begin at once. Who had its time booked and is late may overdraw it by another second.
local BURST, SLACK = 5000, 1000
local rates = {}
for i, name in ipairs({ 'requests', 'tokens' }) do
  local per_minute = tonumber(ARGV[3 + i])
  if per_minute then
    local cost = (name == 'tokens' and tonumber(ARGV[6]) or 1) * 60000 / per_minute
    rates[#rates + 1] = { name = name, cost = cost, early = math.max(0, BURST - cost) }
  end
end

local gone = redis.call('ZRANGEBYSCORE', WAITING, '-inf', NOW - PATIENCE, 'LIMIT', 0, 100)
if #gone > 0 then forget(unpack(gone)) end
local place = place_of(CALL)

local function wait(why, at)
  if why ~= 'max_in_flight' and redis.call('ZREM', CALLS, CALL) == 1 then grant(MOST or 0) end
  keep_place(CALL, place, at)
  expire(at)
  return { 'wait', why, math.ceil(at - NOW), woken }
end

if NOW < (gate.opens or 0) then
  if place.round ~= gate.round then place.round, place.ticket = gate.round, next_ticket() end
  local at = turn(place.ticket)
  if at > NOW then return wait('cooldown', at) end
end

local function book()
  local slot, why = NOW, nil
  for _, rate in ipairs(rates) do
    local booked = math.max(gate['booked_' .. rate.name] or 0, gate['used_' .. rate.name] or 0, NOW)
    local free_at = math.ceil(booked - rate.early)
    if free_at > slot then slot, why = free_at, rate.name .. '_per_minute' end
    keep('booked_' .. rate.name, booked + rate.cost)
  end
  place.slot, place.why = slot, why
end

if not place.slot then book() end
for _, rate in ipairs(rates) do
  -- Many who are late must not all begin at once: what was not used in time is gone.
  local overdrawn = (gate['used_' .. rate.name] or 0) - rate.early - SLACK
  if place.slot <= NOW and overdrawn > NOW then book() end
end
if place.slot > NOW then return wait(place.why, place.slot) end

if MOST then
  local free = grant(MOST)
  if not redis.call('ZSCORE', CALLS, CALL) then
    if free <= 0 then
      if not place.order then
        place.order = (gate.orders or 0) + 1
        keep('orders', place.order)
      end
      redis.call('ZADD', LINE, place.order, CALL)
      local ahead = redis.call('ZRANK', LINE, CALL)
      return wait('max_in_flight', NOW + POLL + ahead * POLL_SPREAD)
    end
  end
  redis.call('ZADD', CALLS, NOW + LASTS, CALL)
end
local latest = NOW + LASTS
for _, rate in ipairs(rates) do
  keep('used_' .. rate.name, math.max(gate['used_' .. rate.name] or 0, NOW) + rate.cost)
  latest = math.max(latest, gate['used_' .. rate.name])
end
if MOST or #rates > 0 then
  count('requests', 1)
  count('tokens', tonumber(ARGV[6]))
end
forget(CALL)
expire(latest)
return { 'admitted', woken }
