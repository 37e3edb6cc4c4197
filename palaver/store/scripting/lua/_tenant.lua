-- The lists that what has an id is in: what stands in front of their names.

-- The tag of a tenant is in its ids, with an underscore behind it; the default tenant has none. Lists are a tenant's, and
-- what is of any other tenant than the default one is in a list of all of these, too.
local function owners_of(id)
  if string.sub(id, 14, 14) ~= '_' then return '' end
  return '@' .. string.sub(id, 8, 13) .. ':', '@:'
end
