-- Adds several numbers to fields of one hash: one command reads them, and one writes them.
-- A sum stays below 10^17, from which on Lua would write it with an exponent: a hundred million dollars, in nano-dollars.

local function read_sums(key, fields) return #fields > 0 and redis.call('HMGET', key, unpack(fields)) or {} end

-- `before` is what was read; `more` has fields and values that are written, too.
local function add_up(key, fields, amounts, before, more)
  for i, field in ipairs(fields) do
    more[#more + 1] = field
    more[#more + 1] = (before[i] or 0) + amounts[i]
  end
  redis.call('HSET', key, unpack(more))
end
