-- Newer code has written here, perhaps what this code would misread: it is left alone.
-- needs: run

if NEWEST > Format.VERSION then return { Format.NEWER } end
