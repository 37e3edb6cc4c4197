-- Lists of names of keys, each a JSON text; '' is a caller without one.

local function decoded(text) return text and cjson.decode(text) or {} end

-- JSON lists of names, or nil, as one. Beyond the limit names are not told apart.
local function all_names(...)
  local names, there = {}, {}
  for i = 1, select('#', ...) do
    for _, name in ipairs(decoded((select(i, ...)))) do
      if #names >= Limit.VOICES then name = '' end
      if not there[name] then names[#names + 1] = name end
      there[name] = true
    end
  end
  return #names > 0 and cjson.encode(names) or nil
end
