-- Other code works here, and this code might misread it, or do without what a feature is to see: do not touch it.
-- needs: run

do
  local name = lacked()
  if name then return { Format.NEWER, name } end
end
