-- The caps of the tenant that a script is about.
-- needs: any_caps, conversation

-- Those with these names, each a number or nil.
local function caps(...) return caps_of(PREFIX, OWNER, ...) end
