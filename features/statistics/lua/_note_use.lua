-- What calls of a model used is in the line of their lease.
-- needs: journal
local _, model = names_in_use()
-- As Lua joins them, large numbers have exponents.
local numbers = string.format('%.0f %.0f %.0f', used.model_calls, used.input_tokens, used.output_tokens)
local cost = used.cost and string.format('%.0f', used.cost) or '-'
used_under_it = ' ' .. (model or Metrics.OTHER) .. ' ' .. numbers .. ' ' .. cost
