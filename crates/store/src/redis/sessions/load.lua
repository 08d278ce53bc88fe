-- ARGV 5: 1 when it counts as use.
local it = look()
if not it or it.over then
  return false
end
if ARGV[5] == '1' then
  used(it)
  renew()
end
return tell(it)
