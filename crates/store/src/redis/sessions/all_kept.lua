-- ARGV 5: the kind.
local it = look()
if not it or it.over then
  return {}
end
local all, found = redis.call('HGETALL', KEYS[3]), {}
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 1) == ARGV[5] then
    found[#found + 1] = all[i]
    found[#found + 1] = all[i + 1]
  end
end
return found
