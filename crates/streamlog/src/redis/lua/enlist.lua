-- A standalone reader comes: it is the newest of the session, and the oldest too many is told to
-- stop (GET-04). Each is stream:replica:number, the newest last.
-- KEYS: the session's log, the stream. ARGV: me, tag, stream, number, how many, my fence
if redis.call('HEXISTS', KEYS[1], 'gone') == 1 then return {'GONE'} end
local m = redis.call('HMGET', KEYS[2], 'f', 'o')
if m[1] and (m[1] ~= ARGV[6] or m[2] ~= ARGV[1]) then return {'FENCED'} end
local all = {}
for one in string.gmatch(redis.call('HGET', KEYS[1], 'h') or '', '%S+') do
  if string.sub(one, 1, #ARGV[3] + 1) ~= ARGV[3] .. ':' then all[#all + 1] = one end
end
all[#all + 1] = ARGV[3] .. ':' .. ARGV[1] .. ':' .. ARGV[4]
while #all > tonumber(ARGV[5]) do
  local stream, replica, number = string.match(table.remove(all, 1), '^(.-):(.-):(.*)$')
  if replica ~= ARGV[1] then
    redis.call('PUBLISH', 'vestibule:r:' .. replica, 'E ' .. ARGV[2] .. ' ' .. stream .. ' ' .. number .. ' ' .. ARGV[1])
  end
end
redis.call('HSET', KEYS[1], 'h', table.concat(all, ' '))
redis.call('PEXPIRE', KEYS[1], 90000000)
return {'OK'}
