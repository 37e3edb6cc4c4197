-- Newer code has written here, perhaps what this code would misread: it is left alone. Right before a script on a run.
if NEWEST > VERSION then return { 'newer' } end
