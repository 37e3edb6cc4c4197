-- The time, by Redis's clock: ms since the epoch.
local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)
