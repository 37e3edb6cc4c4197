-- The rule of a rate, of a provider as of a tenant: GCRA. So many ms stand for one of what it counts.

-- A rate lets 5 s worth of it begin at once.
local BURST = 5000

-- How long (ms) before all is over that was used so far a call may begin that takes so much.
local function begins_early(amount, each) return math.max(0, BURST - amount * each) end
