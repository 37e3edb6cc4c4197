-- For scripts about one run and for those about many: the fence, by which only the worker with the newest lease may write,
-- and the feed of a run, which watchers read.

-- The step, if it is leased and this is its newest fence; nil or false otherwise.
local function leased_to(steps, name, fence)
  local text = redis.call('HGET', steps, name)
  local step = text and cjson.decode(text)
  return step and step.state == StepState.LEASED and step.fence == fence and step
end

-- Feeds without a listener: one that begins to hear behind this script reads first what there is.
local unheard = {}

-- Add an event to a run's feed, and tell who listens. Small ones are limited by their number; the bytes of the others are
-- counted in RUN `shown`, and beyond the limit the older half of the feed goes.
local function write_feed(run, feed, seq, kind, at, data)
  redis.call('XADD', feed, 'MAXLEN', '~', Setting.FEED_CAP, seq .. '-0', 'type', kind, 'at', at, 'data', data)
  if #data > 4096 and redis.call('HINCRBY', run, 'shown', #data) > Limit.FEED_BYTES then
    redis.call('XTRIM', feed, 'MAXLEN', math.floor(redis.call('XLEN', feed) / 2))
    redis.call('HSET', run, 'shown', math.floor(Limit.FEED_BYTES / 2))
  end
  if unheard[feed] then return end
  -- A number is cheaper in a format than between texts.
  unheard[feed] = redis.call(Channel.PUBLISH, feed, string.format('%d %d ', seq, at) .. kind .. ' ' .. data) == 0
end
