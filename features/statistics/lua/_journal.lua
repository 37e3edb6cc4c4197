-- Lines that say what happens to runs and steps, to be added up later (tallies.py).
-- needs: step
-- What calls of the model used under the lease that is over next: the end of its line.
local used_under_it = ''

local function write_line(what)
  redis.call('XADD', PREFIX .. 'journal', 'MAXLEN', '~', Limit.STATISTICS_JOURNAL, '*', 'line',
    string.format('%d', NOW) .. OWNER .. ' ' .. what)
end
