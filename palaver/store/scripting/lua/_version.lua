-- Newer code has written here, and this code might misread it: do not touch it.
-- needs: run

if NEWEST > Format.VERSION then return { Format.NEWER } end
