-- Tenants that are erased: nothing is begun for them any more.
-- needs: conversation

-- Whether the tenant of this conversation is one, or is being erased. The default tenant is not looked for.
local function is_erased()
  return OTHERS and redis.call('ZSCORE', PREFIX .. 'erased', string.sub(OWNER, 2, -2))
end
